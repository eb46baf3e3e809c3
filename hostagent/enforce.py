"""Apply an assignment to this host: HTB trees on the ports, marks on the workers' sockets, everything read back.

All of it blocks and belongs to one thread; `hostagent.agent` communicates with the controller beside it.
"""

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from beamer.errors import BeamerError, InputError
from beamer.network.protocol import ClassCounter, Connections, PortCounters, WorkerBytes, WorkerId
from hostagent.desired import DesiredState
from hostagent.guard import remove_queues
from hostagent.htb import ClassCount, Queues
from hostagent.sockets import SocketTable
from hostagent.state import StateDirectory
from hostagent.tree import Tree

# Reading a whole tree costs several times what its counters cost: each port's is read once in so many reports.
WHOLE_TREE_EVERY = 20
_NOTHING = ClassCount(0, 0, 0, 0)


@dataclass(frozen=True)
class PollResult:
    """What a poll of the sockets found.

    complete: whether every worker that may have a connection has one. error: what kept the sockets from being listed. gone,
    refused: as in `Workers`.
    """

    report: Connections
    complete: bool
    gone: tuple[WorkerId, ...] = ()
    refused: tuple[tuple[WorkerId, str], ...] = ()
    error: Exception | None = None


class Enforcer:
    """The kernel objects of one agent, kept as its assignment says."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        with ExitStack() as opened:
            self._queues = Queues()
            opened.callback(self._queues.close)
            self._sockets = SocketTable()
            opened.callback(self._sockets.close)
            self._opened = opened.pop_all()
        self._trees: dict[str, Tree] = {}
        self._classes: Mapping[str, Mapping[int | None, tuple[int, ...]]] = {}
        self._readings = 0
        self._cleared = False  # of marks that another agent has left

    def close(self) -> None:
        """Release the kernel's sockets; queues and marks stay."""
        self._opened.close()

    def apply(self, wanted: DesiredState) -> int:
        """Make queues and marks what is wanted, read both back, and return how many kernel objects changed.

        Raises `InputError` before the first change, or `PlatformError`; in either case, calling it again completes the work.
        A tree that was read back before is not read again here: `counters` watches it.
        """
        with self._state.changing():
            changes = self._apply_trees(wanted.trees)
        self._classes = wanted.classes
        assignment = wanted.assignment
        changes += self._sockets.assign(assignment.workers, assignment.addresses, assignment.connections, wanted.marks)
        if not self._cleared and any(port.classify == "mark" for port in assignment.ports):
            self._sockets.unmark_leftovers()
            self._cleared = True
        return changes

    def _apply_trees(self, wanted: Mapping[str, Tree]) -> int:
        owned = self._state.owned()
        changed = [name for name in wanted if self._trees.get(name) != wanted[name]]
        for name in changed:
            if self._queues.observe(name) is not None and name not in owned:
                raise InputError(f"ports[{name}]", "htb 1:", "an interface whose queues no other program manages")
        dropped = owned - wanted.keys()
        self._state.own(owned | wanted.keys())
        changes = 0
        for name in sorted(dropped):
            self._trees.pop(name, None)
            changes += self._remove(name)
        for name in changed:
            self._trees.pop(name, None)
            changes += self._queues.reconcile(name, wanted[name])
            self._trees[name] = wanted[name]
        if dropped:
            self._state.own(wanted)
        return changes

    def _remove(self, interface: str) -> int:
        try:
            return self._queues.reconcile(interface, None)
        except InputError:  # gone, or managed by another program by now
            return 0

    def poll(self) -> PollResult:
        """Find connections that were opened or closed, and mark those that may be."""
        failure = None
        try:
            self._sockets.poll()
        except (BeamerError, OSError) as error:  # every connection found before is reported to the network all the same
            failure = error
        sockets = self._sockets
        report = Connections(connections=sockets.connections, unmatched_bytes=sockets.unmatched_bytes)
        return PollResult(report, sockets.complete, sockets.gone, sockets.refused, failure)

    def verify(self) -> int:
        """Read every connection's mark and count, restore the marks that another program has changed, return how many."""
        return self._sockets.verify()

    def worker_bytes(self) -> tuple[WorkerBytes, ...]:
        """Return what each worker's connections have sent, as of the last `verify`."""
        return self._sockets.worker_bytes

    def counters(self) -> tuple[PortCounters, ...]:
        """Return every port's counters, and repair what another program has changed of its tree.

        A missing class is noticed at once, anything else when the whole tree is read.
        """
        self._readings += 1
        ports = []
        for place, (name, classes) in enumerate(self._classes.items()):
            with suppress(InputError):  # an interface that is gone has no counters
                counts = self._watched_counts(name, whole=(self._readings + place) % WHOLE_TREE_EVERY == 0)
                ports.append(
                    PortCounters(interface=name, classes=tuple(_counter(k, ids, counts) for k, ids in classes.items()))
                )
        return tuple(ports)

    def _watched_counts(self, interface: str, whole: bool) -> dict[int, ClassCount]:
        counts = self._queues.counts(interface)
        tree = self._trees.get(interface)
        if tree is not None and (whole or counts.keys() != tree.classes.keys()):
            with self._state.changing():
                self._state.own(self._state.owned() | {interface})
                changes = self._queues.reconcile(interface, tree)
            if changes:
                counts = self._queues.counts(interface)
        return counts

    def expire(self) -> None:
        """Remove every tree and mark: the assignment has expired."""
        self._trees.clear()
        self._classes = {}
        try:
            self._sockets.release()
        finally:
            with self._state.changing():
                remove_queues(self._state)


def _counter(klass: int | None, ids: tuple[int, ...], counts: dict[int, ClassCount]) -> ClassCounter:
    found = [counts.get(id_, _NOTHING) for id_ in ids]
    return ClassCounter(
        klass=klass,
        sent_bytes=sum(c.sent_bytes for c in found),
        sent_packets=sum(c.sent_packets for c in found),
        dropped_packets=sum(c.dropped_packets for c in found),
        backlog_bytes=sum(c.backlog_bytes for c in found),
    )
