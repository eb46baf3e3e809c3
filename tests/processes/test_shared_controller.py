"""Searches that share a controller: real engines and trainers, GPUs that no two use at once, kills of every part."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from beamer.engines.local.supervisor.ports import free_port
from beamer.studies.model import split_key
from tests.processes.site import of_directory, until
from topologies.single import build

NODES = [{"name": name, "gpus": 2, "devices": [f"{name}-{i}" for i in range(2)]} for name in ("h1", "h2")]
RATES = {"a": 0.0001, "b": 0.01, "c": 0.05, "d": 0.2}
RUNGS = [{"iterations": 40, "keep": 2}, {"iterations": 80, "keep": 1}, {"iterations": 120}]
TIMEOUT_S = 240
EXCLUSIVE = """
# Takes a lock on its GPU, and says so where another program has it; then it is the trainer.
import fcntl, os, runpy, sys
gpu = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
locks = sys.argv.pop(1)
lock = open(f"{locks}/{gpu}", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(f"{locks}/violations", "a").write(f"{os.environ['BEAMER_STUDY']}/{os.environ['BEAMER_TRIAL']} on {gpu}\\n")
told = {name: os.environ[name] for name in ("BEAMER_URL", "BEAMER_RUN", "BEAMER_STAGE")}
assert all(told.values()), told
sys.argv[0] = "trainer"
runpy.run_module("beamer.testing.trainer", run_name="__main__")
"""


class SharedCluster:
    """A controller, and commands of several searches that it decides for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        (root / "fabric.json").write_text(json.dumps(build(hosts=2).to_dict()))
        (root / "exclusive.py").write_text(EXCLUSIVE)
        (root / "locks").mkdir()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_controller(self, policy: str) -> None:
        options = {
            "fabric": self.root / "fabric.json",
            "journal": f"sqlite:///{self.root / 'controller.db'}",
            "http": f"127.0.0.1:{self.port}",
            "openflow": "127.0.0.1:0",
            "gpu-policy": policy,
        }
        self._start("controller", "controller.cli", *(f"--{name}={value}" for name, value in options.items()))

    def get(self, path: str) -> Any:
        """Return an answer of the controller, once it answers."""

        def asked() -> httpx.Response | None:
            try:
                answer = httpx.get(f"{self.url}/v1/{path}", timeout=5.0)
            except httpx.HTTPError:
                return None
            return answer if answer.status_code == 200 else None

        return until(asked, f"the controller's {path}").json()

    def write_search(self, name: str, rates: Mapping[str, float] = RATES, **keys: Any) -> None:
        command = ["{python}", self.root / "exclusive.py", self.root / "locks", "--learning-rate", "{lr}"]
        command += ["--iterations", "{iterations}", "--pause-s", 0.02]
        data = {
            "name": name,
            "nodes": NODES,
            "job": {
                "command": [one if isinstance(one, float) else str(one) for one in command],
                "env": {"OPENBLAS_NUM_THREADS": 1},
                "request": {"batch_size": 64, "epoch": 5},
            },
            "configurations": [{"name": trial, "lr": rate} for trial, rate in rates.items()],
            "rungs": RUNGS,
            "keep_memory": False,  # so that a program that is suspended has left its GPU
            "retries": 30,
            **keys,
        }
        (self.root / f"{name}.yaml").write_text(yaml.safe_dump(data))

    def start_search(self, name: str, *options: str) -> subprocess.Popen[str]:
        arguments = ["schedule", self.root / f"{name}.yaml", "--dir", self.root / name, "--json", self.root / f"{name}.json"]
        return self._start(name, "beamer.cli", *map(str, arguments), "--controller", self.url, *options)

    def ended(self, name: str, code: int = 0) -> dict[str, Any]:
        """Wait for a search's command and return the figures that it has written."""
        output = self.processes[name].communicate(timeout=TIMEOUT_S)[0]
        assert self.processes[name].returncode == code, output
        figures: dict[str, Any] = json.loads((self.root / f"{name}.json").read_text())
        return figures

    @property
    def violations(self) -> str:
        path = self.root / "locks" / "violations"
        return path.read_text() if path.exists() else ""

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].communicate()

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, *arguments]
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return self.processes[name]

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.communicate()
        for pid in of_directory(self.root):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not of_directory(self.root), "all processes to be gone")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path)
    yield made
    made.close()


def outcome(figures: Mapping[str, Any]) -> dict[str, tuple[str, str, float]]:
    rows = figures["configurations"]
    return {row["name"]: (row["status"], row["rung"], row["iterations"]) for row in rows}


def alone(root: Path, shared: SharedCluster) -> dict[str, tuple[str, str, float]]:
    """Return how the search ends by itself, without a controller."""
    shared.write_search("alone")
    content = yaml.safe_load((root / "alone.yaml").read_text())
    content["job"]["env"] |= {"BEAMER_URL": "none", "BEAMER_RUN": "none"}
    (root / "alone.yaml").write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "beamer.cli", "schedule", root / "alone.yaml", "--dir", root / "alone", "--quiet"]
    subprocess.run([*map(str, command), "--policy", "fifo", "--json", str(root / "alone.json")], check=True, timeout=TIMEOUT_S)
    return outcome(json.loads((root / "alone.json").read_text()))


@pytest.mark.parametrize("policy", ["hermes", "tiresias"])
def test_searches_share_gpus_under_one_policy(shared: SharedCluster, policy: str) -> None:
    expected = alone(shared.root, shared)
    shared.start_controller(policy)
    for name in ("s1", "s2"):
        shared.write_search(name)
        shared.start_search(name)

    def both() -> Any:
        found = shared.get("gpus")
        return {split_key(key)[0] for key in found["trials"]} == {"s1", "s2"} and found

    seen = until(both, "both searches to have GPUs at once")
    assert set(seen["engines"]) == {"s1", "s2"}
    assert seen["policy"] == policy
    assert [node["name"] for node in seen["nodes"]] == ["h1", "h2"]
    for name in ("s1", "s2"):
        figures = shared.ended(name)
        assert (outcome(figures), figures["best"], figures["policy"]) == (expected, "d", policy)
    assert not shared.violations
    assert shared.get("gpus")["trials"] == {}
    studies = shared.get("studies")["studies"]
    assert {study["name"]: study["status"] for study in studies} == {"s1": "ended", "s2": "ended"}
    assert {trial["name"]: trial["status"] for trial in studies[0]["trials"]} == {
        name: status for name, (status, _, _) in expected.items()
    }


@pytest.mark.timeout(600)
def test_killed_anywhere_both_searches_end_as_if_undisturbed(shared: SharedCluster) -> None:
    expected = alone(shared.root, shared)
    shared.start_controller("fifo")
    for name in ("s1", "s2"):
        shared.write_search(name)
        shared.start_search(name)
    shared.get("gpus")
    rng = random.Random(15)
    kills = 0
    while kills < 12:
        time.sleep(rng.uniform(0.3, 1.2))
        victim = rng.choice(["controller", "s1", "s2", "trainer"])
        if victim == "trainer":
            ranks = [pid for pid in of_directory(shared.root / "locks") if pid not in _pids(shared)]
            if not ranks:
                continue
            os.kill(rng.choice(ranks), signal.SIGKILL)
        elif shared.processes[victim].poll() is None:
            shared.kill(victim)
            if victim == "controller":
                shared.start_controller("fifo")
            else:
                shared.start_search(victim)
        else:
            break
        kills += 1
    assert kills >= 6, "the searches took long enough to be disturbed"
    for name in ("s1", "s2"):
        figures = shared.ended(name)
        assert (outcome(figures), figures["best"]) == (expected, "d")
    assert not shared.violations
    assert shared.get("gpus")["trials"] == {}
    assert {study["status"] for study in shared.get("studies")["studies"]} == {"ended"}


def _pids(shared: SharedCluster) -> set[int]:
    return {process.pid for process in shared.processes.values()}


def test_an_interrupted_search_frees_its_gpus_and_goes_on_later(shared: SharedCluster) -> None:
    shared.start_controller("fifo")
    shared.write_search("s1", silent_s=60)
    first = shared.start_search("s1")
    until(lambda: shared.get("gpus")["trials"], "trials of s1")
    shared.write_search("s2")
    shared.start_search("s2")
    time.sleep(0.5)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=TIMEOUT_S)
    assert first.returncode == 128 + signal.SIGINT
    assert not [key for key in shared.get("gpus")["trials"] if key.startswith("s1/")]
    assert shared.ended("s2")["best"] == "d"
    shared.start_search("s1")
    assert shared.ended("s1")["best"] == "d"
    assert not shared.violations


def test_a_study_that_is_ended_at_the_controller_ends_here(shared: SharedCluster) -> None:
    shared.start_controller("fifo")
    shared.write_search("s1")
    shared.start_search("s1")
    until(lambda: shared.get("gpus")["trials"], "trials of s1")
    httpx.put(f"{shared.url}/v1/studies/s1/end").raise_for_status()
    figures = shared.ended("s1")
    assert {row["status"] for row in figures["configurations"]} == {"killed"}
    until(lambda: not [pid for pid in of_directory(shared.root / "locks") if pid not in _pids(shared)], "trainers to end")


def test_what_cannot_be_shared_is_refused(shared: SharedCluster) -> None:
    shared.start_controller("fifo")
    shared.get("gpus")
    shared.write_search("s1", nodes=[{"name": "h3", "gpus": 1}])
    refused = shared.start_search("s1")
    output = refused.communicate(timeout=TIMEOUT_S)[0]
    assert "refuses: nodes[0].name: got 'h3', expected a host of the network: one of" in output.replace("\n", " "), output
    assert refused.returncode == 2
    assert not (shared.root / "s1").exists(), "nothing has run there"
    shared.write_search("s2")
    shared.start_search("s2")
    until(lambda: shared.get("gpus")["engines"], "the engine of s2")
    shared.write_search("s3", nodes=NODES[:1])
    refused = shared.start_search("s3")
    output = refused.communicate(timeout=TIMEOUT_S)[0]
    assert "expected the nodes of the engine of s2, which are shared: h2 (2 GPUs, 0 cores)" in output.replace("\n", " "), output
    assert shared.ended("s2")["best"] == "d"
