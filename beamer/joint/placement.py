"""Where trials run, by the links between their nodes: a GPU policy says how many GPUs each has, and its nodes are chosen anew.

GPU policies place compactly and know nothing of links: a trial on several nodes then meets others on links that it need not
use. Trials that start or move go to nodes of the same numbers of GPUs between which their synchronisation takes least beside
what runs.
"""

from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Any

from beamer.errors import InputError
from beamer.gpu.attempts import traffic_on, workers_on
from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.policy import GpuPolicy
from beamer.joint.links import LinkUse
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprint, Footprints
from beamer.network.job import JobSpec, job_spec
from beamer.studies.model import split_key

MOST_TRIED = 32  # nodes from which the others of a trial are looked for


class LinkAware(GpuPolicy[Any]):
    """Decide as another policy how many GPUs trials have, and by the links of a fabric where these are.

    Trials with parameter servers or shares of cores stay where that policy places them, as do those whose collective cannot run
    so; all do if not all can be placed.
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

    def place(key: str, grant: Grant, loading: Loading | None) -> None:
        found[key] = grant
        for node, count in grant.gpus:
            free[node] -= count
        if loading is not None:
            use.add(*loading)

    choosing: list[tuple[int, str]] = []
    for key, grant in allocation.items():
        loading = _loading(job_of[key], grant, footprints)
        if loading is None or grant.nodes == 1 or not _may_choose(job_of[key], grant):
            place(key, grant, loading)
        else:
            choosing.append((-loading[0].sync_bytes, key))
    for _, key in sorted(choosing):
        chosen = _chosen(job_of[key], allocation[key], free, use, footprints)
        if chosen is None:
            return allocation
        place(key, chosen, _loading(job_of[key], chosen, footprints))
    return {key: found[key] for key in allocation}


Loading = tuple[JobSpec, Footprint]
"""A job on what it is granted, and what it loads."""


def _may_choose(job: Job, grant: Grant) -> bool:
    """Return whether a job may be given other nodes: one that neither stays nor is resumed where its memory lies."""
    before = job.grant or job.last
    stays = before is not None and (before.gpus, before.servers) == (grant.gpus, grant.servers)
    return not (stays or grant.servers or job.request.worker_cpus)


def _loading(job: Job, grant: Grant, footprints: Footprints) -> Loading | None:
    """Return what a job loads on what it is granted; None where its collective cannot run so."""
    devices = tuple((node, index) for node, count in grant.gpus for index in range(count))
    spec = job_spec(split_key(job.key)[1], workers_on(grant, devices), traffic_on(job, grant))
    try:
        return spec, footprints.of(spec, 0)
    except InputError:
        return None


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
            candidates.append(Grant.of(dict(zip(nodes, counts, strict=True)), batch_size=grant.batch_size))

    def takes_s(one: Grant) -> tuple[float, float]:
        loading = _loading(job, one, footprints)
        return use.found_s(loading[1]) if loading else (inf, inf)

    return min(candidates, key=takes_s, default=None)


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
