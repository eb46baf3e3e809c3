"""First come, first served: the baseline of every scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.placement import Room, kept
from beamer.gpu.policies.base import GpuPolicy, Nothing


@dataclass(frozen=True)
class Fifo(GpuPolicy[Nothing]):
    """Run jobs to their end at the size they ask for, in order of submission; nobody overtakes one that waits."""

    name = "fifo"
    State = Nothing

    def allocate(
        self, state: Nothing, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Nothing, Allocation, float | None]:
        """Keep what runs and start the queue's head as long as it fits."""
        room = Room(cluster)
        grants = kept(jobs, room)
        for job in jobs:
            if job.key in grants:
                continue
            if job.request.gpus > cluster.gpus:
                continue  # it can never run; it must not hold up the others
            place = room.place(job.request.gpus, dict(job.last.gpus) if job.last else None)
            if place is None:
                break
            room.take(place)
            grants[job.key] = Grant(place)
        return state, grants, None
