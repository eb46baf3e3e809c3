"""A search that trains, on real packets: by PyTorch's DDP, in its classes, and with the losses of a single process."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beamer.schedule.file import parse
from beamer.workloads.joint import load
from beamer.workloads.scenario import TransportSettings
from tests.emulation.repetition import RUNS, until_valid
from tests.training import needs_pytorch, trained
from topologies.emulation.digits_data import store
from topologies.emulation.searches import HostEntry, search_file

DIGITS = Path(__file__).parent / "digits.yaml"
RUN_PATIENCE_S = 200
FINISHED = re.compile(r"(\w+) finished after \d+ iterations, loss ([0-9.]+)")

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(RUNS * RUN_PATIENCE_S + 100)]


def test_ranks_train_to_the_end_in_their_classes(tmp_path: Path) -> None:
    needs_pytorch()
    figures, logs = tmp_path / "figures.json", tmp_path / "logs"
    command = [sys.executable, "-m", "beamer.cli", "emulate", str(DIGITS), "--json", str(figures), "--logs", str(logs)]
    options = ["--gpu-policy", "fifo", "--policies", "beamer"]

    def emulate() -> tuple[dict[str, Any], list[str]]:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=RUN_PATIENCE_S)
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(figures.read_text())["runs"]
        return run, run["findings"]

    run = until_valid(emulate)
    assert run["class_share_min"] >= 0.99
    simulated = run["simulated"]
    assert abs(run["network_bytes"] / simulated["network_bytes"] - 1) <= 0.15
    assert {trial["key"]: trial["status"] for trial in run["trials"]} == {
        trial["key"]: trial["status"] for trial in simulated["trials"]
    }
    (found,) = FINISHED.findall((logs / "fifo-beamer" / "search-digits.log").read_text())
    assert float(found[1]) == pytest.approx(alone(found[0], tmp_path), rel=1e-2)


def alone(trial: str, directory: Path) -> float:
    """Return what a trial loses in the end when a single process here trains it."""
    scenario = load(DIGITS)
    store(directory / "digits.npz")
    hosts = {node.name: HostEntry("127.0.0.1", 1) for node in scenario.nodes}
    content = search_file(scenario.searches[0], scenario.nodes, hosts, TransportSettings(), directory / "digits.npz")
    launches = parse(content, directory).jobs[trial].launches
    launch = launches[max(launches)]
    return trained(launch.command, 1, launch.batch_size, directory / "checkpoint")[-1]["loss"]
