"""Dominant resource fairness (DRF): the job with the smallest dominant share gets the next task."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from beamer.gpu.even_placement import EvenPlacer
from beamer.gpu.model import Job
from beamer.gpu.policy import check_at_least, check_interval
from beamer.gpu.round_based import ClusterBudget, RoundBased, TaskCounts


@dataclass(frozen=True)
class Drf(RoundBased):
    """Fill up by dominant share of GPUs and cores, in whole tasks: a worker, with its server where there are any.

    Progressive filling as in Algorithm 1 of Ghodsi, Zaharia, Hindman, Konwinski, Shenker and Stoica 2011, "Dominant resource
    fairness: fair allocation of multiple resource types", with jobs for users. Ours: rounds, a start at every job's minimum,
    and that of equal shares the job that has held the fewest GPU-seconds comes first, so that jobs take turns where not all can
    run.

    interval_s: between rounds. patience_s: after a round, until the next for a job that has arrived since and does not fit.
    """

    interval_s: float = 600.0
    patience_s: float = 60.0

    name = "drf"
    fair = True

    def __post_init__(self) -> None:
        check_interval(self, "interval_s")
        check_at_least(self, 0, "patience_s", endless=True)

    @property
    def rounds(self) -> tuple[float, float]:
        """interval_s and patience_s."""
        return self.interval_s, self.patience_s

    def task_counts(self, placer: EvenPlacer, jobs: Sequence[Job], now: float) -> TaskCounts:
        """Return workers and servers by job, by progressive filling."""
        budget = ClusterBudget(placer)
        ordered = sorted(jobs, key=lambda job: job.gpu_seconds_at(now))
        workers = {job.key: job.request.least for job in ordered if budget.reserve(job, *self.smallest(job))}
        growing = [job for job in ordered if job.key in workers]

        def place(order: int) -> tuple[float, bool, int]:
            job = growing[order]
            count = workers[job.key]
            # Of equal jobs, the one that holds more comes first; else the remainder would move to another job at every round.
            return (
                budget.dominant_share(job, count, count * job.request.servers),
                not job.grant or job.grant.size <= count,
                order,
            )

        heap = [place(order) for order in range(len(growing))]
        heapify(heap)
        while heap and budget.gpus:
            order = heap[0][2]
            job = growing[order]
            if workers[job.key] < job.request.most and budget.reserve(job, 1, int(job.request.servers)):
                workers[job.key] += 1
                heapreplace(heap, place(order))
            else:
                heappop(heap)
        return {job.key: (workers[job.key], workers[job.key] * job.request.servers) for job in growing}
