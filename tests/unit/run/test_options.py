"""Arguments of `beamer run`: what is read without typer is what typer reads, and all else is left to it."""

from unittest.mock import patch

import pytest
import typer
from typer.testing import CliRunner

from beamer.errors import InputError
from beamer.run import command
from beamer.run.options import OPTIONS, RunOptions, read_plain

PLAIN = [
    "--study s -- true",
    "--study=s --trial=t -- a --study x -- b",
    "--study s --run r --workers h1,h2, --trial t --rank 1 -- a",
    "--study s --milestone 3 --milestone=7 --budget 9 --progress tqdm --controller http://h:1 -- a -b",
    "--study s --progress=(?P<iteration>\\d+)=(?P<loss>\\S+) -- a",
    "--study s --trial= -- a",
]
NOT_PLAIN = [
    "", "--help", "-- true", "--study s true", "--study s --", "--study s --bad 1 -- a", "--study s --rank x -- a",
    "--study -- a",
    "--study s --study t -- a", "--study s --rank -1 -- a", "--study s --budget 1.0 -- a", "s --study s -- a", "--stud s -- a",
]  # fmt: skip


def by_typer(arguments: list[str]) -> RunOptions | None:
    """Return what typer reads, None if it refuses or shows help."""
    app = typer.Typer()
    app.command()(command.run)
    with patch.object(command, "execute") as executed:
        CliRunner().invoke(app, arguments)
    return executed.call_args.args[0] if executed.called else None


@pytest.mark.parametrize("line", PLAIN)
def test_plain_arguments_are_read_as_typer_reads_them(line: str) -> None:
    read = read_plain(line.split())
    assert read is not None
    assert read == by_typer(line.split())


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_all_others_are_left_to_typer(line: str) -> None:
    assert read_plain(line.split()) is None


def test_every_option_is_known_to_both() -> None:
    app = typer.Typer()
    app.command()(command.run)
    declared = {name for one in typer.main.get_command(app).params for name in one.opts if name.startswith("--")}
    assert declared - {"--help", "--install-completion", "--show-completion"} == set(OPTIONS)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("--study", {"study": ""}),
        ("--trial", {"trial": "a\nb"}),
        ("--rank", {"rank": 1}),
        ("--rank", {"rank": 2, "workers": ("a", "b"), "trial": "t"}),
        ("--trial", {"workers": ("a", "b")}),
        ("--milestone", {"milestones": (0,)}),
        ("--budget", {"budget": 0}),
        ("command", {"command": ()}),
    ],
)
def test_what_the_controller_would_refuse_is_refused_first(field: str, options: dict[str, object]) -> None:
    with pytest.raises(InputError) as error:
        RunOptions(**{"command": ("true",), "study": "s", **options})  # type: ignore[arg-type]
    assert error.value.field == field
