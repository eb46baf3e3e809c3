"""The Kubernetes default scheduler: it knows pods and nothing of jobs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from beamer.decision.policy import Stateless
from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.placement import CompactPlacer
from beamer.gpu.policy import GpuPolicy


@dataclass(frozen=True)
class K8sDefault(GpuPolicy[Stateless]):
    """Place pods one by one in order of submission, each on the emptiest node, and never take one away.

    Our model of kube-scheduler with pods of equal priority, as its documentation describes it: a queue in order of creation,
    and nodes scored by what is free on them (`NodeResourcesFit`, strategy `LeastAllocated`). A pod is one GPU. A job that asks
    for a gang gets all its pods or none, for which Kubernetes needs a plug-in; any other holds those that fit while it waits
    for the rest.
    """

    name = "k8s-default"
    State = Stateless

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Keep what runs, complete what waits, start what fits."""
        placer = CompactPlacer(cluster)
        grants = placer.keep_running(jobs)
        for job in jobs:
            had = grants.get(job.key)
            missing = job.request.gpus - (had.size if had else 0)
            if not placer.free_gpus:
                break
            added = placer.spread(job, missing, gang=job.request.gang) if missing > 0 else None
            if added:
                grants[job.key] = _both(had, added) if had else added
        return state, grants, None


def _both(one: Grant, other: Grant) -> Grant:
    """Return the sum of two grants."""
    gpus, servers = Counter(dict(one.gpus)), Counter(dict(one.servers))
    gpus.update(dict(other.gpus))
    servers.update(dict(other.servers))
    return Grant.of(gpus, servers)
