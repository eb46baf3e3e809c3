"""The shipped scenario, emulated under both policies as `make demo` runs it, and what the command writes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.repetition import RUNS, until_valid

RUN_PATIENCE_S = 500

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(RUNS * RUN_PATIENCE_S + 100), pytest.mark.alone, pytest.mark.long]


def test_stages_end_earlier_under_beamer_and_the_simulator_agrees(tmp_path: Path) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "timeline.png"
    command = [sys.executable, "-m", "beamer.cli", "emulate", "--json", str(figures), "--plot", str(picture)]

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
    assert beamer["mean_sct_s"] <= 0.75 * fair["mean_sct_s"]
    assert beamer["p95_sct_s"] <= 1.1 * fair["p95_sct_s"]
    for run in (fair, beamer):
        assert abs(run["mean_sct_s"] / run["simulated_mean_sct_s"] - 1) <= 0.15
        assert run["class_share_min"] >= 0.99
        assert run["excluded_share"] <= 0.02
        assert 0 < run["plan_p50_ms"] <= run["plan_p99_ms"]
        assert len(run["stages"]) == 13
        # A stage that ends before its trials do would hide their time; between stages a tuner takes some.
        assert sum(stage["sct_s"] for stage in run["stages"]) >= 0.9 * sum(run["makespans_s"].values())
    for study, makespan in fair["makespans_s"].items():
        assert beamer["makespans_s"][study] <= 1.1 * makespan
    assert "plan installed" in printed
    assert "processor wait" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
