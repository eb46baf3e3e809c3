"""Carry out an assignment on this host: trees on the ports, marks on the workers' sockets, everything read back.

All of it blocks and belongs to one thread; `hostagent.agent` speaks with the controller beside it.
"""

from contextlib import ExitStack, suppress
from dataclasses import dataclass

from beamer.errors import InputError
from beamer.plan import codepoint
from beamer.protocol import Assignment, ClassCounter, Connections, PortCounters
from hostagent.guard import remove_queues
from hostagent.htb import ClassCount, Queues
from hostagent.process import Mark
from hostagent.sockets import SocketTable
from hostagent.state import StateDirectory
from hostagent.tree import UNREGISTERED, Cap, Tree, cap_ids, caps_of, class_id, port_tree

_NOTHING = ClassCount(0, 0, 0, 0)


@dataclass(frozen=True)
class Sighting:
    """What a look at the sockets found. settled: whether every worker has a connection."""

    report: Connections
    settled: bool


class Enforcer:
    """The kernel objects of one agent, brought to its assignment."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        with ExitStack() as opened:
            self._queues = Queues()
            opened.callback(self._queues.close)
            self._sockets = SocketTable()
            opened.callback(self._sockets.close)
            self._opened = opened.pop_all()
        self._trees: dict[str, Tree] = {}
        self._classes: dict[str, dict[int | None, tuple[int, ...]]] = {}

    def close(self) -> None:
        """Release the kernel's sockets; queues and marks stay."""
        self._opened.close()

    def apply(self, assignment: Assignment) -> int:
        """Bring queues and marks to `assignment`, read both back, and return how many kernel objects changed.

        Raises `InputError` or `PlatformError`; anything wrong with the assignment is found before the first change.
        A tree that was read back before is not read again here: `counters` watches it.
        """
        caps = caps_of(assignment.workers)
        wanted = {
            port.interface: port_tree(port, assignment.queues, assignment.unregistered_share, caps) for port in assignment.ports
        }
        for worker in assignment.workers:
            if not 0 <= worker.klass < assignment.queues:
                raise InputError(f"workers[{worker.job}].klass", worker.klass, f"0 to {assignment.queues - 1}")
        ids = cap_ids(caps)
        with self._state.changing():
            changes = self._apply_trees(wanted)
        self._classes = {
            port.interface: _classes_by_queue(assignment.queues, caps if port.classify == "mark" else {})
            for port in assignment.ports
        }
        by_mark = any(port.classify == "mark" for port in assignment.ports)
        marks = (
            {w.job: Mark(ids.get(w.job, class_id(w.klass)), codepoint(w.klass)) for w in assignment.workers} if by_mark else {}
        )
        return changes + self._sockets.assign(assignment.workers, assignment.addresses, assignment.connections, marks)

    def _apply_trees(self, wanted: dict[str, Tree]) -> int:
        owned = self._state.owned()
        news = [name for name in wanted if self._trees.get(name) != wanted[name]]
        for name in news:
            if self._queues.observe(name) is not None and name not in owned:
                raise InputError(f"ports[{name}]", "htb 1:", "an interface whose queues nobody else manages")
        dropped = owned - wanted.keys()
        self._state.own(owned | wanted.keys())
        changes = 0
        for name in sorted(dropped):
            self._trees.pop(name, None)
            changes += self._remove(name)
        for name in news:
            self._trees.pop(name, None)
            changes += self._queues.reconcile(name, wanted[name])
            self._trees[name] = wanted[name]
        if dropped:
            self._state.own(wanted)
        return changes

    def _remove(self, interface: str) -> int:
        try:
            return self._queues.reconcile(interface, None)
        except InputError:  # gone, or somebody else's by now
            return 0

    def poll(self) -> Sighting:
        """Look for connections that came or went, and mark those that may be."""
        self._sockets.poll()
        report = Connections(connections=self._sockets.connections, unmatched_bytes=self._sockets.unmatched_bytes)
        return Sighting(report, self._sockets.settled)

    def counters(self) -> tuple[PortCounters, ...]:
        """Return every port's counters, and repair what somebody else has changed in the meantime."""
        self._sockets.verify()
        ports = []
        for name, classes in self._classes.items():
            with suppress(InputError):  # an interface that is gone has no counters
                counts = self._watched_counts(name)
                ports.append(
                    PortCounters(interface=name, classes=tuple(_counter(k, ids, counts) for k, ids in classes.items()))
                )
        return tuple(ports)

    def _watched_counts(self, interface: str) -> dict[int, ClassCount]:
        counts = self._queues.counts(interface)
        tree = self._trees.get(interface)
        if tree is not None and counts.keys() != tree.classes.keys():
            with self._state.changing():
                self._state.own(self._state.owned() | {interface})
                self._queues.reconcile(interface, tree)
            counts = self._queues.counts(interface)
        return counts

    def expire(self) -> None:
        """Remove every tree and mark: the assignment's time is up."""
        self._sockets.release()
        self._trees.clear()
        self._classes.clear()
        with self._state.changing():
            remove_queues(self._state)


def _classes_by_queue(queues: int, caps: dict[str, Cap]) -> dict[int | None, tuple[int, ...]]:
    """Return the HTB classes that make up each queue: a managed class and the capped jobs in its priority."""
    ids = cap_ids(caps)
    managed: dict[int | None, tuple[int, ...]] = {
        k: (class_id(k), *(ids[job] for job, cap in caps.items() if cap.klass == k)) for k in range(queues)
    }
    return managed | {None: (UNREGISTERED,)}


def _counter(klass: int | None, ids: tuple[int, ...], counts: dict[int, ClassCount]) -> ClassCounter:
    found = [counts.get(id_, _NOTHING) for id_ in ids]
    return ClassCounter(
        klass=klass,
        sent_bytes=sum(c.sent_bytes for c in found),
        sent_packets=sum(c.sent_packets for c in found),
        dropped_packets=sum(c.dropped_packets for c in found),
        backlog_bytes=sum(c.backlog_bytes for c in found),
    )
