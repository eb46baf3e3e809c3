"""Which run a command takes part in, and what its trial is called."""

import os

import pytest

from beamer.run.present import MAX_CHARACTERS, default_trial, free_name, next_run
from beamer.studies.model import MAX_NAME_CHARACTERS, check_name


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


def test_the_next_run_follows_from_those_that_are_known() -> None:
    assert next_run("run", ()) == "run.2"
    assert next_run("run.2", ["run"]) == "run.3"
    assert next_run("run", ["run.2", "run.3"]) == "run.4"
    assert len(next_run("x" * MAX_NAME_CHARACTERS, ())) == MAX_NAME_CHARACTERS


@pytest.mark.parametrize("taken", [*range(20), 1000])
def test_the_first_name_that_is_not_taken_is_found_by_few_questions(taken: int) -> None:
    names = {"t" if number == 1 else f"t.{number}" for number in range(1, taken + 1)}
    asked: list[str] = []

    def is_taken(name: str) -> bool:
        asked.append(name)
        return name in names

    assert free_name("t", is_taken) == ("t" if taken == 0 else f"t.{taken + 1}")
    assert len(asked) <= 2 * taken.bit_length() + 1
