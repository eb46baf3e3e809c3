"""Time-outs of a socket: bounded while it is marked, restored afterwards, and not touched where somebody else has set them."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hostagent.marks import timeouts
from hostagent.marks.socket_marks import UNMARKED, Mark, mark
from hostagent.marks.timeouts import DRAINING_RTO_MAX_S, RTO_MAX_S, bound, restore

TCP_RTO_MAX_MS = 44
DEFAULTS = (120_000, 0)
BOUND_MS = round(1000 * RTO_MAX_S)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with closing(socket.socket()) as made:
        try:
            given = made.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS)
        except OSError:
            pytest.skip("the kernel bounds no time-outs (before Linux 6.15)")
        if given != DEFAULTS[0]:
            pytest.skip(f"net.ipv4.tcp_rto_max_ms is {given} here")
        yield made


def set_by(sock: socket.socket) -> tuple[int, int]:
    """Return a socket's longest time-out, and after how long it is given up, in milliseconds."""
    return (
        sock.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )


def test_time_outs_are_bounded_while_a_socket_is_marked(sock: socket.socket) -> None:
    assert set_by(sock) == DEFAULTS
    for wanted in (Mark(5, 43), Mark(1, 11)):
        mark(sock, wanted)
        longest_ms, give_up_ms = set_by(sock)
        assert longest_ms == BOUND_MS
        assert give_up_ms > 3_600_000, "a suspended job's connections would be given up"
    mark(sock, UNMARKED)
    assert set_by(sock) == DEFAULTS


def test_the_two_bounds_replace_each_other(sock: socket.socket) -> None:
    for longest_s in (RTO_MAX_S, DRAINING_RTO_MAX_S, RTO_MAX_S, DRAINING_RTO_MAX_S):
        bound(sock, longest_s)
        assert set_by(sock)[0] == round(1000 * longest_s)
    restore(sock)
    assert set_by(sock) == DEFAULTS


def test_keep_alive_probes_keep_their_limit(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    bound(sock)
    assert set_by(sock) == DEFAULTS


def test_an_administrators_number_of_time_outs_holds(
    sock: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tcp_retries2").write_text("8\n")
    monkeypatch.setattr(timeouts, "_RETRIES", tmp_path / "tcp_retries2")
    bound(sock)
    assert set_by(sock) == DEFAULTS


def test_what_a_program_has_set_stays(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
    bound(sock)
    assert set_by(sock) == (BOUND_MS, 60_000)
    restore(sock)
    assert set_by(sock) == (DEFAULTS[0], 60_000)
    sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 2000)
    for change in (bound, restore):
        change(sock)
        assert set_by(sock) == (2000, 60_000)
