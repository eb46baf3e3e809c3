"""Apply an assignment to this host: HTB trees and rules for acknowledgements on the ports, marks on the workers' sockets.

Everything is read back.

All of it blocks and belongs to one thread; `hostagent.agent` communicates with the controller beside it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from beamer.errors import BeamerError, InputError, PlatformError
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.protocol import ClassCounter, Connections, PortCounters, WorkerBytes, WorkerId
from hostagent.desired import DesiredState
from hostagent.expiry.guard import remove_queues
from hostagent.expiry.state import StateDirectory
from hostagent.marks.acknowledgements import Acknowledgements, table_name
from hostagent.marks.holding import HoldRule
from hostagent.marks.sockets import SocketTable
from hostagent.misfits import InterfaceMisfits
from hostagent.queues.class_counts import ClassCount
from hostagent.queues.htb import Queues
from hostagent.queues.kernel_changes import Changed, KernelChanges
from hostagent.queues.tree import Tree

# Reading a whole tree costs several times what its counters cost, so each port's tree is read once in so many reports. It runs
# another program, for which a connection on its way to a mark would stay held. It waits until none is, at most as long again.
WHOLE_TREE_EVERY = 20
_MAX_NAMED = 5  # An error names at most so many interfaces: enough to see what they have in common.
_ABSENT = 0  # No interface has this index.
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


@dataclass(frozen=True)
class _Installed:
    """A tree that was read back. index: of the interface that had it; one that is made anew under the name has another.

    With the index of no interface it is wanted, and installed when the interface comes. codepoints: that its rules for
    acknowledgements go by. ipv6: whether there are such for IPv6.
    """

    index: int
    tree: Tree
    codepoints: Codepoints
    ipv6: bool


class Enforcer:
    """The kernel objects of one agent, kept as its assignment says."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        with ExitStack() as opened:
            self._queues = Queues()
            opened.callback(self._queues.close)
            self._kernel = KernelChanges()
            opened.callback(self._kernel.close)
            self._changed_since = Changed()  # What the kernel has said, until every port was looked at.
            self._hold_rule = HoldRule()
            self._sockets = SocketTable(self._hold_rule)
            opened.callback(self._sockets.close)
            self._opened = opened.pop_all()
        self._report = Connections(connections=())
        self._acknowledgements = Acknowledgements()
        self._marking: frozenset[str] = frozenset()  # The interfaces whose queues are picked by mark.
        self._trees: dict[str, _Installed] = {}
        self._classes: Mapping[str, Mapping[int | None, tuple[int, ...]]] = {}
        self._since_whole: dict[str, int] = {}  # The reports since the whole tree of an interface was read.
        self._codepoints = LOCAL
        self._ipv6 = False
        self._misfits = InterfaceMisfits(self._queues.mtu)
        self._mended: Counter[str] = Counter()
        self._cleared = False  # It is set once marks that another agent has left are removed.

    def close(self) -> None:
        """Release the kernel's sockets; queues and marks stay."""
        self._opened.close()

    def apply(self, wanted: DesiredState) -> int:
        """Make queues and marks what is wanted, read both back, and return how many kernel objects changed.

        A mark that waits for its connection to drain counts as well, and is read back when `drain` sets it.

        Raises `InputError` before the first change for an interface that never was this agent's and cannot be. What goes wrong
        with some interfaces keeps nothing else from being applied, and is raised at the end, as a `PlatformError` that names
        them. Calling it again completes the work. A tree that was read back before is not read again here, unless its interface
        has been replaced: `counters` watches it.
        """
        assignment = wanted.assignment
        self._marking = frozenset(port.interface for port in assignment.ports if port.classify == "mark")
        self._codepoints, self._ipv6 = assignment.codepoints, wanted.ipv6
        self._hold_rule.cover(ipv6=wanted.ipv6)
        self._misfits.assign(assignment.ports, assignment.addresses)
        trees = {name: tree for name, tree in wanted.trees.items() if name not in self._misfits.members}
        with self._state.changing():
            changes, failed = self._apply_trees(trees)
        self._classes = wanted.classes
        changes += self._sockets.assign(
            assignment.workers, assignment.addresses, assignment.connections, wanted.marks, assignment.own_addresses
        )
        if not self._cleared and self._marking:
            self._sockets.unmark_leftovers()
            self._cleared = True
        if failed := {**self._misfits.found, **self._lost(), **failed}:
            raise _incomplete(failed)
        return changes

    def _apply_trees(self, wanted: Mapping[str, Tree]) -> tuple[int, dict[str, str]]:
        """Return how many kernel objects changed, and by interface what failed."""
        owned = self._state.owned()
        changed, failed = self._changed(wanted, owned)
        dropped = owned - wanted.keys()
        if not wanted.keys() <= owned:
            self._state.own(owned | wanted.keys())
        changes = 0
        for name in sorted(dropped):
            self._trees.pop(name, None)
            with _collecting(failed, name):
                changes += self._remove(name)
        for name, index in changed.items():
            self._trees.pop(name, None)
            with _collecting(failed, name):
                changes += self._reconcile(name, wanted[name])
                self._trees[name] = _Installed(index, wanted[name], self._codepoints, self._ipv6)
        if dropped:
            self._state.own(wanted.keys() | (dropped & failed.keys()))
            with _collecting(failed, "nftables"):
                self._hold_rule.remove()
        return changes, failed

    def _changed(self, wanted: Mapping[str, Tree], owned: Set[str]) -> tuple[dict[str, int], dict[str, str]]:
        """Return the indices of the interfaces whose trees are to be read or changed, and why others cannot be; change nothing.

        Raises `InputError` for one that cannot be and was not this agent's before.
        """
        changed: dict[str, int] = {}
        failed: dict[str, str] = {}
        for name, tree in wanted.items():
            try:
                index = self._queues.index(name)
                if self._trees.get(name) == _Installed(index, tree, self._codepoints, self._ipv6):
                    continue
                if self._queues.observe(name) is not None and name not in owned:
                    raise InputError(f"ports[{name}]", "htb 1:", "an interface whose queues no other program manages")
            except InputError as error:
                if name not in owned:
                    raise
                self._trees[name] = _Installed(_ABSENT, tree, self._codepoints, self._ipv6)
                failed[name] = str(error)
            else:
                changed[name] = index
        return changed, failed

    def _lost(self) -> dict[str, str]:
        """Return the interfaces that went away, or were replaced, since their trees were read back."""
        lost: dict[str, str] = {}
        for name, installed in self._trees.items():
            with suppress(InputError):
                if self._queues.index(name) == installed.index:
                    continue
            lost[name] = f"{name} went away while its queues were being made"
        return lost

    def _reconcile(self, interface: str, tree: Tree) -> int:
        self._misfits.check_size(interface)
        changes = self._queues.reconcile(interface, tree)
        if interface in self._marking:
            changes += self._acknowledgements.reconcile(interface, self._codepoints, ipv6=self._ipv6)
        return changes

    def _remove(self, interface: str) -> int:
        changes = 0
        with suppress(InputError):  # The interface may be gone, or managed by another program by now.
            changes = self._queues.reconcile(interface, None)
        self._acknowledgements.remove(interface)
        return changes

    def poll(self) -> PollResult:
        """Find connections that were opened or closed, and mark those that may be."""
        failure = None
        try:
            self._sockets.poll()
        except (BeamerError, OSError) as error:  # Connections that were found before are reported to the network all the same.
            failure = error
        return self.found(failure)

    def found(self, failure: Exception | None = None) -> PollResult:
        """Return what the last poll has found, that of `apply` included. failure: what kept the sockets from being listed."""
        sockets = self._sockets
        connections, unmatched_bytes = sockets.connections, sockets.unmatched_bytes
        known = self._report
        # Checking the report again would take longer.
        if (known.connections, known.unmatched_bytes) != (connections, unmatched_bytes):
            self._report = Connections(connections=connections, unmatched_bytes=unmatched_bytes)
        return PollResult(self._report, sockets.complete, sockets.gone, sockets.refused, failure)

    @property
    def draining(self) -> bool:
        """Whether connections are on their way to a mark, which `drain` has to go on with."""
        return self._sockets.draining

    def drain(self) -> bool:
        """Go on with the connections that are on their way to a mark; return whether any still are."""
        self._sockets.drain()
        return self.draining

    def verify(self) -> int:
        """Read every connection's mark and count, restore the marks that another program has changed, return how many."""
        return self._sockets.verify()

    def worker_bytes(self) -> tuple[WorkerBytes, ...]:
        """Return what each worker's connections have sent, as of the last `verify`."""
        return self._sockets.worker_bytes

    def counters(self) -> tuple[PortCounters, ...]:
        """Return every port's counters, and repair what another program has changed of its tree, see `mended`.

        What the kernel says has changed is read at once, and everything once in a while. A port whose queues another program
        has replaced by its own has no counters: the next `apply` says so, until it is given back.
        """
        changed = self._changed_since = self._changed_since | self._kernel.take()
        whole_after = 2 * WHOLE_TREE_EVERY if self._sockets.draining else WHOLE_TREE_EVERY
        before = self._since_whole
        self._since_whole = {name: before.get(name, place % WHOLE_TREE_EVERY) + 1 for place, name in enumerate(self._classes)}
        ports, is_composition_read = [], False
        for name, classes in self._classes.items():
            with suppress(InputError):  # an interface that is gone has no counters
                index = self._queues.index(name)
                if changed.everything or index in changed.links:
                    self._misfits.check_size(name)
                whole = self._since_whole[name] >= whole_after
                if whole and name not in self._trees:
                    self._since_whole[name] = 0
                concerns_hosts = name in self._marking and (whole or changed.everything or index in changed.links)
                if concerns_hosts and not is_composition_read:
                    self._misfits.check_composition()  # of all interfaces
                    is_composition_read = True
                notified = changed.everything or index in changed.queues or table_name(name) in changed.tables
                counts = self._watched_counts(name, notified or whole)
                ports.append(
                    PortCounters(interface=name, classes=tuple(_counter(k, ids, counts) for k, ids in classes.items()))
                )
        self._changed_since = Changed()
        return tuple(ports)

    def _watched_counts(self, interface: str, whole: bool) -> dict[int, ClassCount]:
        counts = self._queues.counts(interface)
        installed = self._trees.get(interface)
        if installed is not None and (whole or counts.keys() != installed.tree.classes.keys()):
            self._since_whole[interface] = 0
            with self._state.changing():
                if interface not in (owned := self._state.owned()):
                    self._state.own(owned | {interface})
                index = self._queues.index(interface)
                try:
                    changes = self._reconcile(interface, installed.tree)
                except InputError:
                    self._trees[interface] = replace(installed, index=_ABSENT)
                    raise
                self._trees[interface] = replace(installed, index=index)
            if changes:
                self._mended[interface] += changes
                counts = self._queues.counts(interface)
        return counts

    @property
    def misfits(self) -> Mapping[str, str]:
        """Why interfaces do not carry the network's packets as they should, by name; `apply` raises it."""
        return self._misfits.found

    def mended(self) -> Mapping[str, int]:
        """Return how many objects of each interface's tree have been mended since this was asked last."""
        found, self._mended = self._mended, Counter()
        return found

    def expire(self) -> None:
        """Remove every tree and mark: the assignment has expired."""
        self._trees.clear()
        self._classes = {}
        try:
            self._sockets.release()
        finally:
            with self._state.changing():
                remove_queues(self._state)
            self._hold_rule.remove()  # The rule is installed anew when it is needed.


@contextmanager
def _collecting(failed: dict[str, str], interface: str) -> Iterator[None]:
    """Note what fails with an interface, so that the others are served all the same."""
    try:
        yield
    except (BeamerError, OSError) as error:
        failed[interface] = str(error)


def _incomplete(failed: Mapping[str, str]) -> PlatformError:
    named = [reason if name in reason else f"{name}: {reason}" for name, reason in sorted(failed.items())]
    more = f"; and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return PlatformError("; ".join(named[:_MAX_NAMED]) + more, "everything else was applied, and this is tried again")


def _counter(klass: int | None, ids: tuple[int, ...], counts: dict[int, ClassCount]) -> ClassCounter:
    found = [counts.get(id_, _NOTHING) for id_ in ids]
    return ClassCounter(
        klass=klass,
        sent_bytes=sum(c.sent_bytes for c in found),
        sent_packets=sum(c.sent_packets for c in found),
        dropped_packets=sum(c.dropped_packets for c in found),
        backlog_bytes=sum(c.backlog_bytes for c in found),
    )
