"""Which run a command takes part in, and what its trial is called."""

import os

import pytest

from beamer.run.present import MAX_CHARACTERS, default_trial, free_place
from beamer.studies.model import check_name


def study(status: str = "active", **trials: str) -> dict[str, object]:
    return {"status": status, "run": "r", "trials": [{"name": name, "status": one} for name, one in trials.items()]}


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        ("torchrun --nproc-per-node 4 src/train.py --lr 1", "train-"),
        ("python -m pkg.train", "pkg.train-"),
        ("/usr/bin/env", "env-"),
        ("./run it.sh", "run-"),
    ],
)
def test_a_trial_is_named_by_its_program(command: str, begins: str) -> None:
    name = default_trial(command.split())
    assert name.startswith(begins)
    assert name.endswith(f"-{os.getpid()}")
    check_name(name, "trial")


def test_a_long_or_strange_name_keeps_its_end() -> None:
    for program in ("x" * 300, "é" * 90, "-"):
        name = default_trial([program])
        assert len(name) <= MAX_CHARACTERS
        assert name.endswith(str(os.getpid()))
        check_name(name, "trial")


def test_a_present_run_is_joined_and_one_that_has_ended_is_not() -> None:
    for status in ("active", "silent"):
        assert free_place(study(status), "t") == ("r", "t")
    for known in (None, study("ended", t="finished")):
        run, name = free_place(known, "t")
        assert run not in ("", "r")
        assert name == "t"
    assert free_place(None, "t")[0] != free_place(None, "t")[0]


def test_the_name_of_a_trial_that_has_ended_is_taken() -> None:
    assert free_place(study(t="lost"), "t") == ("r", "t")
    assert free_place(study(t="killed"), "t") == ("r", "t.2")
    ended = {"t": "failed", "t.2": "finished", "t.3": "running"}
    assert free_place(study(**ended), "t") == ("r", "t.3")
