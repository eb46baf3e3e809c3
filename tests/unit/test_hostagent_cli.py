import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hostagent.cli import app
from hostagent.state import StateDirectory

GOOD = {"--name": "h1", "--controller": "ws://127.0.0.1:8265"}


def invoke(state: Path, *flags: str, **options: str) -> tuple[int, str]:
    chosen = GOOD | {"--state-dir": str(state)} | {f"--{name}": value for name, value in options.items()}
    result = CliRunner().invoke(app, [*(part for option in chosen.items() for part in option), *flags])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("name", "h 1"),
        ("controller", ""),
        ("controller", "http://127.0.0.1:8265"),
        ("controller", "ws://127.0.0.1"),
        ("controller", "ws://127.0.0.1:port"),
        ("expiry", "0"),
        ("expiry", "nan"),
        ("poll", "-1"),
        ("counters", "inf"),
    ],
)
def test_bad_input_is_one_line_that_names_it(tmp_path: Path, option: str, value: str) -> None:
    code, said = invoke(tmp_path / "state", **{option: value})
    assert code == 2
    assert said.count("\n") == 1
    assert f"{option}: got" in said
    assert not (tmp_path / "state").exists(), "nothing is left behind"


def test_without_root_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, said = invoke(tmp_path)
    assert code == 2
    assert "root" in said


def test_a_state_directory_has_one_agent(tmp_path: Path) -> None:
    holder = StateDirectory(tmp_path / "h1").take("agent")
    assert holder is not None
    with holder:
        for flags in ((), ("--remove",)):
            code, said = invoke(tmp_path, *flags)
            assert code == 2
            assert "end that agent first" in said


def test_removing_what_never_was_does_nothing(tmp_path: Path) -> None:
    assert invoke(tmp_path / "state", "--remove") == (0, "")
    assert not (tmp_path / "state").exists()
