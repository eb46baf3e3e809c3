"""Where free GPUs are taken from: on the fewest nodes, leaving large gaps whole.

`Room` is what a policy fills up while it decides: nodes by the number of their free GPUs, so that placing a job does not look
at all of them.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace

from beamer.gpu.model import Cluster, Grant, Job


class Room:
    """The free GPUs of a cluster, changed by `take` and `put_back`.

    free: by node. total: of all nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.free = {node.name: node.gpus for node in cluster.nodes}
        self.total = cluster.gpus
        most = max(self.free.values(), default=0)
        self._by_free: list[dict[str, None]] = [{} for _ in range(most + 1)]
        for name, count in self.free.items():
            self._by_free[count][name] = None

    def fits(self, gpus: Iterable[tuple[str, int]]) -> bool:
        """Say whether so many GPUs are free on each of these nodes."""
        return all(self.free.get(node, 0) >= count for node, count in gpus)

    def take(self, gpus: Iterable[tuple[str, int]]) -> None:
        """Take so many GPUs of each node."""
        for node, count in gpus:
            self._set(node, self.free[node] - count)

    def put_back(self, gpus: Iterable[tuple[str, int]]) -> None:
        """Give so many GPUs of each node back."""
        for node, count in gpus:
            self._set(node, self.free[node] + count)

    def place(self, count: int, prefer: Mapping[str, int] | None = None) -> tuple[tuple[str, int], ...] | None:
        """Return where `count` free GPUs lie on few nodes, by node in order of names; None if there are not as many.

        prefer: by node, how many the job has or had there; they are used first.
        """
        if count > self.total:
            return None
        chosen: dict[str, int] = {}
        for node, had in sorted((prefer or {}).items(), key=lambda item: (-item[1], item[0])):
            here = min(self.free.get(node, 0), count, had)
            if here:
                chosen[node] = here
                count -= here
        while count:
            node = self._best(count, chosen)
            here = min(self.free[node] - chosen.get(node, 0), count)
            chosen[node] = chosen.get(node, 0) + here
            count -= here
        return tuple(sorted(chosen.items()))

    def spread(self, count: int) -> tuple[tuple[str, int], ...]:
        """Return where `count` free GPUs, of at least as many, lie on the emptiest nodes, one GPU after another."""
        chosen: dict[str, int] = {}
        gaps = [(-free, place, name) for place, (name, free) in enumerate(self.free.items()) if free]
        heapify(gaps)
        for _ in range(count):
            gap, place, name = gaps[0]
            chosen[name] = chosen.get(name, 0) + 1
            if gap == -1:
                heappop(gaps)
            else:
                heapreplace(gaps, (gap + 1, place, name))
        return tuple(sorted(chosen.items()))

    def _best(self, count: int, chosen: Mapping[str, int]) -> str:
        """Return the node with the smallest gap that holds `count`, or the largest gap there is."""
        for node, had in chosen.items():
            if self.free[node] > had:  # a node that is used anyway
                return node
        for free in range(count, len(self._by_free)):
            for node in self._by_free[free]:
                if node not in chosen:
                    return node
        for free in range(min(count, len(self._by_free)) - 1, 0, -1):
            for node in self._by_free[free]:
                if node not in chosen:
                    return node
        raise AssertionError("the total does not agree with the nodes")

    def _set(self, node: str, free: int) -> None:
        before = self.free[node]
        del self._by_free[before][node]
        self.total += free - before
        self.free[node] = free
        self._by_free[free][node] = None


def pack(cluster: Cluster, order: Iterable[Job]) -> dict[str, Grant]:
    """Grant jobs the GPUs that they ask for, in order, as far as they fit; those that run stay in place."""
    left = cluster.gpus
    chosen: list[Job] = []
    for job in order:
        if job.request.gpus <= left:
            left -= job.request.gpus
            chosen.append(job)
            if not left:
                break
    room = Room(cluster)
    grants = kept((job for job in chosen if job.grant and job.grant.size == job.request.gpus), room)
    for job in chosen:
        if job.key not in grants:
            place = room.place(job.request.gpus, dict(job.last.gpus) if job.last else None)
            assert place is not None
            room.take(place)
            grants[job.key] = Grant(place)
    return grants


def kept(jobs: Iterable[Job], room: Room) -> dict[str, Grant]:
    """Take what the jobs hold and return it by job; grants on nodes that are gone are left out."""
    grants: dict[str, Grant] = {}
    for job in jobs:
        if job.grant and room.fits(job.grant.gpus):
            room.take(job.grant.gpus)
            grants[job.key] = job.grant
    return grants
