"""Which capabilities count as missing, and what is said where the kernel refuses for want of one or of a module."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from beamer.errors import BeamerError, InputError, PlatformError
from beamer.network.protocol import Port
from hostagent.capabilities import effective_capabilities, missing
from hostagent.marks import socket_marks
from hostagent.marks.socket_marks import borrow, socket_descriptors
from hostagent.queues import htb
from hostagent.queues.htb import Queues
from hostagent.queues.tree import port_tree

DAC_OVERRIDE, DAC_READ_SEARCH, SYS_PTRACE = 1 << 1, 1 << 2, 1 << 19


@pytest.mark.parametrize(
    ("effective", "lacking"),
    [
        (0, ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]),
        (SYS_PTRACE, ["CAP_DAC_READ_SEARCH"]),
        (DAC_READ_SEARCH, ["CAP_SYS_PTRACE"]),
        (SYS_PTRACE | DAC_READ_SEARCH, []),
        (SYS_PTRACE | DAC_OVERRIDE, []),
    ],
)
def test_what_is_missing_is_named(effective: int, lacking: list[str]) -> None:
    said = list(missing(effective))
    assert [name for warning in said for name in lacking if warning.startswith(f"no {name}: ")] == lacking
    assert len(said) == len(lacking)
    assert all("not marked" in warning for warning in said)


def test_the_set_in_effect_is_read_from_proc(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000080004\n")
    assert effective_capabilities(status) == SYS_PTRACE | DAC_READ_SEARCH
    assert effective_capabilities() >= 0


class Refusing:
    """Stands in for netlink: refuses `what`, and answers that there is nothing to every question."""

    def __init__(self, what: str, code: int) -> None:
        self.what, self.code = what, code

    def tc(self, command: str, *_: Any, **__: Any) -> None:
        if command.endswith(self.what):
            raise NetlinkError(self.code, os.strerror(self.code))

    def get_qdiscs(self, **_: Any) -> list[Any]:
        return []

    def close(self) -> None: ...


def refusal(monkeypatch: pytest.MonkeyPatch, what: str, code: int) -> BeamerError:
    monkeypatch.setattr(htb, "IPRoute", lambda: Refusing(what, code))
    tree = port_tree(Port(interface="lo", rate_bps=10**9, classify="dscp"), 2, 0.1, {})
    with pytest.raises(BeamerError) as caught:
        Queues().reconcile("lo", tree)
    return caught.value


@pytest.mark.parametrize(
    ("what", "code", "kind", "named"),
    [
        ("filter", errno.ENOENT, PlatformError, "no u32 classifier.*cls_u32"),
        ("add", errno.ENOENT, PlatformError, "no HTB queueing discipline.*sch_htb"),
        ("class", errno.EPERM, PlatformError, "CAP_NET_ADMIN"),
        ("class", errno.ENODEV, InputError, "lo"),
    ],
)
def test_a_refusal_names_what_it_is_for_want_of(
    monkeypatch: pytest.MonkeyPatch, what: str, code: int, kind: type[BeamerError], named: str
) -> None:
    error = refusal(monkeypatch, what, code)
    assert type(error) is kind
    with pytest.raises(kind, match=named):
        raise error


@pytest.mark.parametrize(("code", "named"), [(errno.EPERM, "CAP_NET_ADMIN"), (errno.ENOENT, "sch_htb"), (errno.EINVAL, "")])
def test_the_probe_is_refused_for_its_version_where_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch, code: int, named: str
) -> None:
    monkeypatch.setattr(htb, "IPRoute", lambda: Refusing("replace", code))
    if not named:
        Queues().check()
        return
    with pytest.raises(PlatformError, match=named):
        Queues().check()


def forbidden(*_: Any, **__: Any) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_a_process_that_cannot_be_reached_names_the_capability_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(socket_marks.os, "open", forbidden)
        with pytest.raises(PlatformError, match="CAP_DAC_READ_SEARCH"):
            socket_descriptors(os.getpid())
    with monkeypatch.context() as patch:
        patch.setattr(socket_marks.os, "readlink", forbidden)
        with pytest.raises(PlatformError, match="CAP_SYS_PTRACE"):
            socket_descriptors(os.getpid())

    class Forbidden:
        @staticmethod
        def syscall(*_: int) -> int:
            return -1

    monkeypatch.setattr(socket_marks, "_libc", Forbidden)
    monkeypatch.setattr(socket_marks.ctypes, "get_errno", lambda: errno.EPERM)
    with pytest.raises(PlatformError, match="CAP_SYS_PTRACE"):
        borrow(os.getpid(), 0, 1)
