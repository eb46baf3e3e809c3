"""Where trials run, by the links between their nodes: a GPU policy says how many GPUs each has, and its nodes are chosen anew.

GPU policies place compactly and know nothing of links: a trial on several nodes then meets others on links that it need not
use. Trials that start or move go to nodes of the same numbers of GPUs between which their synchronisation takes least beside
what runs.
"""

from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Any

from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.joint.links import LinkUse, Load, loading
from beamer.joint.network_aware import NetworkAware
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints

MAX_TRIED_NODES = 32  # A trial's other nodes are looked for from at most so many nodes.


class LinkAware(NetworkAware):
    """Decide as another policy how many GPUs trials have, and by the links of a fabric where these are.

    Trials with parameter servers or shares of cores stay where that policy places them, as do those whose collective cannot run
    so; all do if not all can be placed.
    """

    def allocate(
        self, state: Any, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Any, Allocation, float | None]:
        """Return what the other policy decides, on other nodes."""
        state, allocation, wake_s = self.policy.allocate(state, cluster, jobs, now, rng)
        return state, placed_by_links(cluster, jobs, allocation, self.footprints), wake_s


def placed_by_links(cluster: Cluster, jobs: Sequence[Job], allocation: Allocation, footprints: Footprints) -> Allocation:
    """Return an allocation of the same numbers of GPUs by node, of which trials that start or move have chosen their nodes."""
    job_of = {job.key: job for job in jobs}
    free = {node.name: node.gpus for node in cluster.nodes}
    use = LinkUse(len(footprints.fabric.links))
    found: dict[str, Grant] = {}

    def place(key: str, grant: Grant, load: Load | None) -> None:
        found[key] = grant
        for node, count in grant.gpus:
            free[node] -= count
        if load is not None:
            use.add(*load)

    choosing: list[tuple[int, str]] = []
    for key, grant in allocation.items():
        load = loading(job_of[key], grant, cluster, footprints)
        if load is None or grant.nodes == 1 or not _may_choose(job_of[key], grant):
            place(key, grant, load)
        else:
            choosing.append((-load[0].sync_bytes, key))
    for _, key in sorted(choosing):
        chosen = _chosen(job_of[key], allocation[key], cluster, free, use, footprints)
        if chosen is None:
            return allocation
        place(key, chosen, loading(job_of[key], chosen, cluster, footprints))
    return {key: found[key] for key in allocation}


def _may_choose(job: Job, grant: Grant) -> bool:
    """Return whether a job may be given other nodes: one that neither stays nor is resumed where its memory lies."""
    before = job.grant or job.last
    stays = before is not None and (before.gpus, before.servers) == (grant.gpus, grant.servers)
    return not (stays or grant.servers or job.request.worker_cpus)


def _chosen(
    job: Job, grant: Grant, cluster: Cluster, free: Mapping[str, int], use: LinkUse, footprints: Footprints
) -> Grant | None:
    """Return the nodes between which a job's synchronisation takes least; None if no nodes have as many GPUs free."""
    counts = sorted((count for _, count in grant.gpus), reverse=True)
    granted = set(dict(grant.gpus))
    starts = [node for node, gpus in free.items() if gpus >= counts[0]]
    starts.sort(key=lambda node: node not in granted)  # Of equal nodes, those where the policy has placed the job come first.
    candidates = []
    for start in starts[:MAX_TRIED_NODES]:
        nodes = _nearest(start, counts, free, granted, footprints.fabric)
        if nodes:
            candidates.append(Grant.of(dict(zip(nodes, counts, strict=True)), batch_size=grant.batch_size))

    def takes_s(one: Grant) -> tuple[float, float]:
        load = loading(job, one, cluster, footprints)
        return use.found_s(load[1]) if load else (inf, inf)

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
