"""Keeps forks apart from the client's own threads, so that a child inherits no lock that one of them held.

A forked child has the forking thread alone; a lock that another thread held at that moment stays locked in it for ever: an
import's, that of standard error's buffer, one inside the C library's resolver. So the client's threads run under a `Gate` that
a fork passes, too, and leave it wherever they wait: for the network, or for something to do. A fork hence waits for well below
a millisecond; a gate's patience bounds the wait where something else, such as a log handler, keeps a thread inside for longer.

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


class Gate:
    """A lock that threads hold while they are inside, and every fork of this process while it takes place.

    patience_s: how long a fork waits for a thread to leave. interrupted: whether this process was forked, or one that it
    descends from, while a thread had not left in time. A gate lasts as long as the process.
    """

    def __init__(self, patience_s: float) -> None:
        self.interrupted = False
        self._patience_s = patience_s
        self._reset()
        _gates.append(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None  # the thread that is inside
        self._forker: int | None = None  # the thread that holds the lock for a fork

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
        if self._holder != threading.get_ident():
            yield
            return
        self._leave()
        try:
            yield
        finally:
            self._enter()

    def _enter(self) -> None:
        self._lock.acquire()
        self._holder = threading.get_ident()

    def _leave(self) -> None:
        # Not where the thread itself has forked: the child's lock is a new one, which it does not hold.
        if self._holder == threading.get_ident():
            self._holder = None
            self._lock.release()

    def before_fork(self) -> None:
        """Wait until no thread is inside, for as long as the patience lasts."""
        own = self._holder == threading.get_ident()  # such as a log handler that forks
        if not own and self._lock.acquire(timeout=self._patience_s):
            self._forker = threading.get_ident()

    def after_in_parent(self) -> None:
        """Let the threads go on."""
        if self._forker == threading.get_ident():
            self._forker = None
            self._lock.release()

    def after_in_child(self) -> None:
        """Begin anew: the threads that might be inside are not in this process."""
        own = threading.get_ident() in (self._forker, self._holder)
        self.interrupted = self.interrupted or not own
        self._reset()


def _before_fork() -> None:
    for gate in _gates:
        gate.before_fork()


def _after_in_parent() -> None:
    for gate in _gates:
        gate.after_in_parent()


def _after_in_child() -> None:
    for gate in _gates:
        gate.after_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

RUNNING = Gate(patience_s=0.1)  # a pause that a training loop which starts processes does not notice
"""Inside are the client's threads while they run."""
