"""`python -m eval nvidia` on the stand-in of the driver, in sizes of seconds."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.errors import PlatformError
from eval.nvidia.parts import search, starts, turns
from eval.nvidia.stand_in import SMALL, StandInSite, stand_in_site

PATIENCE_S = 200.0


@pytest.fixture
def site(tmp_path: Path) -> StandInSite:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    try:
        made = stand_in_site(tmp_path / "driver")
    except PlatformError as error:
        pytest.skip(str(error))
    return replace(made, sizes=replace(SMALL, short=5, long=100, rates=(0.001, 0.2), target_loss=0.6))


def until_s() -> float:
    return time.monotonic() + PATIENCE_S


def test_programs_are_checkpointed_and_trained_to_the_same_bits(site: StandInSite, tmp_path: Path) -> None:
    parts = [word for part in ("checkpoint", "bits") for word in ("--part", part)]
    file = tmp_path / "n.json"
    command = [sys.executable, "-m", "eval", "nvidia", "--stand-in", *parts, "--json", str(file)]
    done = subprocess.run(command, cwd=tmp_path, env={**site.env}, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no GPU (--stand-in): a stand-in of NVIDIA's driver carries the same paths" in done.stdout
    assert "checkpoint: 4 of 4 ran on the stand-in" in done.stdout
    found = json.loads(file.read_text())
    assert found["is_stand_in"]
    measured = found["measured"]
    assert [one["figures"]["held_gib"] for one in measured["checkpoint"].values()] == list(SMALL.held_gib)
    assert {one["figures"]["left_gib"] for one in measured["checkpoint"].values()} == {0.0}
    assert measured["bits"]["training"]["figures"]["failures"] == []


def test_starts_and_the_search_are_those_of_beamer_schedule(site: StandInSite) -> None:
    cold, ahead = starts(site, False, until_s()), starts(site, True, until_s())
    assert (cold["failures"], len(cold["starts_s"])) == ([], 3)
    assert (ahead["failures"], len(ahead["starts_s"])) == ([], 2)
    found = search(site, "fifo", until_s())
    assert found["failures"] == []
    assert 0 < found["reached_s"] < found["wall_s"]


@pytest.mark.long
def test_trials_take_turns_under_the_declared_limit(site: StandInSite) -> None:
    found = turns(site, until_s())
    assert found["failures"] == []
    assert len(found["starts_s"]) == found["trials"] == 6
    assert found["out"] >= found["back"] > 0
