"""Keeps forks apart from the client's own threads, so that a child inherits no lock that one of them held.

A forked child has the forking thread alone; a lock that another thread held at that moment stays locked in it for ever: an
import's, that of standard error's buffer, one inside the C library's resolver. So the client's threads run inside a `Gate` that
a fork waits for, and leave it wherever they wait themselves: for the network, or for something to do. A fork hence waits for
well below a millisecond; a gate's patience bounds that where something else, such as a log handler, keeps a thread inside.

    with gate.inside():  # the client's thread
        ...
        with gate.outside():
            sock.recv(4096)
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_gates: "list[Gate]" = []
_passed = threading.local()  # The thread that forks keeps the gates that it has passed, as another one may be made meanwhile.


class Gate:
    """What threads are inside of at times, and what a fork of this process waits to be empty.

    patience_s: how long a fork waits. interrupted: whether this process was forked, or one that it descends from, while a
    thread had not left in time. A gate lasts as long as the process.
    """

    def __init__(self, patience_s: float) -> None:
        self.interrupted = False
        self._patience_s = patience_s
        self._changed = threading.Condition(threading.Lock())
        self._inside: set[int] = set()  # thread identifiers
        _gates.append(self)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Keep forks away during the block."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let forks happen during the block, in a thread that is inside; elsewhere, do nothing."""
        if threading.get_ident() not in self._inside:
            yield
            return
        self._leave()
        try:
            yield
        finally:
            self._enter()

    def _enter(self) -> None:
        with self._changed:
            self._inside.add(threading.get_ident())

    def _leave(self) -> None:
        with self._changed:
            self._inside.discard(threading.get_ident())
            self._changed.notify_all()

    def _others(self) -> set[int]:
        """Return the threads that are inside, but for the one that asks: it may fork, as a log handler may do."""
        return self._inside - {threading.get_ident()}

    def before_fork(self) -> None:
        """Wait until no other thread is inside, for as long as the patience lasts, and let none enter."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._others(), self._patience_s)

    def after_in_parent(self) -> None:
        """Let threads enter."""
        self._changed.release()

    def after_in_child(self) -> None:
        """Begin anew: no other thread is in this process."""
        self.interrupted = self.interrupted or bool(self._others())
        self._inside &= {threading.get_ident()}
        self._changed = threading.Condition(threading.Lock())


def _before_fork() -> None:
    _passed.gates = tuple(_gates)
    for gate in _passed.gates:
        gate.before_fork()


def _after_in_parent() -> None:
    for gate in _passed.gates:
        gate.after_in_parent()


def _after_in_child() -> None:
    for gate in _gates:
        gate.after_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

RUNNING = Gate(patience_s=0.1)  # A training loop that starts processes does not notice a pause of this length.
"""Inside are the client's threads while they run."""
