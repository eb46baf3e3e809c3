"""Scenarios emulated under both policies, as `make demo` runs the shipped one, and what the command writes."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.emulation.repetition import RUNS, until_valid

CONTENDED = Path(__file__).parent / "contended.yaml"
RUN_PATIENCE_S = 500
AGREEMENT = 0.15  # of an emulated time with the simulated one

pytestmark = [pytest.mark.emulation, pytest.mark.alone, pytest.mark.timeout(3 * RUNS * RUN_PATIENCE_S + 100)]


@dataclass(frozen=True)
class Comparison:
    """What `beamer emulate` wrote about a run under `fair` and one under `beamer`."""

    fair: dict[str, Any]
    beamer: dict[str, Any]


def emulated(directory: Path, *scenario: str) -> Comparison:
    """Emulate a scenario, the shipped one if none is named, until the runs are valid; assert what holds of every one."""
    figures, picture = directory / "figures.json", directory / "timeline.png"
    files = ("--json", str(figures), "--plot", str(picture))
    command = [sys.executable, "-m", "beamer.cli", "emulate", *scenario, *files, "--details"]

    def emulate() -> tuple[tuple[str, list[dict[str, Any]]], list[str]]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_PATIENCE_S)
        assert done.returncode == 0, done.stderr
        print(done.stdout)
        runs = json.loads(figures.read_text())["runs"]
        findings = [f"{run['policy']}: {finding}" for run in runs for finding in run["findings"]]
        assert all(run["valid"] == (not run["findings"]) for run in runs)
        assert done.stdout.count("invalid") == len(findings)
        return (done.stdout, runs), findings

    printed, (fair, beamer) = until_valid(emulate)
    assert (fair["policy"], beamer["policy"]) == ("fair", "beamer")
    for run in (fair, beamer):
        assert abs(run["mean_sct_s"] / run["simulated_mean_sct_s"] - 1) <= AGREEMENT
        assert run["class_share_min"] >= 0.99
        assert run["excluded_share"] <= 0.02
        assert 0 < run["plan_p50_ms"] <= run["plan_p99_ms"]
        for stage in run["stages"]:
            of_stage = [job["jct_s"] for job in run["jobs"] if job["job"].startswith(f"{stage['study']}/{stage['stage']}/")]
            assert stage["sct_s"] >= 0.98 * max(of_stage), "a stage that ends before its trials do would hide their time"
    assert printed.startswith("Under beamer a stage takes ")
    assert "plan installed" in printed
    assert "processor wait" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    return Comparison(fair, beamer)


def simulated_makespans_s(directory: Path, scenario: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return how long each search of a scenario takes, simulated: with a fair share of every link, and under `beamer`."""
    figures = directory / "simulated.json"
    command = [sys.executable, "-m", "beamer.cli", "simulate", scenario, "--policies", "fair,beamer", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_PATIENCE_S)
    assert done.returncode == 0, done.stderr
    fair, beamer = json.loads(figures.read_text())["runs"]
    return fair["makespans_s"], beamer["makespans_s"]


def test_stages_end_earlier_where_searches_meet(tmp_path: Path) -> None:
    """Also, no search takes much longer than with a fair share of the links.

    That is a property of the order, which is simulated without noise. The emulated search that ends last, and so pays for the
    others, agrees with the simulated one. Which of the two small ones goes first is decided by milliseconds.

    In one of some ten runs a connection stands still for a time-out of TCP after a change of class, which is a second of these
    fifteen (docs/experiments/emulation.md, "Changes of class"). Of three runs the middle one counts where the first is late.
    """
    fair, beamer = simulated_makespans_s(tmp_path, str(CONTENDED))
    for study, makespan_s in fair.items():
        assert beamer[study] <= 1.1 * makespan_s
    last = max(beamer, key=lambda study: beamer[study])
    longest_s = (1 + AGREEMENT) * beamer[last]
    makespans_s: list[float] = []
    while len(makespans_s) < 3 and (not makespans_s or makespans_s[0] > longest_s):
        found = emulated(tmp_path, str(CONTENDED))
        assert found.beamer["mean_sct_s"] <= 0.85 * found.fair["mean_sct_s"]
        makespans_s.append(found.beamer["makespans_s"][last])
    assert median(makespans_s) <= longest_s, f"{last}: {makespans_s}"


@pytest.mark.long
def test_stages_of_the_shipped_scenario_end_earlier_and_the_simulator_agrees(tmp_path: Path) -> None:
    found = emulated(tmp_path)
    assert found.beamer["mean_sct_s"] <= 0.75 * found.fair["mean_sct_s"]
    assert found.beamer["p95_sct_s"] <= 1.1 * found.fair["p95_sct_s"]
    assert len(found.fair["stages"]) == len(found.beamer["stages"]) == 13
    for study, makespan in found.fair["makespans_s"].items():
        assert found.beamer["makespans_s"][study] <= 1.1 * makespan
