"""`beamer schedule` where NVIDIA's management library is at hand: a stand-in, which trials tell what they hold."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamer.process_stat import own_namespace
from beamer.schedule.machine_gpus import INITIAL_NAMESPACE
from tests.processes.site import of_directory
from tests.support.checkout import ROOT
from tests.support.nvidia import standin

GIB = 2**30
TIMEOUT_S = 120
GPUS = f"gpu GPU-aaaa-1 {80 * GIB} {70 * GIB} NVIDIA H200\n"
HOLDING = f"""
import json, os, sys, time
name, seconds, gib = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with open(os.environ["NVML_STANDIN"] + f".d/{{os.getpid()}}.new", "w") as file:
    file.write(f"process {{os.getpid()}} {{os.environ['CUDA_VISIBLE_DEVICES']}} {{round(gib * {GIB})}}\\n")
os.rename(file.name, file.name.removesuffix(".new"))
for iteration in range(1, 11):
    time.sleep(seconds / 10)
    print(json.dumps({{"iteration": iteration, "loss": 1 / iteration}}), flush=True)
os.remove(file.name.removesuffix(".new"))
"""


class Machine:
    """A machine with a GPU, of the stand-in's, and a search on it."""

    def __init__(self, root: Path) -> None:
        pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
        self.root = root
        (root / "hold.py").write_text(HOLDING)
        (root / "gpus").write_text(GPUS)
        (root / "gpus.d").mkdir()
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NVML_STANDIN": str(root / "gpus"),
            "LD_LIBRARY_PATH": str(standin.build(root / "driver").parent),
            "COLUMNS": "160",
        }

    def run(self, node: dict[str, Any], *options: str) -> "subprocess.CompletedProcess[str]":
        search = {
            "name": "s",
            "nodes": [{"name": "here", **node}],
            "job": {
                "command": ["{python}", str(self.root / "hold.py"), "{name}", "{seconds}", "{gib}"],
                "request": {"batch_size": 1, "iterations": 10},
            },
            "configurations": [
                {"name": "a", "seconds": 2.5, "gib": 1.5},
                {"name": "b", "seconds": 4.5, "gib": 3},
                {"name": "c", "seconds": 0.1, "gib": 0},
            ],
        }
        (self.root / "search.yaml").write_text(yaml.safe_dump(search))
        command = [sys.executable, "-m", "beamer.cli", "schedule", "search.yaml", "--dir", "dir", *options]
        return subprocess.run(command, cwd=self.root, env=self.env, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.skipif(own_namespace() != INITIAL_NAMESPACE, reason="in a container only processes with a GPU open are believed")
def test_what_trials_hold_is_shown(machine: Machine, tmp_path: Path) -> None:
    shared = {"gpus": 2, "devices": ["GPU-aaaa-1", "GPU-aaaa-1"]}
    done = machine.run(shared, "--policy", "fifo", "--json", str(tmp_path / "f.json"))
    assert (done.returncode, done.stderr) == (0, "")
    held = {row["name"]: row["gpu_bytes"] for row in json.loads((tmp_path / "f.json").read_text())["configurations"]}
    assert held == {"a": 1.5 * GIB, "b": 3 * GIB, "c": None}
    table = done.stdout[done.stdout.index("configuration ") :].splitlines()
    assert table[0].split()[-6:] == ["GPU", "s", "GPU", "GiB", "susp.", "rest."]
    rows = [line.split() for line in table[2:5]]
    assert {row[0]: row[-3] for row in rows} == {"a": "1.5", "b": "3.0", "c": "-"}
    assert "  GPU memory: b 3.0 GiB\n" in done.stdout, "when a had ended and c was started"
    assert of_directory(tmp_path) == []


def test_a_gpu_that_is_not_there_is_refused_before_anything_starts(machine: Machine, tmp_path: Path) -> None:
    done = machine.run({"gpus": 1, "devices": ["GPU-eeee"]})
    expected = "the index or UUID of what this machine has: GPU 0 (GPU-aaaa-1, NVIDIA H200)"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == f"beamer: nodes[0].devices[0]: got 'GPU-eeee', expected {expected}"
    assert not (tmp_path / "dir" / "search").exists()
    assert machine.run({"gpus": 1, "devices": ["GPU-aaaa"]}, "--quiet").returncode == 0


def test_a_driver_that_cannot_be_asked_is_said_and_nothing_else_changes(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text("fail nvmlInitWithFlags 9\n")
    done = machine.run({"gpus": 8})
    assert (done.returncode, done.stderr) == (
        0,
        "the GPUs of nodes are not checked: the kernel has not loaded the driver: see nvidia-smi\n",
    )
    assert "GPU GiB" not in done.stdout
