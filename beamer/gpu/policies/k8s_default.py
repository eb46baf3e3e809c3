"""What a cluster does that knows pods and nothing of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.placement import Room
from beamer.gpu.policies.base import GpuPolicy, Nothing


@dataclass(frozen=True)
class K8sDefault(GpuPolicy[Nothing]):
    """Place pods one by one in order of submission, each on the emptiest node, and never take one away. [rebuilt]

    A pod is one GPU. A job that asks for a gang gets all its pods or none; another holds those that fit while it waits for the
    rest, as the Kubernetes default scheduler leaves it.
    """

    name = "k8s-default"
    State = Nothing

    def allocate(
        self, state: Nothing, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Nothing, Allocation, float | None]:
        """Keep what runs, complete what waits, start what fits."""
        room = Room(cluster)
        grants: dict[str, Grant] = {}
        for job in jobs:
            if job.grant and room.fits(job.grant.gpus):
                room.take(job.grant.gpus)
                grants[job.key] = job.grant
        for job in jobs:
            had = grants.get(job.key)
            missing = job.request.gpus - (had.size if had else 0)
            if not room.total:
                break
            if missing > 0 and (missing <= room.total or not job.request.gang):
                added = room.spread(min(missing, room.total))
                room.take(added)
                both = dict(had.gpus) if had else {}
                for node, count in added:
                    both[node] = both.get(node, 0) + count
                grants[job.key] = Grant.of(both)
        return state, grants, None
