"""A policy of another package, emulated by its name: the command finds it, and so does the controller that it starts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulation.conftest import SMALL
from tests.support.checkout import ROOT
from tests.support.documented import install

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(600), pytest.mark.alone, pytest.mark.long]


def test_the_documented_policy_orders_real_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = install("Your own network policy", tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "beamer.cli", "emulate", str(SMALL), "--policies", name, "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(figures.read_text())["runs"]
    assert run["policy"] == name
    assert len(run["stages"]) == 4
