"""Elastic, non-intrusive: GPUs go to the job that they shorten most, if that is worth a restart of its training process."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from typing import ClassVar

from beamer.decision.policy import Stateless
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import CompactPlacer, jobs_that_fit, place_sizes
from beamer.gpu.policy import GpuPolicy, check_at_least
from beamer.gpu.predictors.speed import interpolated_throughput, throughputs, typical_step_s

NEVER_S = 1e18  # A job that makes no progress takes so long; the time is finite, so that differences are numbers.


@dataclass(frozen=True)
class Elastic(GpuPolicy[Stateless]):
    """Shrink running jobs for those that arrive, grow them when GPUs are free.

    After Wang, Gonzalez, Zhou, Williams, Friedman, Havemann and Woo 2020, "An efficient and non-intrusive GPU scheduling
    framework for deep learning training systems" (SC '20): the scheduler allocates and reallocates GPUs by the progress of
    training jobs, and a side-car beside each job restarts its training process on another number of GPUs, without a change to
    the framework. The rule itself is our reconstruction from the abstract:

    A job that arrives gets its minimum number of GPUs; where they are short, the running job that loses least gives one up, as
    long as waiting for the next job to end would cost more than the restarts. A free GPU goes to the job that it shortens most;
    a running job is restarted for it only if the seconds saved exceed `margin` times what its restart takes.
    """

    margin: float = 1.0

    name: ClassVar[str] = "elastic"
    resizes = True
    State = Stateless

    def __post_init__(self) -> None:
        check_at_least(self, 0, "margin")

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Admit waiting jobs, then hand out free GPUs."""
        jobs = jobs_that_fit(cluster, jobs)
        remaining = _RemainingTime(jobs)
        placer = CompactPlacer(cluster)
        held = {key: grant.size for key, grant in placer.keep_running(jobs).items()}
        running = _Running(jobs, held, remaining)
        free = placer.free_gpus
        for job in jobs:
            if job.key not in held:
                free = self._admit(job, running, free)
        return state, place_sizes(cluster, jobs, self._grown(jobs, running.sizes, held, free, remaining)), None

    def _grown(
        self, jobs: Sequence[Job], sizes: Mapping[str, int], held: Mapping[str, int], free: int, remaining: "_RemainingTime"
    ) -> dict[str, int]:
        """Return the sizes after every free GPU went to the job that it shortens most, if all that it gets pays for a restart.

        Whether it does is known when the GPUs are handed out. Those of jobs for which it does not are handed out again: the
        order among the others is the same as if these had never taken part.
        """
        grown = dict(sizes)
        place = {job.key: number for number, job in enumerate(jobs)}

        def gain(job: Job) -> _Loss:
            size = grown[job.key]
            return remaining.seconds(job, size + 1) - remaining.seconds(job, size), place[job.key], size + 1, job

        gains = [gain(job) for job in jobs if 0 < sizes.get(job.key, 0) < job.request.most]
        heapify(gains)
        refused: set[str] = set()
        while free and gains:
            handed: dict[str, Job] = {}
            while free and gains:
                saved, _, size, job = heappop(gains)
                if saved >= 0 or job.key in refused:
                    continue
                grown[job.key] = size
                handed[job.key] = job
                free -= 1
                if size < job.request.most:
                    heappush(gains, gain(job))
            for key, job in handed.items():
                before = sizes[key]
                if held.get(key) != before:  # The job is restarted anyway.
                    continue
                if remaining.seconds(job, before) - remaining.seconds(job, grown[key]) <= self.margin * job.costs.restart_s:
                    refused.add(key)
                    free += grown[key] - before
                    grown[key] = before
        return grown

    def _admit(self, job: Job, running: "_Running", free: int) -> int:
        """Give a waiting job its least number of GPUs if that can be, and return how many are free then."""
        need = job.request.least
        if need > free:
            freed = running.shrink(need - free, self.margin)
            if not freed:
                return free
            free += freed
        running.start(job)
        return free - need


class _RemainingTime:
    """The remaining time T_j(n) of jobs on n GPUs, by measured speed, or the typical job's where nothing was measured."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._typical_s = typical_step_s(jobs)
        self._measured: dict[str, dict[int, float]] = {}
        self._known: dict[tuple[str, int], float] = {}

    def seconds(self, job: Job, gpus: int) -> float:
        """Return the seconds that a job has still to run on so many GPUs."""
        if (job.key, gpus) not in self._known:
            if job.key not in self._measured:
                self._measured[job.key] = throughputs(job.speeds) or {1: job.request.batch_size / self._typical_s}
            rate = interpolated_throughput(self._measured[job.key], gpus) / job.request.batch_size
            self._known[job.key, gpus] = job.remaining / rate if rate > 0 else NEVER_S
        return self._known[job.key, gpus]


class _Running:
    """The jobs that run, with what each would lose by a GPU less, while others are admitted.

    sizes: by key. Kept in heaps, so that admitting a job does not visit all of them; entries that later ones replace are
    dropped when they come up.
    """

    def __init__(self, jobs: Sequence[Job], sizes: Mapping[str, int], left: "_RemainingTime") -> None:
        self.sizes = dict(sizes)
        self._left = left
        self._place = {job.key: place for place, job in enumerate(jobs)}
        running = [job for job in jobs if job.key in sizes]
        self._losses = [self._loss(job, sizes[job.key]) for job in running if sizes[job.key] > job.request.least]
        self._ends = [self._end(job, sizes[job.key]) for job in running]
        heapify(self._losses)
        heapify(self._ends)

    def start(self, job: Job) -> None:
        """Add a job that starts with its minimum number of GPUs."""
        self.sizes[job.key] = job.request.least
        heappush(self._ends, self._end(job, job.request.least))

    def shrink(self, gpus: int, margin: float) -> int:
        """Take `gpus` from jobs, each from the job that loses least by it, and return how many were taken.

        None if there are too few, or if waiting for the next job to end costs less than the restarts and the losses.
        """
        shrunk: dict[str, tuple[Job, int]] = {}
        losses, taken = self._losses.copy(), 0
        while taken < gpus and losses:
            _, _, size, job = heappop(losses)
            shrunk[job.key] = job, size
            taken += 1
            if size > job.request.least:
                heappush(losses, self._loss(job, size))
        if taken < gpus or not self._cost_s(shrunk.values(), margin) < self._next_end_s():
            return 0
        self._losses = losses
        for job, size in shrunk.values():
            self.sizes[job.key] = size
            heappush(self._ends, self._end(job, size))
        return gpus

    def _cost_s(self, shrunk: Iterable[tuple[Job, int]], margin: float) -> float:
        left = self._left.seconds
        return sum(margin * job.costs.restart_s + left(job, size) - left(job, self.sizes[job.key]) for job, size in shrunk)

    def _next_end_s(self) -> float:
        while self._ends[0][2] != self.sizes[self._ends[0][3].key]:
            heappop(self._ends)
        return self._ends[0][0]

    def _loss(self, job: Job, size: int) -> "_Loss":
        """Return what a job of this size loses with one GPU less."""
        return self._left.seconds(job, size - 1) - self._left.seconds(job, size), self._place[job.key], size - 1, job

    def _end(self, job: Job, size: int) -> "_Loss":
        return self._left.seconds(job, size), self._place[job.key], size, job


_Loss = tuple[float, int, int, Job]
"""Seconds, by which entries are ordered; the job's place by submission, so that no two are equal; GPUs; the job."""
