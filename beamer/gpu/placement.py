"""Compact placement: which GPUs a job of a given size gets: the same while it keeps its size, else on the fewest nodes.

`CompactPlacer` indexes nodes by the number of their free GPUs, so that placing a job does not visit all of them. A job that is
synchronised by parameter servers gets one per worker, on nodes without GPUs where they have the cores.
`beamer.gpu.even_placement` is its counterpart for Optimus and its baselines, which choose the numbers of workers and of servers
apart and weigh cores as much as GPUs: it splits both evenly and does not prefer nodes that a job had. The two order nodes
differently and share no more than the count of what is free, so that neither is written in terms of the other.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType

from beamer.gpu.model import ROUNDING, Cluster, Grant, Job, Request


class CompactPlacer:
    """The free GPUs and cores of a cluster's nodes, from which jobs are placed compactly.

    free_gpus: of all nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.free_gpus = cluster.gpus
        self._gpus = {node.name: node.gpus for node in cluster.nodes}
        self._gpu_nodes = {node.name for node in cluster.nodes if node.gpus}
        self._cpus = {node.name: node.cpus for node in cluster.nodes}
        most = max(self._gpus.values(), default=0)
        self._by_gpus: list[dict[str, None]] = [{} for _ in range(most + 1)]
        for name, count in self._gpus.items():
            self._by_gpus[count][name] = None
        self._place = {name: place for place, name in enumerate(self._gpus)}
        # The heaps are for nodes without and with GPUs; None, as most jobs have no servers to place.
        self._by_cores: tuple[_Heap, _Heap] | None = None

    def fits(self, grant: Grant, request: Request) -> bool:
        """Return whether what is granted is free, on nodes that are up."""
        return all(self._gpus.get(node, -1) >= count for node, count in grant.gpus) and all(
            self._cpus.get(node, -1.0) + ROUNDING >= cores for node, cores in _cores(grant, request)
        )

    def reserve(self, grant: Grant, request: Request) -> None:
        """Reserve what is granted, which fits."""
        self._free(grant, request, -1)

    def release(self, grant: Grant, request: Request) -> None:
        """Free what was reserved."""
        self._free(grant, request, 1)

    def _free(self, grant: Grant, request: Request, sign: int) -> None:
        """Free what is granted, or with a sign of -1 reserve it."""
        for node, count in grant.gpus:
            before = self._gpus[node]
            del self._by_gpus[before][node]
            self._gpus[node] = before + sign * count
            self._by_gpus[before + sign * count][node] = None
            self.free_gpus += sign * count
        for node, cores in _cores(grant, request):
            self._cpus[node] += sign * cores
            if self._by_cores:
                heappush(self._by_cores[node in self._gpu_nodes], self._by_most_cores(node))

    def most_on_one(self, request: Request) -> int:
        """Return how many GPUs a job can have on the node that has the most for it."""
        most = 0
        for free in range(len(self._by_gpus) - 1, 0, -1):
            for node in self._by_gpus[free]:
                if most >= free:
                    return most
                most = max(self._free_for(node, request), most)
        return most

    def holds_without(self, node: str, size: int, request: Request, leaving: Iterable[tuple[Grant, Request]]) -> bool:
        """Return whether a node could hold `size` GPUs of a job if others left it with what they were granted."""
        gpus, cores = self._gpus[node], self._cpus[node]
        for grant, other in leaving:
            gpus += sum(count for where, count in grant.gpus if where == node)
            cores += sum(freed for where, freed in _cores(grant, other) if where == node)
        return gpus >= size and cores + ROUNDING >= size * request.worker_cpus

    def keep_running(self, jobs: Iterable[Job]) -> dict[str, Grant]:
        """Reserve what the jobs hold and return it by job; grants on nodes that are gone are left out."""
        grants: dict[str, Grant] = {}
        for job in jobs:
            if job.grant and self.fits(job.grant, job.request):
                self.reserve(job.grant, job.request)
                grants[job.key] = job.grant
        return grants

    def place(self, job: Job, count: int, batch_size: int = 0, servers: int = 0, gather: bool = False) -> Grant | None:
        """Reserve `count` GPUs for a job and return them; None, and nothing reserved, if there are not as many.

        servers: of a job that has any; 0, or where cores are short: one per worker.
        gather: whether a job that keeps its size moves from several nodes to fewer.

        The same as it has or had last if it keeps its size; otherwise on the fewest nodes, by best fit, of equals those that it
        has or had.
        """
        if count > self.free_gpus:
            return None
        before = job.grant or job.last
        had = dict(before.gpus) if before else {}
        same = before is not None and before.size == count and not (gather and before.nodes > 1)
        if before and same and all(self._free_for(node, job.request) >= gpus for node, gpus in before.gpus):
            chosen = had
        else:
            chosen = self._fewest_nodes(count, job.request, had)
        if not chosen:
            return None
        wished = self._reserved(chosen, job.request, batch_size, servers) if servers > count else None
        return wished or self._reserved(chosen, job.request, batch_size, count)

    def place_on(self, job: Job, node: str, count: int) -> Grant | None:
        """Reserve `count` GPUs of one node for a job and return them; None if it has not as many."""
        return self._reserved({node: count}, job.request, 0, count) if self._free_for(node, job.request) >= count else None

    def spread(self, job: Job, count: int, gang: bool) -> Grant | None:
        """Reserve up to `count` GPUs, one after another on the emptiest node, and return them; None if there are none.

        gang: whether they are to be as many as asked for, or else none.
        """
        chosen: dict[str, int] = {}
        emptiest = [(-free, i, name) for i, name in enumerate(self._gpus) if (free := self._free_for(name, job.request))]
        heapify(emptiest)
        left = count
        while emptiest and left:
            minus_free, i, name = emptiest[0]
            chosen[name] = chosen.get(name, 0) + 1
            left -= 1
            if minus_free == -1:
                heappop(emptiest)
            else:
                heapreplace(emptiest, (minus_free + 1, i, name))
        return self._reserved(chosen, job.request, 0, count - left) if chosen and not (left and gang) else None

    def _reserved(self, gpus: Mapping[str, int], request: Request, batch_size: int, servers: int) -> Grant | None:
        """Reserve these GPUs, and the cores of so many servers; None, and nothing reserved, if those cores are missing."""
        placed = self._servers(gpus, request, servers)
        if placed is None:
            return None
        grant = Grant.of(gpus, placed, batch_size)
        self.reserve(grant, request)
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
                if node not in popped and -entry[0] == self._cpus[node]:  # Otherwise a later entry has replaced this one.
                    popped[node] = entry
                    if node not in but:
                        yield node
        finally:
            for entry in popped.values():
                heappush(heap, entry)

    def _by_most_cores(self, node: str) -> tuple[float, int, str]:
        return -self._cpus[node], self._place[node], node

    def _free_for(self, node: str, request: Request) -> int:
        """Return how many GPUs of a node a job can have, given the cores that come with each."""
        gpus = self._gpus.get(node, 0)
        return min(gpus, int((self._cpus[node] + ROUNDING) / request.worker_cpus)) if request.worker_cpus and gpus else gpus

    def _fewest_nodes(self, count: int, request: Request, had: Mapping[str, int]) -> dict[str, int]:
        """Return GPUs by node, `count` in all: always the node with the fewest that hold the rest, or the most; none if short.

        Of equal nodes, one of `had` comes first.
        """
        chosen: dict[str, int] = {}
        left = count
        while left:
            enough, most_first = range(left, len(self._by_gpus)), range(len(self._by_gpus) - 1, 0, -1)
            node = next(
                (
                    node
                    for counts, least in ((enough, left), (most_first, 1))
                    for free in counts
                    for node in self._with_free(free, had)
                    if node not in chosen and self._free_for(node, request) >= least
                ),
                None,
            )
            if node is None:
                return {}
            chosen[node] = min(self._free_for(node, request), left)
            left -= chosen[node]
        return chosen

    def _with_free(self, free: int, first: Mapping[str, int]) -> Iterator[str]:
        """Yield the nodes with so many free GPUs, those of `first` before the others."""
        nodes = self._by_gpus[free]
        ahead = [node for node in first if node in nodes]
        yield from ahead
        yield from (node for node in nodes if node not in ahead)


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
    """Return whether the empty cluster holds a job at the size that it asks for."""
    return _holds(cluster, job, job.request.gpus)


def jobs_that_fit(cluster: Cluster, jobs: Iterable[Job], at_minimum: bool = True) -> list[Job]:
    """Return the jobs that the empty cluster holds: GPUs reserved for others would stay idle.

    at_minimum: at the smallest size that they run at, rather than at the size that they ask for.
    """
    holds: dict[tuple[int, float, bool, float], bool] = {}
    chosen = []
    for job in jobs:
        request = job.request
        size = request.least if at_minimum else request.gpus
        kind = size, request.worker_cpus, request.servers, request.server_cpus
        if kind not in holds:
            holds[kind] = _holds(cluster, job, size)
        if holds[kind]:
            chosen.append(job)
    return chosen


def _holds(cluster: Cluster, job: Job, size: int) -> bool:
    if not (job.request.worker_cpus or job.request.servers):
        return size <= cluster.gpus
    return CompactPlacer(cluster).place(job, size) is not None


def pack(cluster: Cluster, order: Iterable[Job]) -> dict[str, Grant]:
    """Grant jobs the GPUs that they ask for, in order, as far as they fit; those that run stay in place."""
    left = cluster.gpus
    chosen: list[Job] = []
    others: list[Job] = []
    for job in jobs_that_fit(cluster, order, at_minimum=False):
        if job.request.gpus <= left:
            left -= job.request.gpus
            chosen.append(job)
        else:
            others.append(job)
    placer = CompactPlacer(cluster)
    grants = _place_all(placer, chosen, {job.key: job.request.gpus for job in chosen}, {}, gangs=True)
    for job in others if placer.free_gpus > left else ():  # Some of the chosen jobs found too few cores.
        grant = placer.place(job, job.request.gpus)
        if grant:
            grants[job.key] = grant
    return grants


def place_compactly(
    cluster: Cluster, jobs: Sequence[Job], sizes: Mapping[str, int], servers: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Grant]:
    """Grant jobs so many GPUs as `place_sizes` does, but on one node if a node has as many: smaller jobs make room for larger.

    A job that keeps its size moves if it is on several nodes and one would do. Jobs leave the node on which the fewest GPUs
    change hands, and only for a job that has more GPUs than they have together.
    servers: by job; one that is not named keeps those that it has, or gets one per worker.
    """
    placer = CompactPlacer(cluster)
    empty = {cores: placer.most_on_one(job.request) for cores, job in {job.request.worker_cpus: job for job in jobs}.items()}
    residents: dict[str, list[Job]] = {node.name: [] for node in cluster.nodes}
    grants: dict[str, Grant] = {}
    moving: list[tuple[int, int, Job]] = []
    for job in jobs:
        size = sizes.get(job.key, 0)
        grant = job.grant
        stays = grant is not None and grant.size == size and servers.get(job.key) in (None, grant.served)
        if grant and stays and (grant.nodes == 1 or size > empty[job.request.worker_cpus]) and placer.fits(grant, job.request):
            placer.reserve(grant, job.request)
            grants[job.key] = Grant(grant.gpus, grant.servers)
            if grant.nodes == 1:
                residents[grant.gpus[0][0]].append(job)
        elif size:
            moving.append((-size, len(moving), job))
    heapify(moving)
    count = len(moving)
    while moving:
        minus_size, _, job = heappop(moving)
        size = -minus_size
        if 1 < size <= empty[job.request.worker_cpus] and placer.most_on_one(job.request) < size:
            for other in _to_leave(placer, residents, grants, job.request, size):
                placer.release(grants.pop(other.key), other.request)
                heappush(moving, (-sizes[other.key], count, other))
                count += 1
        grant = placer.place(job, size, 0, servers.get(job.key, 0), gather=size <= placer.most_on_one(job.request))
        grant = grant or _place_fewer(placer, job, size)
        if grant:
            grants[job.key] = grant
    return grants


def _place_fewer(placer: CompactPlacer, job: Job, size: int) -> Grant | None:
    """Place a job on half as many GPUs, again and again, where cores are short; None if it has too few on the least, too."""
    grant = None
    while grant is None and size > job.request.least:
        size = max(size // 2, job.request.least)
        grant = placer.place(job, size)
    return grant


def _to_leave(
    placer: CompactPlacer, residents: Mapping[str, list[Job]], grants: Mapping[str, Grant], request: Request, size: int
) -> Sequence[Job]:
    """Return the jobs that make room for one of so many GPUs on a node, fewer than it has in all; they reside there no more.

    request: of that one. residents: by node, each on that node alone.
    """
    fewest, chosen, where = size, 0, ""
    for node, jobs in residents.items():
        held, freed = 0, list[tuple[Grant, Request]]()
        jobs.sort(key=lambda job: grants[job.key].size)
        for job in jobs:
            if held >= fewest or placer.holds_without(node, size, request, freed):
                break
            freed.append((grants[job.key], job.request))
            held += grants[job.key].size
        if held < fewest and placer.holds_without(node, size, request, freed):
            fewest, chosen, where = held, len(freed), node
    if not where:
        return ()
    leaving, residents[where][:] = residents[where][:chosen], residents[where][chosen:]
    return leaving


def place_sizes(
    cluster: Cluster, jobs: Iterable[Job], sizes: Mapping[str, int], batches: Mapping[str, int] | None = None
) -> dict[str, Grant]:
    """Grant jobs so many GPUs, in all at most as many as there are: where they run, or near what they have or had last.

    A job that keeps its size stays in place, then the largest are placed first; where cores are short, some get half as many,
    or none.
    batches: by job, as `Grant.batch_size`. Servers: those that a job keeps, else one per worker.
    """
    return _place_all(CompactPlacer(cluster), jobs, sizes, batches or {}, gangs=False)


def _place_all(
    placer: CompactPlacer, jobs: Iterable[Job], sizes: Mapping[str, int], batches: Mapping[str, int], gangs: bool
) -> dict[str, Grant]:
    """Do as `place_sizes` with what is free. gangs: whether jobs get their size or none."""
    moving: list[Job] = []
    grants: dict[str, Grant] = {}
    for job in jobs:
        size = sizes.get(job.key, 0)
        if job.grant and job.grant.size == size and placer.fits(job.grant, job.request):
            placer.reserve(job.grant, job.request)
            grants[job.key] = Grant(job.grant.gpus, job.grant.servers, batches.get(job.key, 0))
        elif size:
            moving.append(job)
    moving.sort(key=lambda job: -sizes[job.key])
    for job in moving:
        size = sizes[job.key]
        grant = placer.place(job, size, batches.get(job.key, 0))
        if grant is None and not gangs:
            grant = _place_fewer(placer, job, size)
        if grant:
            grants[job.key] = grant
    return grants
