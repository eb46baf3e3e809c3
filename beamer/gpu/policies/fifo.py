"""First come, first served: the baseline of every scheduler, and what cluster managers do by default."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from beamer.decision.policy import Stateless
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import CompactPlacer, can_ever_run
from beamer.gpu.policy import GpuPolicy


@dataclass(frozen=True)
class Fifo(GpuPolicy[Stateless]):
    """Run jobs to their end at the size they ask for, in order of submission, without backfilling."""

    name = "fifo"
    State = Stateless

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Keep what runs and start the queue's head as long as it fits."""
        placer = CompactPlacer(cluster)
        grants = placer.keep_running(jobs)
        for job in jobs:
            if job.key in grants:
                continue
            grant = placer.place(job, job.request.gpus)
            if grant:
                grants[job.key] = grant
            elif can_ever_run(job, cluster):  # A job that never fits must not block the queue.
                break
        return state, grants, None
