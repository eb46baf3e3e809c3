"""Which processes belong to which worker: decided from what /proc says, with no worker's word taken for who a process is.

A worker is one process, told from a later one of the same id by when it started. Its members are the processes below it, each
belonging to its nearest registered ancestor and keeping to it when parents exit. Where the worker lives in a process namespace
of its own, a container, its members are the processes of its control group as well. No member is another user's, or in another
network namespace than the agent: the agent sees no sockets there.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from beamer.network.connection import Connection
from beamer.network.protocol import LocalWorker
from hostagent.workers.procfs import Procfs

OTHER_NAMESPACE = "its process id is of another process namespace: attach through the agent"
OTHER_NETWORK = "it is in another network namespace than the agent: run the agent in it, or the worker on the host's network"
NO_START = "no start time: attach through the agent, or report the process's start time and namespace"
NOT_DUMPABLE = ", or is not dumpable (prctl(2), PR_SET_DUMPABLE), as after a change of user: then /proc shows it as user 0's"
NO_WORKER = "process {pid} is the ancestor of all others, or none: attach the worker's own process through the agent"

LISTINGS = 2
"""Processes are listed so often after one was made: it has its id a moment before it is listed."""
MAX_UNLISTED = 10
"""Processes are listed anew after so many times: one of a chosen id (clone3(2), `set_tid`) is not the last that was made."""

Place = tuple[str, int]
"""A worker: its job and its rank."""

_Label = TypeVar("_Label", bound=Hashable)


class _Known(NamedTuple):
    inode: int
    parent: int
    start: int


class ProcessTrees(Generic[_Label]):
    """The processes below a set of roots; every process's parent is read once, when it is first seen.

    Processes are listed only when there may be new ones: the kernel prepares an entry for each of all that a machine has. One
    that has ended meanwhile, and belongs to no root, may still be taken for alive.
    """

    def __init__(self, proc: Procfs | None = None) -> None:
        self._proc = proc or Procfs()
        self._last_made: int | None = None
        # How often processes were listed since that one was made, and were not listed since they were listed last.
        self._listings = self._unlisted = 0
        self._known: dict[int, _Known] = {}
        self._new: set[int] = set()
        self._owner: dict[int, _Label] = {}
        self._roots: dict[int, _Label] = {}

    @property
    def alive(self) -> Set[int]:
        """The processes that were listed last."""
        return self._known.keys()

    def start(self, pid: int) -> int | None:
        """Return when the process started that had the id `pid` when processes were listed last."""
        known = self._known.get(pid)
        return None if known is None else known.start

    def refresh(self) -> None:
        """Take in which processes there are."""
        last_made = self._proc.last_made()  # It is read first: what is made while processes are listed makes it another.
        if last_made is None or last_made != self._last_made:
            self._last_made, self._listings = last_made, 0
        elif self._listings >= LISTINGS and self._unlisted < MAX_UNLISTED:
            self._unlisted += 1
            for ended in [pid for pid in self._owner if self._proc.uid(pid) is None]:
                self._forget(ended)
            return
        self._listings, self._unlisted = self._listings + 1, 0
        alive = self._proc.inodes()
        for gone in self._known.keys() - alive.keys():
            self._forget(gone)
        for pid, inode in alive.items():
            known = self._known.get(pid)
            if known is not None and known.inode == inode:
                continue
            status = self._proc.status(pid)
            if status is None:
                self._forget(pid)
                continue
            if known is None or known.start != status.start:
                self._forget(pid)
                self._new.add(pid)
                self._known[pid] = _Known(inode, status.parent, status.start)
            else:
                self._known[pid] = known._replace(inode=inode)

    def members(self, roots: Mapping[int, _Label], lasting: Collection[_Label] = ()) -> Mapping[int, _Label]:
        """Return the label of the nearest root of each process below one, as of the last `refresh`.

        lasting: labels of roots that have ended, whose processes stay theirs.
        """
        labels = {*roots.values(), *lasting}
        if self._roots != roots or not labels.issuperset(self._owner.values()):
            self._roots = dict(roots)
            self._owner = {pid: label for pid, label in self._owner.items() if label in labels}
            self._new = set(self._known)
        for pid in sorted(self._new, key=lambda pid: self._known[pid].start):
            label = self._nearest(pid)
            if label is not None:
                self._owner[pid] = label
        self._new.clear()
        return self._owner

    def _forget(self, pid: int) -> None:
        self._known.pop(pid, None)
        self._owner.pop(pid, None)
        self._new.discard(pid)

    def _nearest(self, pid: int) -> _Label | None:
        inherited: _Label | None = None  # The label of an ancestor whose own root has ended.
        while (known := self._known.get(pid)) is not None:
            if pid in self._roots:
                return self._roots[pid]
            if inherited is None:
                inherited = self._owner.get(pid)
            parent = self._known.get(known.parent)
            if parent is None or parent.start > known.start:  # The parent has ended and its id was given to another process.
                break
            pid = known.parent
        return inherited


class Member(NamedTuple):
    """A process that belongs to a worker."""

    pid: int
    start: int
    worker: LocalWorker


class _Container(NamedTuple):
    """Where a container's processes are: a path in a hierarchy of control groups."""

    hierarchy: str
    path: str


@dataclass(frozen=True)
class _Root:
    """A worker's process as it was first found."""

    start: int
    uid: int
    container: _Container | None


class _Foreign(NamedTuple):
    start: int
    namespace: int
    cgroups: Mapping[str, str] | None


_Identity = tuple[str, int, int, int]  # job, rank, process id, start


class WorkerProcesses:
    """The processes of the assigned workers. `gone` and `refused` are as of the last `members`."""

    def __init__(self, proc: Procfs | None = None) -> None:
        self._proc = proc or Procfs()
        self._trees: ProcessTrees[_Identity] = ProcessTrees(self._proc)
        self._workers: dict[_Identity, LocalWorker] = {}
        self._found: dict[_Identity, _Root | None] = {}  # None stands for a process that ended before it was looked for.
        self._foreign: dict[int, _Foreign] = {}
        self.gone: tuple[Place, ...] = ()
        self.refused: dict[Place, str] = {}

    def assign(self, workers: Iterable[LocalWorker]) -> None:
        """Watch `workers` and no others. Of two with the same process the one that was assigned first has it."""
        assigned = {_identity(worker): worker for worker in workers}
        earlier = {identity: assigned[identity] for identity in self._workers if identity in assigned}
        self._workers = earlier | assigned
        self._found = {identity: root for identity, root in self._found.items() if identity in assigned}

    def forget_cgroups(self) -> None:
        """Read control groups anew: processes may be moved."""
        self._foreign = {pid: foreign._replace(cgroups=None) for pid, foreign in self._foreign.items()}

    def members(self) -> list[Member]:
        """Return every worker's living processes, by process id."""
        if not self._workers:
            self.gone, self.refused = (), {}
            return []
        self._trees.refresh()
        roots: dict[int, _Identity] = {}
        ended: list[_Identity] = []
        self.refused = {}
        for identity, worker in self._workers.items():
            pid = worker.process.pid
            found = self._find(identity, worker)
            if found is None:
                ended.append(identity)
            elif isinstance(found, str):
                self.refused[place_of(worker)] = found
            elif pid in roots:
                other = self._workers[roots[pid]]
                self.refused[place_of(worker)] = f"its process {pid} is worker {other.rank} of {other.job} already"
            else:
                roots[pid] = identity
        self.gone = tuple(place_of(self._workers[identity]) for identity in ended)
        owners = dict(self._trees.members(roots, ended))
        owners |= self._in_containers([*roots.values(), *ended], owners)
        return [
            Member(pid, start, self._workers[identity])
            for pid, identity in sorted(owners.items())
            if (root := self._found.get(identity))
            and (start := self._trees.start(pid)) is not None
            # A worker's own process was looked at just now.
            and (pid in roots or (self._proc.uid(pid) == root.uid and self._shares_network(pid)))
        ]

    def _find(self, identity: _Identity, worker: LocalWorker) -> _Root | str | None:
        """Return a worker's process; None if it has ended, or why it is not the worker's."""
        process = worker.process
        if process.pid <= 1:
            return NO_WORKER.format(pid=process.pid)
        if 0 in (process.start, process.namespace):  # They are not known, and the id may be any process's by now.
            return NO_START
        if process.namespace != self._proc.own_namespace:
            return OTHER_NAMESPACE
        status, uid = self._proc.status(process.pid), self._proc.uid(process.pid)
        if status is None or uid is None or status.ended:
            self._found.setdefault(identity, None)
            return None
        if identity not in self._found:
            same = process.start == status.start
            wanted = uid if process.uid is None else process.uid
            self._found[identity] = _Root(status.start, wanted, self._container(process.pid)) if same else None
        root = self._found[identity]
        if root is None or not root.start == status.start == self._trees.start(process.pid):
            return None
        if uid != root.uid:
            return f"its process {process.pid} is user {uid}'s, not user {root.uid}'s{'' if uid else NOT_DUMPABLE}"
        return root if self._shares_network(process.pid) else OTHER_NETWORK

    def _shares_network(self, pid: int) -> bool:
        """Return whether a process is in the agent's network namespace, as far as can be told. It may change at any time."""
        return self._proc.network(pid) in (0, self._proc.own_network)

    def _container(self, pid: int) -> _Container | None:
        """Return where the processes of the container are that `pid` lives in; None if it lives in none that can be told."""
        if self._proc.namespace(pid) in (0, self._proc.own_namespace):
            return None
        for hierarchy, path in sorted(self._proc.cgroups(pid).items()):
            if path != "/" and not _is_below(self._proc.own_cgroups.get(hierarchy, "/"), path):
                return _Container(hierarchy, path)
        return None

    def _in_containers(self, identities: Iterable[_Identity], owned: Mapping[int, _Identity]) -> dict[int, _Identity]:
        """Return the worker of each process that is in a worker's container; of a container that several share, none's."""
        claims: dict[_Container, set[_Identity]] = {}
        for identity in identities:
            root = self._found[identity]
            if root is not None and root.container is not None:
                claims.setdefault(root.container, set()).add(identity)
        if not claims:
            return {}
        found: dict[int, _Identity] = {}
        for pid in self._trees.alive - owned.keys():
            cgroups = self._foreign_cgroups(pid)
            around = [place for place in claims if _is_below(cgroups.get(place.hierarchy, "/"), place.path)]
            nearest = max(around, key=lambda place: len(place.path), default=None)
            if nearest is not None and len(claims[nearest]) == 1:
                (found[pid],) = claims[nearest]
        self._foreign = {pid: foreign for pid, foreign in self._foreign.items() if pid in self._trees.alive}
        return found

    def _foreign_cgroups(self, pid: int) -> Mapping[str, str]:
        """Return the control groups of a process that lives in another process namespace; none of any other process."""
        start = self._trees.start(pid) or 0
        known = self._foreign.get(pid)
        if known is None or known.start != start:
            known = _Foreign(start, self._proc.namespace(pid), None)
        if known.namespace in (0, self._proc.own_namespace):
            known = known._replace(cgroups={})
        elif known.cgroups is None:
            known = known._replace(cgroups=self._proc.cgroups(pid))
        self._foreign[pid] = known
        return known.cgroups or {}


def place_of(what: LocalWorker | Connection) -> Place:
    """Return which worker it is, or whose."""
    return what.job, what.rank


def _identity(worker: LocalWorker) -> _Identity:
    return worker.job, worker.rank, worker.process.pid, worker.process.start


def _is_below(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/")
