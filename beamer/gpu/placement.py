"""Where GPUs are taken from for a job whose size is settled: where it is or was, then on the fewest nodes, large gaps whole.

`Room` is what a policy fills up while it decides: nodes by the number of their free GPUs, so that placing a job does not look
at all of them. A job that is synchronised by parameter servers gets one per worker: on nodes without GPUs if they can.
`beamer.gpu.packing` is its counterpart for policies that choose workers and servers apart and weigh cores as much as GPUs: it
splits both evenly and knows no place that a job had, because Optimus places by number of tasks alone. The two orders of nodes
have nothing in common but the books, so that neither is written in terms of the other.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from heapq import heapify, heappop, heappush, heapreplace

from beamer.gpu.model import Cluster, Grant, Job, Request

ROUNDING = 1e-9


class Room:
    """The free GPUs and cores of a cluster, changed by `take`.

    total: free GPUs of all nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.total = cluster.gpus
        self._gpus = {node.name: node.gpus for node in cluster.nodes}
        self._gpu_nodes = {node.name for node in cluster.nodes if node.gpus}
        self._cpus = {node.name: node.cpus for node in cluster.nodes}
        most = max(self._gpus.values(), default=0)
        self._by_gpus: list[dict[str, None]] = [{} for _ in range(most + 1)]
        for name, count in self._gpus.items():
            self._by_gpus[count][name] = None
        self._place = {name: place for place, name in enumerate(self._gpus)}
        self._by_cores: tuple[_Heap, _Heap] | None = None  # without and with GPUs; most jobs have no servers to place

    def fits(self, grant: Grant, request: Request) -> bool:
        """Say whether what is granted is free, on nodes that are up."""
        return all(self._gpus.get(node, -1) >= count for node, count in grant.gpus) and all(
            self._cpus.get(node, -1.0) + ROUNDING >= cores for node, cores in _cores(grant, request)
        )

    def take(self, grant: Grant, request: Request) -> None:
        """Take what is granted, which fits."""
        for node, count in grant.gpus:
            before = self._gpus[node]
            del self._by_gpus[before][node]
            self._gpus[node] = before - count
            self._by_gpus[before - count][node] = None
            self.total -= count
        for node, cores in _cores(grant, request):
            self._cpus[node] -= cores
            if self._by_cores:
                heappush(self._by_cores[node in self._gpu_nodes], self._by_most_cores(node))

    def grant(self, job: Job, count: int, batch_size: int = 0, servers: int = 0) -> Grant | None:
        """Take `count` GPUs for a job and return them; None, and nothing taken, if there are not as many.

        servers: of a job that has any; 0, or where cores are short: one per worker.

        Those of nodes on which it runs or ran last come first, then the smallest gap that holds the rest, or the largest gaps.
        """
        if count > self.total:
            return None
        before = job.grant or job.last
        chosen: dict[str, int] = {}
        left = count
        for node, had in sorted(before.gpus if before else (), key=lambda item: (-item[1], item[0])):
            here = min(self._gap(node, job.request), left, had)
            if here:
                chosen[node] = here
                left -= here
        for node in self._gaps(left, job.request, chosen) if left else ():
            here = min(self._gap(node, job.request) - chosen.get(node, 0), left)
            chosen[node] = chosen.get(node, 0) + here
            left -= here
            if not left:
                break
        if left:
            return None
        wished = self._taken(chosen, job.request, batch_size, servers) if servers > count else None
        return wished or self._taken(chosen, job.request, batch_size, count)

    def grant_on(self, job: Job, node: str, count: int) -> Grant | None:
        """Take `count` GPUs of one node for a job and return them; None if it has not as many."""
        return self._taken({node: count}, job.request, 0, count) if self._gap(node, job.request) >= count else None

    def spread(self, job: Job, count: int, whole: bool) -> Grant | None:
        """Take up to `count` GPUs for a job, one after another on the emptiest node, and return them; None if there are none.

        whole: whether they are to be as many as asked for, or else none.
        """
        chosen: dict[str, int] = {}
        gaps = [(-gap, place, name) for place, name in enumerate(self._gpus) if (gap := self._gap(name, job.request))]
        heapify(gaps)
        left = count
        while gaps and left:
            gap, place, name = gaps[0]
            chosen[name] = chosen.get(name, 0) + 1
            left -= 1
            if gap == -1:
                heappop(gaps)
            else:
                heapreplace(gaps, (gap + 1, place, name))
        return self._taken(chosen, job.request, 0, count - left) if chosen and not (left and whole) else None

    def _taken(self, gpus: Mapping[str, int], request: Request, batch_size: int, servers: int) -> Grant | None:
        """Take these GPUs, and the cores of so many servers, and return them; None, and nothing taken, if those are missing."""
        placed = self._servers(gpus, request, servers)
        if placed is None:
            return None
        grant = Grant.of(gpus, placed, batch_size)
        self.take(grant, request)
        return grant

    def _servers(self, gpus: Mapping[str, int], request: Request, count: int) -> Mapping[str, int] | None:
        if not request.servers:
            return {}
        if not request.server_cpus:
            return _in_proportion(gpus, count)
        spare = {node: self._cpus[node] - had * request.worker_cpus for node, had in gpus.items()}
        chosen: dict[str, int] = {}
        left = count
        with closing(self._with_cores(spare, request.server_cpus)) as nodes:
            for node in nodes:
                here = min(_times(spare.get(node, self._cpus[node]), request.server_cpus), left)
                chosen[node] = here
                left -= here
                if not left:
                    return chosen
        return None

    def _with_cores(self, beside: Mapping[str, float], cores: float) -> Generator[str, None, None]:
        """Yield nodes with so many free cores, the freest first: nodes without GPUs, then those `beside` workers, then others.

        beside: what the workers leave free of their nodes.
        """
        if self._by_cores is None:
            self._by_cores = [], []
            for node in self._cpus:
                self._by_cores[node in self._gpu_nodes].append(self._by_most_cores(node))
            for heap in self._by_cores:
                heapify(heap)
        yield from self._freest(self._by_cores[0], beside, cores)
        for node in sorted(beside, key=lambda node: (-beside[node], self._place[node])):
            if _times(beside[node], cores):
                yield node
        yield from self._freest(self._by_cores[1], beside, cores)

    def _freest(self, heap: "_Heap", but: Mapping[str, float], cores: float) -> Generator[str, None, None]:
        """Yield nodes of a heap while they have so many free cores; its entries are put back when this is closed."""
        popped: dict[str, tuple[float, int, str]] = {}
        try:
            while heap and _times(-heap[0][0], cores):
                entry = heappop(heap)
                node = entry[2]
                if node not in popped and -entry[0] == self._cpus[node]:  # otherwise a later entry has replaced it
                    popped[node] = entry
                    if node not in but:
                        yield node
        finally:
            for entry in popped.values():
                heappush(heap, entry)

    def _by_most_cores(self, node: str) -> tuple[float, int, str]:
        return -self._cpus[node], self._place[node], node

    def _gap(self, node: str, request: Request) -> int:
        """Return how many GPUs of a node a job can have, given the cores that come with each."""
        gpus = self._gpus.get(node, 0)
        return min(gpus, int((self._cpus[node] + ROUNDING) / request.worker_cpus)) if request.worker_cpus and gpus else gpus

    def _gaps(self, count: int, request: Request, chosen: Mapping[str, int]) -> Iterator[str]:
        """Yield nodes with room for a job that still needs `count`, in the order in which they are to be used."""
        for node, had in list(chosen.items()):
            if self._gap(node, request) > had:  # a node that is used anyway
                yield node
        wide = (node for free in range(count, len(self._by_gpus)) for node in self._by_gpus[free])
        whole = next((node for node in wide if node not in chosen and self._gap(node, request) >= count), None)
        if whole is not None:
            yield whole
        for free in range(len(self._by_gpus) - 1, 0, -1):
            for node in self._by_gpus[free]:
                if node not in chosen and node != whole and self._gap(node, request):
                    yield node


def _in_proportion(gpus: Mapping[str, int], count: int) -> Mapping[str, int]:
    """Return where so many servers are that take no cores: beside the workers, as many by node as there are of those."""
    each, left = divmod(count, sum(gpus.values()))
    chosen: dict[str, int] = {}
    for node, had in gpus.items():
        more = min(had, left)
        chosen[node] = each * had + more
        left -= more
    return {node: servers for node, servers in chosen.items() if servers}


_Heap = list[tuple[float, int, str]]
"""Nodes by free cores, the most first, then as the cluster lists them."""


def _times(cores: float, each: float) -> int:
    """Return how often `each` fits."""
    return max(int((cores + ROUNDING) / each), 0)


def _cores(grant: Grant, request: Request) -> list[tuple[str, float]]:
    """Return the cores that a grant takes, by node, each node once per kind of process."""
    if not (request.worker_cpus or request.server_cpus):
        return []
    cores: dict[str, float] = {}
    for counts, each in ((grant.gpus, request.worker_cpus), (grant.servers, request.server_cpus)):
        for node, count in counts:
            cores[node] = cores.get(node, 0.0) + count * each
    return list(cores.items())


def can_ever_run(job: Job, cluster: Cluster) -> bool:
    """Say whether the empty cluster holds a job at the size that it asks for."""
    return _holds(cluster, job, job.request.gpus)


def able(cluster: Cluster, jobs: Iterable[Job], least: bool = True) -> list[Job]:
    """Return the jobs that the empty cluster holds: GPUs that are set aside for others would serve nobody.

    least: at the least size that they run at, rather than at the size that they ask for.
    """
    holds: dict[tuple[int, float, bool, float], bool] = {}
    chosen = []
    for job in jobs:
        request = job.request
        size = request.least if least else request.gpus
        kind = size, request.worker_cpus, request.servers, request.server_cpus
        if kind not in holds:
            holds[kind] = _holds(cluster, job, size)
        if holds[kind]:
            chosen.append(job)
    return chosen


def _holds(cluster: Cluster, job: Job, size: int) -> bool:
    if not (job.request.worker_cpus or job.request.servers):
        return size <= cluster.gpus
    return Room(cluster).grant(job, size) is not None


def kept(jobs: Iterable[Job], room: Room) -> dict[str, Grant]:
    """Take what the jobs hold and return it by job; grants on nodes that are gone are left out."""
    grants: dict[str, Grant] = {}
    for job in jobs:
        if job.grant and room.fits(job.grant, job.request):
            room.take(job.grant, job.request)
            grants[job.key] = job.grant
    return grants


def pack(cluster: Cluster, order: Iterable[Job]) -> dict[str, Grant]:
    """Grant jobs the GPUs that they ask for, in order, as far as they fit; those that run stay in place."""
    left = cluster.gpus
    chosen: list[Job] = []
    others: list[Job] = []
    for job in able(cluster, order, least=False):
        if job.request.gpus <= left:
            left -= job.request.gpus
            chosen.append(job)
        else:
            others.append(job)
    room = Room(cluster)
    grants = _arranged(room, chosen, {job.key: job.request.gpus for job in chosen}, {}, {}, whole=True)
    for job in others if room.total > left else ():  # cores kept some of those chosen out
        grant = room.grant(job, job.request.gpus)
        if grant:
            grants[job.key] = grant
    return grants


def arrange(
    cluster: Cluster,
    jobs: Iterable[Job],
    sizes: Mapping[str, int],
    batches: Mapping[str, int] | None = None,
    servers: Mapping[str, int] | None = None,
) -> dict[str, Grant]:
    """Grant jobs so many GPUs, of at most as many as there are: where they are, or near what they have or had last.

    What keeps its size stays in place, then the largest choose first; where cores are short, some get half as many, or none.
    batches: by job, as `Grant.batch_size`. servers: by job; what is not named keeps those it has, or gets one per worker.
    """
    return _arranged(Room(cluster), jobs, sizes, batches or {}, servers or {}, whole=False)


def _arranged(
    room: Room,
    jobs: Iterable[Job],
    sizes: Mapping[str, int],
    batches: Mapping[str, int],
    servers: Mapping[str, int],
    whole: bool,
) -> dict[str, Grant]:
    """Do as `arrange` says with what there is of `room`. whole: whether jobs get their size or none."""
    moving: list[Job] = []
    grants: dict[str, Grant] = {}
    for job in jobs:
        size = sizes.get(job.key, 0)
        stays = job.grant is not None and job.grant.size == size and servers.get(job.key) in (None, job.grant.served)
        if stays and job.grant and room.fits(job.grant, job.request):
            room.take(job.grant, job.request)
            grants[job.key] = Grant(job.grant.gpus, job.grant.servers, batches.get(job.key, 0))
        elif size:
            moving.append(job)
    moving.sort(key=lambda job: -sizes[job.key])
    for job in moving:
        size = sizes[job.key]
        grant = room.grant(job, size, batches.get(job.key, 0), servers.get(job.key, 0))
        while grant is None and size > job.request.least and not whole:
            size = max(size // 2, job.request.least)
            grant = room.grant(job, size)
        if grant:
            grants[job.key] = grant
    return grants
