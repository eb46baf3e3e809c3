"""Which TCP connection belongs to which job: found from outside, so that training code need not name a port or call anything.

A connection is a job's when a process of one of the job's registered workers holds its socket and both ends are data
addresses. Ends and marks come from the kernel's socket diagnostics; marks are set on a borrowed descriptor, once the
controller reports that the switches hold its rules: an edge switch without them would remove the mark. What no worker holds any
more is unmarked through whoever held it last.
"""

import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from beamer.errors import PlatformError
from beamer.network.connection import Connection
from beamer.network.protocol import LocalWorker, WorkerBytes, WorkerId
from hostagent.marks.diagnostics import Diagnostics, TcpSocket, bytes_sent
from hostagent.marks.draining import MAX_DRAINING_S, Drain, begin, release_drained
from hostagent.marks.holding import HOLD_MARK, HoldRule
from hostagent.marks.socket_marks import UNMARKED, Mark, borrow, is_tcp, mark, mark_of, socket_descriptors
from hostagent.workers.members import Member, Place, WorkerProcesses, place_of
from hostagent.workers.procfs import Procfs

MAX_DRAINING = 256  # At most so many connections are on their way to a mark, each with a descriptor; others are marked at once.


@dataclass
class _Held:
    """A socket in the processes that hold it, each with its descriptor there."""

    inode: int
    worker: LocalWorker
    holders: list[tuple[Member, int]]


@dataclass
class _Sent:
    """What a connection has sent, as last read. before_bytes: until its worker's account began."""

    before_bytes: int
    last_bytes: int


class SocketTable:
    """The connections of the registered workers, updated by `poll`. Belongs to the thread that made it; close it there.

    A socket is queried once: afterwards a poll that finds the same sockets costs no request to the kernel. hold_rule: by which
    this host refuses what is held. clock: in seconds.
    """

    def __init__(self, hold_rule: HoldRule, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._diagnostics = Diagnostics()
        self._hold_rule = hold_rule
        self._processes = WorkerProcesses()
        self._workers: tuple[LocalWorker, ...] = ()
        self._addresses: frozenset[str] = frozenset()
        self._own_host: Mapping[str, int] = {}  # Which of this agent's hosts has an address, of those that have several.
        self._known: frozenset[Connection] = frozenset()
        self._marks: Mapping[str, Mark] = {}
        self._given: dict[int, Mark | None] = {}  # None stands for a mark that was changed since and could not be restored.
        self._draining: dict[int, Drain] = {}
        self._held: dict[int, _Held] = {}
        self._matched: dict[int, Connection] = {}
        self._irrelevant: set[int] = set()
        self._unmatched: Counter[str] = Counter()
        self._unreachable: dict[Place, str] = {}
        self._failed: dict[int, str] = {}
        self._polled: frozenset[Place] = frozenset()  # the workers of the last poll
        self._sent: dict[int, _Sent] = {}
        self._closed_bytes: Counter[Place] = Counter()

    def close(self) -> None:
        """Release the diagnostics socket, and what is on its way to a mark."""
        for inode in tuple(self._draining):
            self._end_drain(inode)
        self._diagnostics.close()

    @property
    def draining(self) -> bool:
        """Whether connections are on their way to a mark, which `drain` has to go on with."""
        return bool(self._draining)

    def drain(self) -> None:
        """Mark what is on its way to a mark and may have it now."""
        for inode, drain in tuple(self._draining.items()):
            try:
                if not drain.step(self._clock()):
                    continue
            except (PlatformError, OSError) as error:
                self._end_drain(inode)
                self._failed[inode] = str(error)
            else:
                self._end_drain(inode)
                self._mark(inode)  # Another mark may be wanted by now.

    @property
    def connections(self) -> tuple[Connection, ...]:
        """All connections of registered workers, as of the last poll."""
        return tuple(self._matched.values())

    @property
    def unmatched_bytes(self) -> dict[str, int]:
        """Payload bytes that connections had sent when they were first marked, by job."""
        return dict(self._unmatched)

    @property
    def worker_bytes(self) -> tuple[WorkerBytes, ...]:
        """What each worker's connections have sent to other hosts since it was assigned, as of the last `verify`.

        Of a connection that was closed since it was last read, the last reading counts.
        """
        total = Counter(self._closed_bytes)
        for inode, sent in self._sent.items():
            total[place_of(self._matched[inode])] += self._between_hosts(inode, sent)
        return tuple(WorkerBytes(job=job, rank=rank, sent_bytes=count) for (job, rank), count in total.items())

    @property
    def gone(self) -> tuple[WorkerId, ...]:
        """The workers whose processes have ended, as of the last poll."""
        return tuple(WorkerId(job=job, rank=rank) for job, rank in self._processes.gone)

    @property
    def refused(self) -> tuple[tuple[WorkerId, str], ...]:
        """The workers of whom not every connection is marked, and why, as of the last poll."""
        return tuple((WorkerId(job=job, rank=rank), reason) for (job, rank), reason in self._reasons().items())

    @property
    def complete(self) -> bool:
        """Whether every worker that may have connections has one."""
        without = self._reasons().keys() | set(self._processes.gone)
        return {place_of(worker) for worker in self._workers} <= {place_of(c) for c in self._matched.values()} | without

    def assign(
        self,
        workers: Iterable[LocalWorker],
        addresses: Collection[str],
        known: Iterable[Connection],
        marks: Mapping[str, Mark],
        own_addresses: Iterable[Iterable[str]] = (),
    ) -> int:
        """Take over what is registered now and return how many sockets had another mark, or are on their way to one.

        addresses: of the data network. known: connections that may be marked. marks: the mark of each job's sockets; empty
        where queues are not picked by mark. own_addresses: as of `Assignment`. Raises like `poll`, which then tries again.
        """
        self._own_host = {address: i for i, of_host in enumerate(own_addresses) for address in of_host}
        if self._addresses != frozenset(addresses):
            self._irrelevant.clear()
        self._workers = tuple(workers)
        places = {place_of(worker) for worker in self._workers}
        if any(place_of(self._matched[inode]) not in places for inode in self._given.keys() | self._draining.keys()):
            self._held |= self._hold()  # This finds who holds, at this moment, the sockets that are to be unmarked.
        self._processes.assign(self._workers)
        jobs = {job for job, _ in places}
        self._addresses, self._known, self._marks = frozenset(addresses), frozenset(known), marks
        self._unmatched = Counter({job: count for job, count in self._unmatched.items() if job in jobs})
        marked = self.poll()
        self._closed_bytes = Counter({place: count for place, count in self._closed_bytes.items() if place in places})
        return marked

    def poll(self) -> int:
        """Find new connections, forget closed ones, mark those that may be; return how many had another mark, like `assign`.

        A socket that cannot be marked is tried again every time. Raises `PlatformError` where the kernel lists no sockets.
        """
        before, self._held = self._held, self._hold()
        changed = sum(self._release_drained(before[inode]) for inode in self._matched.keys() - self._held.keys())
        for inode, matched in list(self._matched.items()):
            if place_of(matched) != place_of(self._held[inode].worker):
                changed += self._hand_over(inode)
        self._irrelevant &= self._held.keys()
        self._failed = {inode: reason for inode, reason in self._failed.items() if inode in self._held}
        unknown = self._held.keys() - self._matched.keys() - self._irrelevant
        observed = self._diagnostics.tcp_sockets() if unknown else {}
        for inode in unknown:
            if inode in observed:
                self._match(self._held[inode], observed[inode])
            elif not self._may_connect(inode):
                self._irrelevant.add(inode)
        self._polled = frozenset(place_of(worker) for worker in self._workers)
        return changed + sum(
            self._mark(inode)
            for inode in self._matched
            if inode in self._draining or self._given.get(inode) != self._wanted(inode)
        )

    def verify(self) -> int:
        """Read every matched socket's mark and count; repair the marks that differ, and return how many did.

        Raises like `poll`.
        """
        self._processes.forget_cgroups()
        if not self._matched:
            return 0
        observed = self._diagnostics.tcp_sockets()
        repaired = 0
        for inode in self._matched.keys() & observed.keys():
            self._sent[inode].last_bytes = max(self._sent[inode].last_bytes, observed[inode].sent_bytes)
            if inode in self._draining or self._given.get(inode) is None:
                continue
            if observed[inode].mark != self._wanted(inode):
                self._given[inode] = None
                repaired += self._mark(inode)
        return repaired

    def unmark_leftovers(self) -> int:
        """Release what another agent has held here, unmark what it has marked, where no worker holds it; return how many marks.

        Its attempts have ended while no agent ran. Raises like `poll`.
        """
        listed = self._diagnostics.tcp_sockets().values()
        marked = {one.inode for one in listed if one.mark.is_managed}
        left = (marked | {one.inode for one in listed if one.firewall_mark == HOLD_MARK}) - self._held.keys()
        unmarked = 0
        for pid in Procfs().inodes() if left else ():
            with suppress(PlatformError, OSError):  # Another process with the socket may be reachable if this one is not.
                for inode, descriptor in socket_descriptors(pid).items():
                    if inode in left and (borrowed := borrow(pid, descriptor, inode)) is not None:
                        with borrowed:
                            release_drained(borrowed)
                            unmarked += inode in marked and mark(borrowed, UNMARKED)
        return unmarked

    def release(self) -> None:
        """Remove every mark and forget all workers."""
        self.assign((), (), (), {})

    def _hold(self) -> dict[int, _Held]:
        """Return every socket of a registered worker; one that two workers share counts as the lower process id's."""
        found: dict[int, _Held] = {}
        self._unreachable = {}
        for member in self._processes.members():
            try:
                descriptors = socket_descriptors(member.pid)
            except PlatformError as error:
                self._unreachable[place_of(member.worker)] = str(error)
                continue
            for inode, descriptor in descriptors.items():
                held = found.setdefault(inode, _Held(inode, member.worker, []))
                held.holders.append((member, descriptor))
        return found

    def _reasons(self) -> dict[Place, str]:
        failed = {place_of(self._held[inode].worker): reason for inode, reason in self._failed.items()}
        return failed | self._unreachable | self._processes.refused

    def _release_drained(self, held: _Held) -> int:
        """Unmark a socket that no worker holds any more, if it is still open where it was; return how many had a mark."""
        inode = held.inode
        self._end_drain(inode)
        self._close_account(inode)
        del self._matched[inode]
        return self._unmark(held)

    def _hand_over(self, inode: int) -> int:
        """Make a connection another worker's, unmarked as the network does not know it so; return how many had a mark."""
        held = self._held[inode]
        self._end_drain(inode)
        sent = self._close_account(inode)
        self._sent[inode] = _Sent(sent.last_bytes, sent.last_bytes)
        self._matched[inode] = replace(self._matched[inode], job=held.worker.job, rank=held.worker.rank)
        return self._unmark(held)

    def _close_account(self, inode: int) -> _Sent:
        sent = self._sent.pop(inode)
        self._closed_bytes[place_of(self._matched[inode])] += self._between_hosts(inode, sent)
        return sent

    def _between_hosts(self, inode: int, sent: _Sent) -> int:
        """Return what a matched socket has sent to another host since its worker was assigned."""
        found = self._matched[inode]
        own = self._own_host.get(found.local_ip)
        inside = found.is_local or (own is not None and own == self._own_host.get(found.remote_ip))
        return 0 if inside else sent.last_bytes - sent.before_bytes

    def _unmark(self, held: _Held) -> int:
        if held.inode not in self._given:
            return 0
        del self._given[held.inode]
        for member, descriptor in held.holders:
            try:
                borrowed = borrow(member.pid, descriptor, held.inode, member.start)
                if borrowed is not None:
                    with borrowed:
                        return int(mark(borrowed, UNMARKED))
            except (PlatformError, OSError):  # Another process may lend the socket; one that none lends cannot be changed.
                continue
        return 0

    def _match(self, held: _Held, observed: TcpSocket) -> None:
        """Match or discard a socket that was not known before."""
        local_ip, _, remote_ip, _ = observed.ends
        if local_ip in self._addresses and remote_ip in self._addresses:
            self._matched[held.inode] = Connection(held.worker.job, held.worker.rank, *observed.ends)
            opened_since = place_of(held.worker) in self._polled
            self._sent[held.inode] = _Sent(0 if opened_since else observed.sent_bytes, observed.sent_bytes)
            if observed.mark.is_managed:  # An agent before this one has marked the socket.
                self._given[held.inode] = observed.mark
            if observed.firewall_mark == HOLD_MARK:  # An agent that was killed while the socket drained has held it.
                with suppress(PlatformError, OSError):  # A socket that cannot be reached is reported when it is to be marked.
                    if (borrowed := self._borrow(held.inode)) is not None:
                        with borrowed:
                            release_drained(borrowed)
        else:
            self._irrelevant.add(held.inode)

    def _may_connect(self, inode: int) -> bool:
        """Return whether a socket that is not connected may still become so, and be marked then."""
        try:
            borrowed = self._borrow(inode)
        except PlatformError as error:
            self._failed[inode] = str(error)
            return False
        if borrowed is None:
            return True
        with borrowed:
            return is_tcp(borrowed)

    def _wanted(self, inode: int) -> Mark | None:
        """Return the mark that a matched socket should carry, None to leave it as it is."""
        connection = self._matched[inode]
        return self._marks.get(connection.job) if connection in self._known else self._given.get(inode)

    def _mark(self, inode: int) -> int:
        """Give a matched socket the mark that is wanted, or have it on its way there; return 1 if it had another."""
        wanted, drain = self._wanted(inode), self._draining.get(inode)
        if drain is not None:
            if wanted is not None and wanted != drain.given:
                changes = int(drain.wanted != wanted)
                drain.wanted = wanted
                return changes
            self._end_drain(inode)  # The change of mark was taken back.
        if wanted is None:
            return 0
        try:
            if (borrowed := self._borrow(inode)) is None:
                return 0
            with ExitStack() as closing:
                closing.enter_context(borrowed)
                may_wait = inode not in self._failed and len(self._draining) < MAX_DRAINING
                if may_wait and mark_of(borrowed) != wanted and self._hold_rule.ensure(self._clock(), MAX_DRAINING_S):
                    now_s = self._clock()  # The call of `ensure` may have taken some time.
                    drain = begin(borrowed, wanted, now_s)
                    if drain is not None:
                        self._draining[inode] = drain
                        closing.pop_all()
                        if drain.step(now_s):
                            self._end_drain(inode)
                        return 1
                sent = bytes_sent(borrowed)
                changed = mark(borrowed, wanted)
        except (PlatformError, OSError) as error:
            self._end_drain(inode)
            self._failed[inode] = str(error)
            return 0
        self._take_in(inode, wanted, sent if changed else 0)
        return int(changed)

    def _take_in(self, inode: int, given: Mark, sent_before: int) -> None:
        """Take in that a socket was marked, and what it had sent before."""
        if inode not in self._given and sent_before:
            self._unmatched[self._matched[inode].job] += sent_before
        self._given[inode] = given
        self._failed.pop(inode, None)

    def _end_drain(self, inode: int) -> None:
        drain = self._draining.pop(inode, None)
        if drain is not None:
            with suppress(OSError):
                drain.close()
            if drain.sent_before is not None:
                self._take_in(inode, drain.wanted, drain.sent_before)

    def _borrow(self, inode: int) -> socket.socket | None:
        member, descriptor = self._held[inode].holders[0]
        return borrow(member.pid, descriptor, inode, member.start)
