"""Where free GPUs are taken from: on the fewest nodes, leaving large gaps whole.

`Room` is what a policy fills up while it decides: nodes by the number of their free GPUs, so that placing a job does not look
at all of them.
"""

from collections.abc import Iterable, Mapping

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


def kept(jobs: Iterable[Job], room: Room) -> dict[str, Grant]:
    """Take what the jobs hold and return it by job; grants on nodes that are gone are left out."""
    grants: dict[str, Grant] = {}
    for job in jobs:
        if job.grant and room.fits(job.grant.gpus):
            room.take(job.grant.gpus)
            grants[job.key] = job.grant
    return grants
