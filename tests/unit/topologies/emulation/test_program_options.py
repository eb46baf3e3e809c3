"""The options of the programs of emulated searches: each field of a dataclass is one."""

from dataclasses import dataclass

import pytest

from topologies.emulation.digits_data import DigitsOptions
from topologies.emulation.program import StandInOptions
from topologies.emulation.program_options import ProgramOptions, parsed


@dataclass(frozen=True, kw_only=True)
class _Options(ProgramOptions):
    learning_rate: float
    name: str = "none"


def read(*arguments: str) -> _Options:
    return parsed(_Options, "some.program", None, arguments)


def test_a_command_line_gives_fields_of_their_types() -> None:
    options = read("--iterations", "7", "--compute-s", "0.5", "--learning-rate", "0.1", "--overlap", "0.25", "--name", "1")
    assert options == _Options(iterations=7, compute_s=0.5, learning_rate=0.1, overlap=0.25, name="1")
    assert options.iteration_s(2) == 0.25


def test_what_has_no_default_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read("--iterations", "7", "--compute-s", "0.5")
    assert ended.value.code == 2
    assert "some.program: error: the following arguments are required: --learning-rate" in capsys.readouterr().err


def test_each_program_can_be_asked_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, own in ((StandInOptions, "--sync-bytes"), (DigitsOptions, "--learning-rate")):
        with pytest.raises(SystemExit) as ended:
            parsed(kind, "some.program", "A program.", ["--help"])
        assert ended.value.code == 0
        assert own in capsys.readouterr().out
