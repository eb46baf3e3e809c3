"""What is under way is set by each test here; tests/netns/test_class_changes.py has it from the kernel."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from beamer.network.codepoints import LOCAL
from hostagent.marks import draining as module
from hostagent.marks.diagnostics import SendProgress
from hostagent.marks.draining import MAX_DRAINING_S, STARVED_S, Drain, begin, release_drained
from hostagent.marks.holding import hold, is_held
from hostagent.marks.socket_marks import UNMARKED, Mark, mark, mark_of
from hostagent.marks.timeouts import DRAINING_RTO_MAX_S, RTO_MAX_S, bound, restore
from hostagent.queues.tree import class_id
from tests.support.firewall_marks import may_hold

pytestmark = may_hold

OLD, NEW = Mark(class_id(5), LOCAL.of(5)), Mark(class_id(1), LOCAL.of(1))
FOREIGN = Mark(6, 46)  # as a program sets it
TCP_RTO_MAX_MS = 44


@dataclass
class Stream:
    """A connection whose peer acknowledges what a test says."""

    sender: socket.socket
    acked: int = 0
    sent: int = 0
    received: int = 0
    is_losing: bool = False

    def send_progress(self, sock: socket.socket) -> SendProgress:
        return SendProgress(self.acked, self.sent, self.received, self.acked == self.sent, self.is_losing)

    def begin(self, now_s: float = 0.0) -> Drain:
        drain = begin(self.sender.dup(), NEW, now_s)
        assert drain is not None
        assert is_held(self.sender)
        return drain


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = stack.enter_context(socket.create_connection(server.getsockname()))
        stack.enter_context(server.accept()[0])
        mark(sender, OLD)
        made = Stream(sender)
        monkeypatch.setattr(module, "send_progress", made.send_progress)
        yield made


def ended(drain: Drain, stream: Stream, mark: Mark = NEW) -> bool:
    """Close a drain, and return whether its connection goes on with a mark."""
    drain.close()
    return mark_of(stream.sender) == mark and not is_held(stream.sender)


def longest_s(sock: socket.socket) -> float | None:
    """Return the longest time-out of a socket, None where the kernel bounds none."""
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) / 1000
    except OSError:
        return None


def test_a_connection_with_the_mark_waits_for_nothing(stream: Stream) -> None:
    stream.sent = 100
    assert begin(stream.sender, OLD, 0.0) is None
    assert not is_held(stream.sender)


def test_a_connection_with_nothing_under_way_is_marked_in_one_step(stream: Stream) -> None:
    stream.sent = stream.acked = 100
    drain = stream.begin()
    assert drain.step(0.0)
    assert drain.sent_before == 100
    assert ended(drain, stream)


def test_a_connection_is_marked_once_all_that_was_sent_is_acknowledged(stream: Stream) -> None:
    stream.sent, stream.acked = 1000, 400
    drain = stream.begin()
    for now_s, acked in ((0.0, 400), (0.2, 999)):
        stream.acked = acked
        assert not drain.step(now_s)
        assert mark_of(stream.sender) == OLD
        assert is_held(stream.sender)
    stream.acked = 1000
    assert drain.step(0.3)
    assert drain.sent_before == 1000
    assert ended(drain, stream)


def test_one_whose_class_is_not_served_is_marked_all_the_same(stream: Stream) -> None:
    stream.sent = 1000
    drain = stream.begin(10.0)
    assert not drain.step(10.0 + 0.9 * STARVED_S)
    assert mark_of(stream.sender) == OLD
    assert drain.step(10.0 + 1.1 * STARVED_S)
    assert ended(drain, stream)


def test_one_that_is_served_slowly_waits_no_longer_than_is_allowed(stream: Stream) -> None:
    stream.sent = 1_000_000
    drain = stream.begin()
    now_s = 0.0
    while not drain.step(now_s):
        assert now_s < MAX_DRAINING_S
        now_s += 0.9 * STARVED_S
        stream.acked += 1
    assert now_s >= MAX_DRAINING_S
    assert ended(drain, stream)


def test_what_was_lost_is_sent_again_in_the_old_class(stream: Stream) -> None:
    stream.sent, stream.is_losing = 1000, True
    drain = stream.begin()
    assert not drain.step(0.0)
    assert not is_held(stream.sender)
    assert mark_of(stream.sender) == OLD
    stream.sent, stream.acked, stream.is_losing = 1500, 1500, False
    assert drain.step(0.1), "it is held, and nothing is under way"
    assert ended(drain, stream)


def test_one_that_loses_and_is_not_served_is_marked_as_soon_as_any_other(stream: Stream) -> None:
    stream.sent, stream.is_losing = 1000, True
    drain = stream.begin()
    assert not drain.step(0.9 * STARVED_S)
    assert drain.step(1.1 * STARVED_S)
    assert ended(drain, stream)


def test_an_end_that_receives_waits_for_longer(stream: Stream) -> None:
    stream.sent = 1000
    drain = stream.begin()
    stream.received = 500
    assert not drain.step(1.9 * STARVED_S)
    assert is_held(stream.sender)
    stream.acked = 100
    assert not drain.step(1.95 * STARVED_S)
    assert not drain.step(2.9 * STARVED_S), "since the last acknowledgement"
    assert drain.step(3.0 * STARVED_S), "and it has received nothing since"
    assert ended(drain, stream)


def test_a_drain_that_is_closed_early_changes_nothing(stream: Stream) -> None:
    stream.sent = 1
    assert ended(stream.begin(), stream, mark=OLD)


@pytest.mark.parametrize("is_closed_early", [False, True])
def test_time_outs_are_shorter_until_the_connection_goes_on(stream: Stream, is_closed_early: bool) -> None:
    if longest_s(stream.sender) != RTO_MAX_S:
        pytest.skip("the kernel bounds no time-outs (before Linux 6.15), or an administrator does")
    stream.sent = 1000
    drain = stream.begin()
    assert longest_s(stream.sender) == DRAINING_RTO_MAX_S
    if not is_closed_early:
        stream.acked = 1000
        assert drain.step(0.1)
    drain.close()
    assert longest_s(stream.sender) == RTO_MAX_S


@pytest.mark.parametrize("given", [OLD, UNMARKED, FOREIGN])
def test_what_another_agent_has_left_on_its_way_goes_on(stream: Stream, given: Mark) -> None:
    mark(stream.sender, given)
    if given == FOREIGN:
        restore(stream.sender)
    before_s = longest_s(stream.sender)
    bound(stream.sender, DRAINING_RTO_MAX_S)
    hold(stream.sender)
    release_drained(stream.sender)
    assert not is_held(stream.sender)
    assert longest_s(stream.sender) == before_s


@pytest.mark.parametrize("corked", [0, 1])
def test_a_program_keeps_its_own_settings(stream: Stream, corked: int) -> None:
    stream.sent = 1
    stream.sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, corked)
    stream.begin().close()
    assert stream.sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK) == corked
    stream.sender.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7)
    assert begin(stream.sender, NEW, 0.0) is None
    assert stream.sender.getsockopt(socket.SOL_SOCKET, socket.SO_MARK) == 7


def test_without_the_capability_connections_are_marked_at_once(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(sock: socket.socket) -> None:
        raise PermissionError(1, "Operation not permitted")

    stream.sent = 1
    monkeypatch.setattr(module, "hold", refuse)
    assert begin(stream.sender, NEW, 0.0) is None
    assert not is_held(stream.sender)
