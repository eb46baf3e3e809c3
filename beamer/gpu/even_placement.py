"""Even placement: workers and parameter servers that both ask for cores, split evenly over the fewest nodes.

That an even split over the fewest nodes minimises the time of a synchronisation is Optimus' task placement [Peng, Bao, Chen, Wu
and Guo 2018, section 4.2]; what happens where no even split fits is ours, as the paper gives no detail. Nodes are kept in heaps
by what is free on them, so that placing a job visits only a few. `beamer.gpu.placement` is the counterpart for policies that
grant GPUs alone: it prefers nodes that a job has or had, and the best fit.
"""

from collections.abc import Callable, Generator, Iterable
from heapq import heapify, heappop, heappush

from beamer.gpu.model import Cluster, Grant, Job, Request

EXTRA_NODES_TRIED = 32
"""Nodes beyond those needed that are tried before a job is spread over more of them: bounds the time of a decision where many
nodes are too full for an even share."""

ROUNDING = 1e-10  # Sums of fractional demands, in cores, may be off by this much.

TasksByNode = tuple[tuple[int, int, int], ...]
"""Node's index, workers, servers."""


class EvenPlacer:
    """The free GPUs and cores of a cluster's nodes, from which workers and servers are placed evenly.

    gpus, cpus: free on each node. free_gpus, free_cpus: of all nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.names = [node.name for node in cluster.nodes]
        self.gpus = [node.gpus for node in cluster.nodes]
        self.cpus = [float(node.cpus) for node in cluster.nodes]
        self.free_gpus = sum(self.gpus)
        self.free_cpus = sum(self.cpus)
        self._index = {name: i for i, name in enumerate(self.names)}
        # For workers, nodes with most free cores come first, then most free GPUs; stale entries are dropped when they come up.
        self._for_workers = [(-self.cpus[i], -float(self.gpus[i]), i) for i in range(len(self.names)) if self.gpus[i]]
        # For servers, nodes without free GPUs come first, so that cores are left for the workers of others.
        self._for_servers = [(float(self.gpus[i] > 0), -self.cpus[i], i) for i in range(len(self.names)) if self.cpus[i] > 0]
        heapify(self._for_workers)
        heapify(self._for_servers)

    def fits(self, grant: Grant, request: Request) -> bool:
        """Return whether what is granted is free, on nodes that are up."""
        needs = self._counts(grant)
        return needs is not None and all(
            self.gpus[i] >= workers and self.cpus[i] + ROUNDING >= workers * request.worker_cpus + servers * request.server_cpus
            for i, workers, servers in needs
        )

    def reserve(self, grant: Grant, request: Request) -> None:
        """Reserve what is granted, which fits."""
        needs = self._counts(grant)
        assert needs is not None, "a grant that fits names nodes that are up"
        self._change(needs, request, 1)

    def keep_running(self, jobs: Iterable[Job]) -> dict[str, Grant]:
        """Reserve what the jobs hold and return it by job; grants on nodes that are gone, or out of bounds, are left out."""
        grants: dict[str, Grant] = {}
        for job in jobs:
            if job.grant and job.request.least <= job.grant.size <= job.request.most and self.fits(job.grant, job.request):
                self.reserve(job.grant, job.request)
                grants[job.key] = job.grant
        return grants

    def place(self, request: Request, workers: int, servers: int) -> Grant | None:
        """Reserve GPUs and cores for so many tasks and return them; None, and nothing reserved, if they do not fit.

        Evenly on the fewest nodes that hold both; else workers evenly on the fewest nodes and servers on others; else unevenly.
        """
        needed = workers * request.worker_cpus + servers * request.server_cpus
        if workers > self.free_gpus or needed > self.free_cpus + ROUNDING:
            return None
        beside = self._beside(request, workers, servers)
        if beside is not None:
            self._change(beside, request, 1)
            return self._grant(beside)
        of_workers = self._workers(request, workers)
        if of_workers is None:
            return None
        self._change(of_workers, request, 1)
        of_servers = self._servers(request, servers, of_workers)
        if of_servers is None:
            self._change(of_workers, request, -1)
            return None
        self._change(of_servers, request, 1)
        return self._grant((*of_workers, *of_servers))

    def _beside(self, request: Request, workers: int, servers: int) -> TasksByNode | None:
        """Return where each node has as many workers and servers as any other, but for one."""

        def fits(i: int, each: int, beside: int) -> bool:
            cores = each * request.worker_cpus + beside * request.server_cpus
            # Servers that took the cores of a node's other GPUs would leave those GPUs without any.
            left = (self.gpus[i] - each) * request.worker_cpus if servers else 0.0
            return self.gpus[i] >= each and self.cpus[i] + ROUNDING >= cores + left

        chosen = self._even(self._for_workers, self._worker_key, fits, workers, servers)
        if chosen is None:
            return None
        return tuple(
            (i, workers // len(chosen) + (n < workers % len(chosen)), servers // len(chosen) + (n < servers % len(chosen)))
            for n, i in enumerate(chosen)
        )

    def _workers(self, request: Request, workers: int) -> TasksByNode | None:
        def fits(i: int, each: int, _: int) -> bool:
            return self.gpus[i] >= each and self.cpus[i] + ROUNDING >= each * request.worker_cpus

        def most(i: int) -> int:
            return min(self.gpus[i], _times(self.cpus[i], request.worker_cpus, self.gpus[i]))

        chosen = self._even(self._for_workers, self._worker_key, fits, workers, 0)
        if chosen is not None:
            return tuple((i, workers // len(chosen) + (n < workers % len(chosen)), 0) for n, i in enumerate(chosen))
        uneven = self._uneven(self._for_workers, self._worker_key, most, workers)
        return None if uneven is None else tuple((i, count, 0) for i, count in uneven)

    def _servers(self, request: Request, servers: int, beside: TasksByNode) -> TasksByNode | None:
        if not servers * request.server_cpus:  # The servers need no cores of their own.
            return tuple((i, 0, servers // len(beside) + (n < servers % len(beside))) for n, (i, _, _) in enumerate(beside))

        def most(i: int) -> int:
            return _times(self.cpus[i], request.server_cpus, servers)

        chosen = self._even(self._for_servers, self._server_key, lambda i, each, _: most(i) >= each, servers, 0)
        if chosen is not None:
            return tuple((i, 0, servers // len(chosen) + (n < servers % len(chosen))) for n, i in enumerate(chosen))
        uneven = self._uneven(self._for_servers, self._server_key, most, servers)
        return None if uneven is None else tuple((i, 0, count) for i, count in uneven)

    def _even(
        self,
        heap: list[tuple[float, float, int]],
        key: Callable[[int], tuple[float, float, int] | None],
        fits: Callable[[int, int, int], bool],
        first: int,
        second: int,
    ) -> list[int] | None:
        """Return the fewest nodes on which an even split of `first`, and of `second` beside it, fits."""
        tried: list[int] = []
        ahead = self._freest(heap, key)
        try:
            each = first
            while each:
                nodes = -(-first // each)
                beside = -(-second // nodes)
                found = [i for i in tried if fits(i, each, beside)][:nodes]
                while len(found) < nodes and len(tried) < nodes + EXTRA_NODES_TRIED:
                    i = next(ahead, None)
                    if i is None:
                        break
                    tried.append(i)
                    if fits(i, each, beside):
                        found.append(i)
                if len(found) == nodes:
                    return found
                each = min(each - 1, -(-first // (nodes + 1)))
            return None
        finally:
            ahead.close()  # Closing puts the nodes back into the heap.

    def _uneven(
        self,
        heap: list[tuple[float, float, int]],
        key: Callable[[int], tuple[float, float, int] | None],
        most: Callable[[int], int],
        count: int,
    ) -> list[tuple[int, int]] | None:
        """Return nodes with as many as fit on each until there are `count`."""
        found: list[tuple[int, int]] = []
        ahead = self._freest(heap, key)
        try:
            for i in ahead:
                here = min(most(i), count)
                if here:
                    found.append((i, here))
                    count -= here
                if not count:
                    return found
            return None
        finally:
            ahead.close()

    def _freest(
        self, heap: list[tuple[float, float, int]], key: Callable[[int], tuple[float, float, int] | None]
    ) -> Generator[int, None, None]:
        """Yield nodes as the heap orders them, and put them back when closed."""
        popped: list[tuple[float, float, int]] = []
        seen: set[int] = set()
        try:
            while heap:
                entry = heappop(heap)
                i = entry[2]
                if i in seen or entry != key(i):
                    continue
                seen.add(i)
                popped.append(entry)
                yield i
        finally:
            for entry in popped:
                heappush(heap, entry)

    def _worker_key(self, i: int) -> tuple[float, float, int] | None:
        return (-self.cpus[i], -float(self.gpus[i]), i) if self.gpus[i] else None

    def _server_key(self, i: int) -> tuple[float, float, int] | None:
        return (float(self.gpus[i] > 0), -self.cpus[i], i) if self.cpus[i] > 0 else None

    def _change(self, tasks: TasksByNode, request: Request, sign: int) -> None:
        """Reserve tasks, or with a sign of -1 release them."""
        for i, workers, servers in tasks:
            cores = sign * (workers * request.worker_cpus + servers * request.server_cpus)
            self.gpus[i] -= sign * workers
            self.free_gpus -= sign * workers
            self.cpus[i] -= cores
            self.free_cpus -= cores
            for heap, key in ((self._for_workers, self._worker_key), (self._for_servers, self._server_key)):
                entry = key(i)
                if entry is not None:
                    heappush(heap, entry)

    def _counts(self, grant: Grant) -> TasksByNode | None:
        by_node: dict[str, list[int]] = {}
        for which, counts in enumerate((grant.gpus, grant.servers)):
            for node, count in counts:
                by_node.setdefault(node, [0, 0])[which] += count
        if not all(node in self._index for node in by_node):
            return None
        return tuple((self._index[node], workers, servers) for node, (workers, servers) in by_node.items())

    def _grant(self, tasks: TasksByNode) -> Grant:
        gpus: dict[str, int] = {}
        servers: dict[str, int] = {}
        for i, of_workers, of_servers in tasks:
            gpus[self.names[i]] = gpus.get(self.names[i], 0) + of_workers
            servers[self.names[i]] = servers.get(self.names[i], 0) + of_servers
        return Grant.of(gpus, servers)


def _times(cores: float, each: float, otherwise: int) -> int:
    """Return how often `each` fits; `otherwise` where nothing is asked for."""
    return int((cores + ROUNDING) / each) if each > 0 else otherwise
