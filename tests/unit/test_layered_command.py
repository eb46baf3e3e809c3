"""Options by flags, variables and a file: which comes first, what is refused, and what is printed of them."""

from pathlib import Path
from typing import Annotated

import pytest
import typer

from beamer.cli import COMMANDS
from beamer.errors import InputError
from beamer.layered_command import OF_CLIENTS
from beamer.lazy_commands import Command
from beamer.option_variables import variables_of
from beamer.yaml_files import parse_yaml

called: list[tuple[object, ...]] = []


def program(
    path: Annotated[Path, typer.Option()],
    count: Annotated[int, typer.Option()] = 1,
    words: Annotated[list[str], typer.Option("--word-list", "-w")] = [],  # noqa: B006
    is_loud: Annotated[bool, typer.Option("--loud")] = False,
    text: Annotated[str | None, typer.Option()] = None,
) -> None:
    """Do nothing."""
    called.append((str(path), count, tuple(words), is_loud, text))


def run(*arguments: str) -> tuple[object, ...]:
    """Return what the program is called with."""
    called.clear()
    with pytest.raises(SystemExit) as end:
        Command(f"{__name__}:program", "core").run("some-program", arguments)
    assert end.value.code == 0
    return called[0] if called else ()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text("path: of-file\ncount: 2\nword-list: [a, 'b: c', 3]\nloud: true\ntext: null\n")
    return path


def test_flags_come_before_variables_and_these_before_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--config", str(config)) == ("of-file", 2, ("a", "b: c", "3"), True, None)
    monkeypatch.setenv("SOME_PROGRAM_COUNT", "3")
    monkeypatch.setenv("SOME_PROGRAM_WORD_LIST", "d e")
    monkeypatch.setenv("SOME_PROGRAM_LOUD", "0")
    assert run("--config", str(config)) == ("of-file", 3, ("d", "e"), False, None)
    assert run("--config", str(config), "--count", "4", "-w", "f", "--text", "t") == ("of-file", 4, ("f",), False, "t")


def test_what_is_printed_is_a_file_that_says_the_same(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_PROGRAM_COUNT", "3")
    assert run("--config", str(config), "--text", "a # b: [", "--print-config") == ()
    monkeypatch.delenv("SOME_PROGRAM_COUNT")
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        f"path: of-file  # {config}",
        "count: 3  # SOME_PROGRAM_COUNT",
        f"word-list: [a, 'b: c', '3']  # {config}",
        f"loud: true  # {config}",
        "text: 'a # b: ['  # flag",
    ]
    again = tmp_path / "again.yaml"
    again.write_text(printed)
    assert run("--config", str(again)) == ("of-file", 3, ("a", "b: c", "3"), True, "a # b: [")
    assert parse_yaml(printed, "printed")["count"] == 3


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("cuont: 2", r"c\.yaml: cuont: got 2, expected one of .*did you mean 'count'"),
        ("loud: maybe", r"c\.yaml: loud: got 'maybe', expected true or false"),
        ("word-list: a", r"c\.yaml: word-list: got 'a', expected a list"),
        ("count: [2]", r"c\.yaml: count: got \[2\], expected one value"),
        ("- count", r"--config: got .*expected"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(line: str, error: str, config: Path) -> None:
    config.write_text(f"{line}\n")
    with pytest.raises(InputError, match=error):
        Command(f"{__name__}:program", "core").run("some-program", ["--config", str(config)])


def test_a_variable_that_sets_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROGRAM_CUONT", "3")
    with pytest.raises(InputError, match=r"SOME_PROGRAM_CUONT: got '3', expected one of .*did you mean 'SOME_PROGRAM_COUNT'"):
        Command(f"{__name__}:program", "core").run("some-program", ["--path", "p"])


@pytest.mark.parametrize("source", ["variable", "file"])
def test_a_value_of_another_type_is_named_with_its_source(
    source: str, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"path: p\n{'count: x' if source == 'file' else ''}\n")
    if source == "variable":
        monkeypatch.setenv("SOME_PROGRAM_COUNT", "x")
    with pytest.raises(SystemExit):
        Command(f"{__name__}:program", "core").run("some-program", ["--config", str(config)])
    where = config if source == "file" else "SOME_PROGRAM_COUNT"
    assert f"Invalid value for '--count': got 'x' from {where}, expected a whole number" in capsys.readouterr().err


def test_no_variable_of_a_command_is_one_that_clients_read() -> None:
    prefixes = [variables_of(f"beamer {name}") for name in COMMANDS]
    others = ("BEAMER_URL", "BEAMER_RUN", "BEAMER_TOKEN", "BEAMER_TOKEN_FILE", "BEAMER_CA", "BEAMER_AGENT", "BEAMER_TRIAL")
    of_commands = {name for name in others if any(name.startswith(prefix) for prefix in prefixes)}
    assert of_commands == set(OF_CLIENTS)
