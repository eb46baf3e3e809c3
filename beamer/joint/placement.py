"""Where trials run, by the links between their nodes: a GPU policy says how many GPUs each has, and its nodes are chosen anew.

GPU policies place compactly and know nothing of links: a trial on several nodes then meets others on links that it need not
use. Trials that start or move go to nodes of the same numbers of GPUs between which their synchronisation takes least beside
what runs; their ranks follow each other from node to nearest node, so that a ring crosses as few switches as it can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from beamer.gpu.attempts import traffic_on, workers_on
from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.policy import GpuPolicy
from beamer.joint.links import LinkUse
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec, job_spec
from beamer.studies.model import split_key

MOST_TRIED = 32  # nodes from which the others of a trial are looked for


class LinkAware(GpuPolicy[Any]):
    """Decide as another policy how many GPUs trials have, and by the links of a fabric where these are.

    Trials with parameter servers or shares of cores stay where that policy places them, and all do if not all can be placed.
    """

    def __init__(self, policy: GpuPolicy[Any], fabric: Fabric) -> None:
        self.name = policy.name  # type: ignore[misc]  # it stands for the other
        self.State = policy.State
        self._policy = policy
        self._footprints = Footprints(fabric)

    def initial(self) -> Any:
        """Return what the other policy remembers."""
        return self._policy.initial()

    def allocate(
        self, state: Any, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Any, Allocation, float | None]:
        """Return what the other policy decides, on other nodes."""
        state, allocation, wake_s = self._policy.allocate(state, cluster, jobs, now, rng)
        return state, placed_by_links(cluster, jobs, allocation, self._footprints), wake_s


def placed_by_links(cluster: Cluster, jobs: Sequence[Job], allocation: Allocation, footprints: Footprints) -> Allocation:
    """Return an allocation of the same numbers of GPUs by node, of which trials that start or move have chosen their nodes."""
    job_of = {job.key: job for job in jobs}
    free = {node.name: node.gpus for node in cluster.nodes}
    use = LinkUse(len(footprints.fabric.links))
    found: dict[str, Grant] = {}
    choosing: list[str] = []
    for key, grant in allocation.items():
        stays = _as_before(job_of[key], grant)
        if stays is None and grant.nodes > 1 and _is_free_to_move(job_of[key], grant):
            choosing.append(key)
            continue
        found[key] = grant if stays is None else stays
        for node, count in grant.gpus:
            free[node] -= count
        use.add(*_loading(job_of[key], found[key], footprints))
    for key in sorted(choosing, key=lambda key: -(job_of[key].request.traffic.sync_bytes or 0)):
        chosen = _chosen(job_of[key], allocation[key], free, use, footprints)
        if chosen is None:
            return allocation
        found[key] = chosen
        for node, count in chosen.gpus:
            free[node] -= count
        use.add(*_loading(job_of[key], chosen, footprints))
    return {key: found[key] for key in allocation}


def _as_before(job: Job, grant: Grant) -> Grant | None:
    """Return what a job has, or had when it was suspended, if it is granted the same; its ranks keep their order."""
    before = job.grant or job.last
    if before is None or (dict(before.gpus), before.servers) != (dict(grant.gpus), grant.servers):
        return None
    return replace(grant, gpus=before.gpus)


def _is_free_to_move(job: Job, grant: Grant) -> bool:
    return not (grant.servers or job.request.worker_cpus)


def _loading(job: Job, grant: Grant, footprints: Footprints) -> tuple[JobSpec, Any]:
    """Return a job on what it is granted, and what it loads."""
    devices = tuple((node, index) for node, count in grant.gpus for index in range(count))
    traffic = traffic_on(job, grant)
    spec = job_spec(split_key(job.key)[1], workers_on(grant, devices), traffic)
    return spec, footprints.of(spec, 0)


def _chosen(job: Job, grant: Grant, free: Mapping[str, int], use: LinkUse, footprints: Footprints) -> Grant | None:
    """Return the nodes between which a job's synchronisation takes least; None if no nodes have as many GPUs free."""
    counts = sorted((count for _, count in grant.gpus), reverse=True)
    granted = set(dict(grant.gpus))
    starts = [node for node, gpus in free.items() if gpus >= counts[0]]
    starts.sort(key=lambda node: node not in granted)  # of equals, where the policy has placed it
    candidates = []
    for start in starts[:MOST_TRIED]:
        nodes = _nearest(start, counts, free, granted, footprints.fabric)
        if nodes:
            candidates.append(replace(grant, gpus=tuple(zip(nodes, counts, strict=True))))
    return min(candidates, key=lambda one: use.found_s(_loading(job, one, footprints)[1]), default=None)


def _nearest(start: str, counts: Sequence[int], free: Mapping[str, int], granted: set[str], fabric: Fabric) -> list[str]:
    """Return nodes with so many free GPUs each, every one the nearest to the one before; none if there are not as many."""
    nodes = [start]
    for count in counts[1:]:
        last = nodes[-1]
        others = [node for node, gpus in free.items() if gpus >= count and node not in nodes]
        if not others:
            return []
        nodes.append(min(others, key=lambda node: (len(fabric.path(last, node)), node not in granted)))
    return nodes
