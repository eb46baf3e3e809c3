"""Which TCP connection belongs to which job: found from outside, so that training code need not name a port or call anything.

A connection is a job's when a process below one of the job's registered workers holds its socket and both ends are data
addresses. Ends and marks come from the kernel's socket diagnostics; marks are set on a borrowed descriptor, once the
controller reports that the switches hold its rules: an edge switch without them would remove the mark.
"""

import socket
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.diag import SS_CLOSE_WAIT, SS_ESTABLISHED, SS_FIN_WAIT1, SS_FIN_WAIT2, SS_LISTEN, DiagSocket
from pyroute2.netlink.exceptions import NetlinkError

from beamer.errors import PlatformError
from beamer.network.connection import Connection, FourTuple
from beamer.network.protocol import LocalWorker
from hostagent.process import UNMARKED, Mark, ProcessTrees, borrow, bytes_sent, is_tcp, mark, socket_descriptors

_STATES = sum(1 << state for state in (SS_ESTABLISHED, SS_FIN_WAIT1, SS_FIN_WAIT2, SS_CLOSE_WAIT, SS_LISTEN))
_EXTENSIONS = 1 << 5 | 1 << 4  # INET_DIAG_TCLASS, for which the kernel adds INET_DIAG_CLASS_ID, the priority; INET_DIAG_TOS
_MAPPED = "::ffff:"  # an IPv4 end of an IPv6 socket


@dataclass(frozen=True)
class _Held:
    """A socket in the process that holds it."""

    inode: int
    pid: int
    descriptor: int
    worker: LocalWorker


class SocketTable:
    """The connections of the registered workers, updated by `poll`. Belongs to the thread that made it; close it there.

    A socket is queried once: afterwards a poll that finds the same sockets costs no request to the kernel.
    """

    def __init__(self) -> None:
        self._diagnostics = DiagSocket()
        self._diagnostics.bind()
        self._trees = ProcessTrees()
        self._workers: dict[int, LocalWorker] = {}
        self._addresses: frozenset[str] = frozenset()
        self._known: frozenset[Connection] = frozenset()
        self._marks: Mapping[str, Mark] = {}
        self._given: dict[int, Mark] = {}
        self._held: dict[int, _Held] = {}
        self._matched: dict[int, Connection] = {}
        self._irrelevant: set[int] = set()
        self._unmatched: Counter[str] = Counter()

    def close(self) -> None:
        """Release the diagnostics socket."""
        self._diagnostics.close()

    @property
    def connections(self) -> tuple[Connection, ...]:
        """All connections of registered workers, as of the last poll."""
        return tuple(self._matched.values())

    @property
    def unmatched_bytes(self) -> dict[str, int]:
        """Payload bytes that connections had sent when they were first marked, by job."""
        return dict(self._unmatched)

    @property
    def complete(self) -> bool:
        """Whether every registered worker has a connection."""
        return {_place(worker) for worker in self._workers.values()} <= {_place(c) for c in self.connections}

    def assign(
        self,
        workers: Iterable[LocalWorker],
        addresses: Collection[str],
        known: Iterable[Connection],
        marks: Mapping[str, Mark],
    ) -> int:
        """Take over what is registered now and return how many sockets had their mark changed, each read back.

        addresses: of the data network. known: connections that may be marked. marks: the mark of each job's sockets; empty
        where queues are not picked by mark. Raises like `poll`, which then tries again.
        """
        if self._addresses != frozenset(addresses):
            self._irrelevant.clear()
        self._workers = {worker.pid: worker for worker in workers}
        places = {_place(worker) for worker in self._workers.values()}
        jobs = {job for job, _ in places}
        self._addresses, self._known, self._marks = frozenset(addresses), frozenset(known), marks
        self._matched = {inode: found for inode, found in self._matched.items() if _place(found) in places}
        self._unmatched = Counter({job: count for job, count in self._unmatched.items() if job in jobs})
        return self.poll()

    def poll(self) -> int:
        """Find new connections, forget closed ones, mark those that may be; return how many sockets were marked.

        Raises `PlatformError` or `OSError` for the first socket that could not be marked, after the others have been.
        """
        self._held = self._hold()
        for inode in self._matched.keys() - self._held.keys():
            del self._matched[inode]
        self._irrelevant &= self._held.keys()
        self._given = {inode: given for inode, given in self._given.items() if inode in self._held}
        unknown = self._held.keys() - self._matched.keys() - self._irrelevant
        observed = self._diagnose() if unknown else {}
        for inode in unknown:
            if inode in observed:
                self._match(self._held[inode], _ends(observed[inode]))
            elif not _may_connect(self._held[inode]):
                self._irrelevant.add(inode)
        return self._mark_all(inode for inode in self._matched if self._given.get(inode) != self._wanted(inode))

    def verify(self) -> int:
        """Read every matched socket's mark back, repair those that differ, and return how many did. Raises like `poll`."""
        if not self._given:
            return 0
        observed = self._diagnose()
        return self._mark_all(
            inode for inode in self._matched if inode in observed and _observed_mark(observed[inode]) != self._wanted(inode)
        )

    def release(self) -> None:
        """Remove every mark and forget all workers."""
        self._marks = dict.fromkeys(self._marks, UNMARKED)
        try:
            self.poll()
        finally:
            self.assign((), (), (), {})

    def _hold(self) -> dict[int, _Held]:
        """Return every socket below a registered worker; one that two workers share counts as the lower process id's."""
        found: dict[int, _Held] = {}
        for pid, root in sorted(self._trees.members(self._workers.keys()).items()):
            for inode, descriptor in socket_descriptors(pid).items():
                found.setdefault(inode, _Held(inode, pid, descriptor, self._workers[root]))
        return found

    def _match(self, held: _Held, ends: FourTuple) -> None:
        """Match or discard a socket that was not known before."""
        local_ip, _, remote_ip, _ = ends
        if local_ip in self._addresses and remote_ip in self._addresses:
            self._matched[held.inode] = Connection(held.worker.job, held.worker.rank, *ends)
        else:
            self._irrelevant.add(held.inode)

    def _wanted(self, inode: int) -> Mark | None:
        """Return the mark that a matched socket should carry, None to leave it as it is."""
        connection = self._matched[inode]
        return self._marks.get(connection.job) if connection in self._known else self._given.get(inode)

    def _mark_all(self, inodes: Iterable[int]) -> int:
        """Mark sockets and return how many had another mark; after one that fails the others are still marked."""
        marked, failures = 0, []
        for inode in inodes:
            try:
                marked += self._mark(inode)
            except (PlatformError, OSError) as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return marked

    def _mark(self, inode: int) -> int:
        """Give a matched socket the mark that is wanted; return 1 if it had another."""
        wanted = self._wanted(inode)
        if wanted is None or (borrowed := _borrow(self._held[inode])) is None:
            return 0
        with borrowed:
            changed = mark(borrowed, wanted)
            if changed and inode not in self._given:
                self._unmatched[self._matched[inode].job] += bytes_sent(borrowed)
        self._given[inode] = wanted
        return int(changed)

    def _diagnose(self) -> dict[int, Any]:
        """Return the kernel's diagnostics of this network namespace's connected and listening TCP sockets, by inode."""
        found: dict[int, Any] = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                messages = self._diagnostics.get_sock_stats(family=family, states=_STATES, extensions=_EXTENSIONS)
            except NetlinkError as error:
                raise PlatformError(f"the kernel lists no TCP sockets ({error})", "load inet_diag and tcp_diag") from error
            for message in messages:
                found[message["idiag_inode"]] = message
        return found


def _place(what: LocalWorker | Connection) -> tuple[str, int]:
    return what.job, what.rank


def _borrow(held: _Held) -> socket.socket | None:
    return borrow(held.pid, held.descriptor, held.inode)


def _may_connect(held: _Held) -> bool:
    """Return whether a socket that is not connected may still become so."""
    if (borrowed := _borrow(held)) is None:
        return True
    with borrowed:
        return is_tcp(borrowed)


def _ends(message: Any) -> FourTuple:
    """Return a TCP socket's two ends, the local one first."""
    local_ip, remote_ip = message["idiag_src"].removeprefix(_MAPPED), message["idiag_dst"].removeprefix(_MAPPED)
    return local_ip, message["idiag_sport"], remote_ip, message["idiag_dport"]


def _observed_mark(message: Any) -> Mark:
    return Mark(message.get_attr("INET_DIAG_CLASS_ID") or 0, int(message.get_attr("INET_DIAG_TOS") or "0", 16) >> 2)
