import errno
import io
import sys
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from hostagent.cli import main
from hostagent.command import parse_urls
from hostagent.expiry.state import StateDirectory
from hostagent.queues import htb
from hostagent.queues.htb import Queues
from hostagent.workers.attach import listening

GOOD = {"--name": "h1", "--controller": "ws://127.0.0.1:8657"}


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
        ("controller", "http://127.0.0.1:8657"),
        ("controller", "ws://127.0.0.1"),
        ("controller", "ws://127.0.0.1:port"),
        ("controller", "ws://127.0.0.1:0"),
        ("controller", "ws://127.0.0.1:99999"),
        ("controller", "ws://127.0.0.1:1?x=1"),
        ("controller", "ws://user:word@127.0.0.1:1"),
        ("controller", "ws://127.0.0.1:1,"),
        ("controller", "ws://127.0.0.1:1,ws://127.0.0.1:1"),
        ("controller", ",".join(f"ws://127.0.0.1:{port}" for port in range(1, 18))),
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
    assert f"--{option}: got" in output
    assert not (tmp_path / "state").exists(), "nothing is left behind"


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass for root on a machine that lacks nothing; what follows needs neither."""
    monkeypatch.setattr(Queues, "check", lambda self: None)


def test_an_agent_that_may_not_manage_queues_says_what_it_needs_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forbidden:
        def tc(self, *_: object, **__: object) -> None:
            raise NetlinkError(errno.EPERM, "Operation not permitted")

        def close(self) -> None: ...

    monkeypatch.setattr(htb, "IPRoute", Forbidden)
    code, output = invoke(tmp_path / "state", attach=str(tmp_path / "agent.sock"))
    assert code == 2
    assert output.count("\n") == 1
    assert "CAP_NET_ADMIN" in output
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("controller", "options", "named"),
    [
        ("wss://h:1", {"ca": "/nonexistent"}, "--ca: got '/nonexistent'"),
        ("wss://h:1", {"ca": __file__}, f"--ca: got '{__file__}'"),
        ("wss://h:1", {"cert": "/nonexistent"}, "--cert: got '/nonexistent'"),
        ("wss://h:1", {"cert": __file__}, "--cert, --key: got"),
        ("wss://h:1", {"key": __file__}, "--cert: got None"),
        ("ws://h:1", {"ca": __file__}, "wss://"),
    ],
)
def test_a_wrong_certificate_is_named_before_anything_is_done(
    tmp_path: Path, controller: str, options: dict[str, str], named: str
) -> None:
    code, output = invoke(tmp_path / "state", controller=controller, **options)
    assert code == 2
    assert output.count("\n") == 1
    assert named in output
    assert not (tmp_path / "state").exists()


def test_several_controllers_are_separated_by_commas() -> None:
    assert parse_urls("ws://a:1, wss://[::1]:2/base") == ("ws://a:1", "wss://[::1]:2/base")


@pytest.mark.parametrize("flags", [(), ("--remove",)])
@pytest.mark.usefixtures("as_root")
def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "h1" / "agent.lock").mkdir(parents=True)  # whoever opens it fails, root too
    code, output = invoke(tmp_path, *flags)
    assert code == 2
    assert output.count("\n") == 1
    assert f"--state-dir: got '{tmp_path}/h1'" in output


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
    assert f"--attach: got '{path}'" in output
    with listening(tmp_path / "other.sock"):
        code, output = invoke(tmp_path, attach=str(tmp_path / "other.sock"))
    assert code == 2
    assert "no other agent listens" in output


@pytest.mark.usefixtures("as_root")
def test_removing_what_never_was_does_nothing(tmp_path: Path) -> None:
    assert invoke(tmp_path / "state", "--remove") == (0, "")
    assert not (tmp_path / "state").exists()
