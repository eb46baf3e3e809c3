import io
import os
import sys
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

import pytest

from hostagent import probe
from hostagent.attach import listening
from hostagent.cli import main
from hostagent.state import StateDirectory

GOOD = {"--name": "h1", "--controller": "ws://127.0.0.1:8265"}


def invoke(state: Path, *flags: str, **options: str) -> tuple[int, str]:
    chosen = GOOD | {"--state-dir": str(state)} | {f"--{name}": value for name, value in options.items()}
    argv = ["beamer-hostagent", *(part for option in chosen.items() for part in option), *flags]
    stderr = io.StringIO()
    with mock.patch.object(sys, "argv", argv), redirect_stderr(stderr), pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), stderr.getvalue()


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
    code, output = invoke(tmp_path / "state", **{option: value})
    assert code == 2
    assert output.count("\n") == 1
    assert f"{option}: got" in output
    assert not (tmp_path / "state").exists(), "nothing is left behind"


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass for root on a machine that lacks nothing; what follows needs neither."""
    monkeypatch.setattr(probe, "check_platform", lambda: None)


@pytest.mark.parametrize("flags", [(), ("--remove",)])
@pytest.mark.parametrize("existing", [False, True])
def test_without_root_it_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], existing: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    state = tmp_path / "state"
    if existing:
        (state / "h1" / "agent.lock").mkdir(parents=True)  # whoever opens it fails, like an ordinary user at root's
        monkeypatch.setattr(os, "access", lambda *_: False)  # what the option parser goes by
    before = list(tmp_path.rglob("*"))
    code, output = invoke(state, *flags)
    assert code == 2
    assert output.count("\n") == 1
    assert "root" in output
    assert list(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("flags", [(), ("--remove",)])
@pytest.mark.usefixtures("as_root")
def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "h1" / "agent.lock").mkdir(parents=True)  # whoever opens it fails, root too
    code, output = invoke(tmp_path, *flags)
    assert code == 2
    assert output.count("\n") == 1
    assert f"state-dir: got '{tmp_path}/h1'" in output


@pytest.mark.usefixtures("as_root")
def test_a_state_directory_has_one_agent(tmp_path: Path) -> None:
    holder = StateDirectory(tmp_path / "h1").take("agent")
    assert holder is not None
    with holder:
        for flags in ((), ("--remove",)):
            code, output = invoke(tmp_path, *flags)
            assert code == 2
            assert "end that agent first" in output


@pytest.mark.usefixtures("as_root")
def test_a_place_to_attach_that_is_taken_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    path.write_text("somebody's")
    code, output = invoke(tmp_path, attach=str(path))
    assert code == 2
    assert output.count("\n") == 1
    assert f"attach: got '{path}'" in output
    with listening(tmp_path / "other.sock"):
        code, output = invoke(tmp_path, attach=str(tmp_path / "other.sock"))
    assert code == 2
    assert "no other agent listens" in output


@pytest.mark.usefixtures("as_root")
def test_removing_what_never_was_does_nothing(tmp_path: Path) -> None:
    assert invoke(tmp_path / "state", "--remove") == (0, "")
    assert not (tmp_path / "state").exists()
