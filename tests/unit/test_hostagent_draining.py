"""What is under way is told by hand here; tests/netns/test_class_changes.py has it from the kernel."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from hostagent import draining as module
from hostagent.diagnostics import SendProgress
from hostagent.draining import MOST_S, STARVED_S, Drain, begin, repair
from hostagent.process import Mark, mark, mark_of
from tests.unit.send_buffers import may_limit

pytestmark = may_limit

OLD, NEW = Mark(5, 43), Mark(1, 11)


@dataclass
class Stream:
    """A connection whose peer acknowledges what it is told to."""

    sender: socket.socket
    acked: int = 0
    sent: int = 0
    not_sent: int = 0

    def send_progress(self, sock: socket.socket) -> SendProgress:
        return SendProgress(self.acked, self.sent, self.sent + self.not_sent, self.acked == self.sent)

    def begin(self, now_s: float = 0.0) -> Drain:
        drain = begin(self.sender.dup(), NEW, now_s)
        assert drain is not None
        assert self.buffer == (module._SMALL_BYTES, module._SNDBUF_LOCK)
        return drain

    @property
    def buffer(self) -> tuple[int, int]:
        size = self.sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        return size, self.sender.getsockopt(socket.SOL_SOCKET, module._SO_BUF_LOCK)


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


def test_a_connection_with_the_mark_waits_for_nothing(stream: Stream) -> None:
    stream.sent = 100
    assert begin(stream.sender, OLD, 0.0) is None
    assert stream.buffer[1] == 0


def test_a_connection_with_nothing_under_way_is_marked_in_one_step(stream: Stream) -> None:
    before = stream.buffer
    stream.sent = stream.acked = 100
    stream.not_sent = 100  # its peer takes no more
    drain = stream.begin()
    assert drain.step(0.0)
    drain.close()
    assert (mark_of(stream.sender), stream.buffer) == (NEW, before)


def test_what_is_sent_just_before_the_mark_is_waited_for(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(sock: socket.socket, wanted: Mark) -> bool:
        stream.sent += 50
        return mark(sock, wanted)

    monkeypatch.setattr(module, "mark", late)
    stream.sent = stream.acked = 100
    drain = stream.begin()
    assert not drain.step(0.0), "it may have gone out with the old mark"
    assert mark_of(stream.sender) == NEW
    stream.acked, stream.sent = 149, 170
    assert not drain.step(0.1)
    stream.acked = 150
    assert drain.step(0.2)
    drain.close()


def test_a_connection_is_marked_once_all_that_was_written_is_acknowledged(stream: Stream) -> None:
    before = stream.buffer
    stream.sent, stream.not_sent = 700, 300
    drain = stream.begin()
    stream.acked, stream.sent, stream.not_sent = 600, 1000, 10
    assert not drain.step(0.1)
    assert mark_of(stream.sender) == OLD
    stream.acked, stream.sent, stream.not_sent = 1000, 1008, 2
    assert not drain.step(0.2), "the rest of a piece would overtake what was sent of it"
    assert mark_of(stream.sender) == OLD
    stream.sent, stream.not_sent = 1010, 0
    assert not drain.step(0.3), "what was sent with the old mark is under way"
    assert mark_of(stream.sender) == NEW
    assert drain.sent_before == 1010
    stream.acked, stream.sent = 1009, 1050
    assert not drain.step(0.4)
    stream.acked = 1010
    assert drain.step(0.4)
    drain.close()
    assert stream.buffer == before


def test_it_is_marked_at_once_when_nothing_is_under_way_any_more(stream: Stream) -> None:
    stream.sent, stream.not_sent = 500, 500
    drain = stream.begin()
    stream.acked = 500  # and its peer takes no more
    assert drain.step(0.1)
    assert mark_of(stream.sender) == NEW
    drain.close()


def test_one_whose_class_is_not_served_is_marked_all_the_same(stream: Stream) -> None:
    before = stream.buffer
    stream.sent = 1000
    drain = stream.begin(10.0)
    assert not drain.step(10.0 + 0.9 * STARVED_S)
    assert mark_of(stream.sender) == OLD
    assert drain.step(10.0 + 1.1 * STARVED_S)
    assert mark_of(stream.sender) == NEW
    drain.close()
    assert stream.buffer == before


def test_one_that_is_served_slowly_waits_no_longer_than_is_allowed(stream: Stream) -> None:
    stream.sent = 1_000_000
    drain = stream.begin()
    now_s = 0.0
    while not drain.step(now_s):
        assert now_s < MOST_S
        now_s += 0.9 * STARVED_S
        stream.acked += 1
    assert now_s >= MOST_S
    drain.close()


def test_a_program_that_has_set_its_buffer_keeps_it(stream: Stream) -> None:
    stream.sent = 1
    stream.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    stream.begin().close()
    assert stream.buffer == (100_000, module._SNDBUF_LOCK)
    drain = stream.begin()
    stream.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000)
    drain.close()
    assert stream.buffer == (60_000, module._SNDBUF_LOCK)


def test_the_kernel_takes_one_piece_at_a_time_meanwhile(stream: Stream) -> None:
    stream.sent = 1
    drain = stream.begin()
    stream.sender.setblocking(False)
    assert 0 < stream.sender.send(bytes(1 << 20)) <= 1 << 16
    drain.close()
    assert stream.sender.send(bytes(1 << 20)) > 1 << 16


def test_what_a_killed_agent_has_limited_is_restored_and_nothing_else(stream: Stream) -> None:
    before = stream.buffer
    repair(stream.sender)
    assert stream.buffer == before
    stream.sent = 1
    drain = stream.begin()  # and is not heard of again
    repair(stream.sender)
    size, lock = stream.buffer
    assert size >= module._DEFAULT_BYTES
    assert lock == 0
    drain.close()


def test_without_the_kernels_help_connections_are_marked_at_once(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stream.buffer
    stream.sent = 1
    with monkeypatch.context() as patch:
        patch.setattr(module, "_SO_BUF_LOCK", 9999)
        assert begin(stream.sender, NEW, 0.0) is None
    assert stream.buffer == before
