"""A connection gets another class without a packet overtaking those before it: what waits in its old class leaves first.

Packets of the new class would pass those that wait in the old one, in the host and in every switch: all of them if it is more
urgent, otherwise the few that every class may send at any time. TCP takes what is passed for lost and sends it again, and with
timestamps the receiver drops what comes behind its repetition (PAWS, RFC 7323, section 5).

So the connection is held (`hostagent.marks.holding`): what is under way goes on in its old class, and what follows waits in the
socket until all that is acknowledged. Then the mark is changed and the connection released. A class that is not served
acknowledges nothing: its connections are marked at once, and TCP sends again what waits. Nor can what was lost be sent again
while it is held: the connection is released for that, in its old class, and held once more. TCP may have forgotten by then that
a packet was lost, and then only its time-out sends it again, which is bounded more tightly meanwhile.
"""

import socket

from hostagent.marks.diagnostics import SendProgress, send_progress
from hostagent.marks.holding import hold, may_be_held, release
from hostagent.marks.socket_marks import Mark, mark, mark_of
from hostagent.marks.timeouts import DRAINING_RTO_MAX_S, bound, restore

STARVED_S = 0.25
"""For how long a connection acknowledges nothing before its old class counts as not served.

Where a queue that is served takes longer, it sends a window again; to wait longer would keep it in the wrong class elsewhere.
An end that receives data waits for twice as long: what acknowledges its own may travel with such data, behind others of their
class.
"""
MAX_DRAINING_S = 3.0
"""For how long a connection drains at most: one that is served at a trickle is to have its new class."""


def begin(sock: socket.socket, wanted: Mark, now_s: float) -> "Drain | None":
    """Return a borrowed socket on its way to another mark; None if it has that, or is to be marked at once.

    The latter holds for a socket that has a firewall mark of its program's, and for any before Linux 4.19 or without
    CAP_NET_ADMIN.
    """
    given = mark_of(sock)
    if given == wanted or send_progress(sock) is None or not may_be_held(sock):
        return None
    try:
        return Drain(sock, given, wanted, now_s)
    except OSError:
        release_drained(sock)
        return None


def release_drained(sock: socket.socket) -> None:
    """Have a borrowed socket go on that is on its way to a mark, or that another agent has left there."""
    release(sock)
    if mark_of(sock).is_managed:
        bound(sock)
    else:
        restore(sock)


class Drain:
    """A connection on its way to a mark. It keeps the borrowed socket open until `close`.

    given: the mark before. wanted: may be replaced until it is marked. sent_before: payload bytes that it had sent by then,
    None before that.
    """

    def __init__(self, sock: socket.socket, given: Mark, wanted: Mark, now_s: float) -> None:
        self.given = given
        self.wanted = wanted
        self.sent_before: int | None = None
        self._sock = sock
        self._began_s = self._acked_s = now_s
        bound(sock, DRAINING_RTO_MAX_S)
        hold(sock)
        self._is_held = True
        self._at_ack = self._progress()

    def step(self, now_s: float) -> bool:
        """Mark the connection if that is due; return whether it was. Raises like `mark`."""
        found = self._progress()
        if self._is_held and found.is_losing:
            release(self._sock)
            self._is_held = False
        elif not self._is_held and not found.is_losing:
            hold(self._sock)
            self._is_held = True
            found = self._progress()  # The progress now includes what was sent until the socket was held.
        if found.acked != self._at_ack.acked:
            self._acked_s, self._at_ack = now_s, found
        patience_s = STARVED_S if found.received == self._at_ack.received else 2 * STARVED_S
        is_patient = now_s - self._acked_s < patience_s and now_s - self._began_s < MAX_DRAINING_S
        if is_patient and not (self._is_held and found.is_idle):
            return False
        mark(self._sock, self.wanted)
        self.sent_before = found.sent
        return True

    def close(self) -> None:
        """Have the connection go on, and let go of the socket."""
        with self._sock:
            release_drained(self._sock)

    def _progress(self) -> SendProgress:
        found = send_progress(self._sock)
        assert found is not None, "the kernel has counted it before"
        return found
