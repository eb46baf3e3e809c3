"""A connection gets another class without a packet overtaking those before it: what waits in its old class leaves first.

Packets of the new class would pass those that wait in the old one, in the host and in every switch: all of them if it is more
urgent, otherwise the few that every class may send at any time. TCP takes what is passed for lost and sends it again, and with
timestamps the receiver drops what comes behind its repetition (PAWS, RFC 7323, section 5).

So the socket's send buffer is made as small as it can be. What was written goes on at full speed in its old class. Once that is
acknowledged, the kernel takes the next piece from the program only when that before it is acknowledged but for a packet. Then
the mark is changed, and the buffer restored when what was sent with the old mark is acknowledged. A class that is not served
acknowledges nothing: its connections are marked at once, and TCP sends again what waits. A connection with nothing under way
takes the same path, as its program may send between the reading and the mark; mostly that is one step.
"""

import socket
from dataclasses import dataclass

from hostagent.diagnostics import SendProgress, send_progress
from hostagent.process import Mark, mark, mark_of

STARVED_S = 0.25
"""For how long a connection acknowledges nothing before its old class counts as not served.

Where a queue that is served takes longer, it sends a window again; to wait longer would keep it in the wrong class elsewhere.
"""
MOST_S = 3.0
"""For how long a connection drains at most: one that is served at a trickle is to have its new class."""

_SO_SNDBUFFORCE = 32
_SO_BUF_LOCK = 72  # since Linux 5.14
_SNDBUF_LOCK = 1  # whether the size was set, and the kernel adapts it no longer
_SMALL_BYTES = 4614  # a little more than the least that the kernel takes, so that it can be told from what a program asked for
_DEFAULT_BYTES = 87040  # what a connection has once it is established; the kernel adapts it from there


@dataclass(frozen=True)
class _Buffer:
    """A send buffer. size: in bytes, as the kernel counts them, twice what is asked for. lock: as of SO_BUF_LOCK."""

    size: int
    lock: int

    @classmethod
    def of(cls, sock: socket.socket) -> "_Buffer":
        """Return a socket's."""
        size = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        return cls(size, sock.getsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK) & _SNDBUF_LOCK)

    def give(self, sock: socket.socket) -> None:
        """Make it a socket's, of any size: a program may not ask for what the kernel has adapted it to."""
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, self.size // 2)
        others = sock.getsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK) & ~_SNDBUF_LOCK
        sock.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, others | self.lock)


_SMALL = _Buffer(_SMALL_BYTES, _SNDBUF_LOCK)


def begin(sock: socket.socket, wanted: Mark, now_s: float) -> "Drain | None":
    """Return a borrowed socket on its way to another mark; None if it has that, or can only be marked at once.

    Before Linux 5.14, and to an agent in a user namespace, the kernel does not give a send buffer back once its size was set.
    """
    given = mark_of(sock)
    if given == wanted or send_progress(sock) is None:
        return None
    try:
        before = _Buffer.of(sock)
        before.give(sock)  # what cannot be restored is not changed
        _SMALL.give(sock)
    except OSError:
        return None
    return Drain(sock, given, wanted, before, now_s)


class Drain:
    """A connection on its way to a mark. It keeps the borrowed socket open until `close`.

    given: the mark before. wanted: may be replaced while `sent_before` is None. sent_before: payload bytes that it had sent
    when it was read last before it was marked.
    """

    def __init__(self, sock: socket.socket, given: Mark, wanted: Mark, before: _Buffer, now_s: float) -> None:
        self.given = given
        self.wanted = wanted
        self.sent_before: int | None = None
        self._sock = sock
        self._before = before
        found = self._progress()
        self._acked, self._until = found.acked, found.written
        self._began_s = self._acked_s = now_s

    def step(self, now_s: float) -> bool:
        """Mark the connection once that is due; return whether nothing is left to wait for. Raises like `mark`."""
        found = self._progress()
        if found.acked != self._acked:
            self._acked, self._acked_s = found.acked, now_s
        is_patient = now_s - self._acked_s < STARVED_S and now_s - self._began_s < MOST_S
        if self.sent_before is not None:
            return found.is_idle or found.acked >= self._until or not is_patient
        if found.is_idle or (found.acked >= self._until and found.sent == found.written):
            # not before all of a piece is sent, or its rest would overtake what was sent of it
            after = self._mark(found)
            return found.is_idle and after.sent == found.sent  # else the program has sent more, perhaps with the old mark
        if not is_patient:
            self._mark(found)
        return not is_patient

    def close(self) -> None:
        """Restore the send buffer, if the program has not set it since, and let go of the socket."""
        with self._sock:
            if _Buffer.of(self._sock) == _SMALL:
                self._before.give(self._sock)

    def _mark(self, found: SendProgress) -> SendProgress:
        """Mark the connection, of which `found` was read before, and return what is found then."""
        mark(self._sock, self.wanted)
        self.sent_before = found.sent
        after = self._progress()
        self._until = after.sent
        return after

    def _progress(self) -> SendProgress:
        found = send_progress(self._sock)
        assert found is not None, "the kernel has counted it before"
        return found


def repair(sock: socket.socket) -> None:
    """Restore the send buffer of a connection that was on its way when its agent was killed; leave any other's alone.

    Raises `OSError` where no agent can have limited it.
    """
    if _Buffer.of(sock) == _SMALL:
        _Buffer(_DEFAULT_BYTES, 0).give(sock)
