"""Optimus: give the next worker or parameter server to the job whose remaining time it shortens most."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from math import isfinite

from beamer.gpu.even_placement import EvenPlacer
from beamer.gpu.model import Job
from beamer.gpu.policy import check_at_least, check_interval, check_positive
from beamer.gpu.predictors.all_reduce import AllReduceSpeed, all_reduce_speeds
from beamer.gpu.predictors.loss_curve import fit_inverse, thinned
from beamer.gpu.predictors.loss_trend import has_diverged
from beamer.gpu.predictors.speed import SpeedModel, speed_of, typical_step_s
from beamer.gpu.round_based import ClusterBudget, RoundBased, TaskCounts

MIN_COST = 1e-12  # A task without demands has this dominant share, so that no gain at no cost is none, rather than 0/0.


@dataclass(frozen=True)
class Optimus(RoundBased):
    """Start jobs small in order of arrival, then grow those that gain most, by predicted convergence and speed.

    From Peng, Bao, Chen, Wu and Guo 2018, "Optimus: an efficient dynamic resource scheduler for deep learning clusters":
    convergence by online fitting (section 3.1), speed by numbers of workers and servers (3.2), one worker and one server for
    every job and then the largest marginal gain per dominant resource (4.1), even placement on the fewest nodes (4.2). Ours:
    the speed of jobs without servers (`beamer.gpu.predictors.all_reduce`), `patience_s`, `servers_per_gpu`, what happens
    between rounds (`beamer.gpu.round_based`), and that a job which has diverged (`beamer.gpu.predictors.loss_trend`) starts
    last in a round and does not grow.
    """

    interval_s: float = 600.0
    """Seconds between rounds."""
    patience_s: float = 60.0
    """Seconds after a round until the next, for a job that has arrived since and does not fit.

    The published scheduler lets it wait for the interval (infinite), which is worse for waiting jobs.
    """
    threshold: float = 0.002
    """A job counts as converged when an epoch's predicted drop is below this part of its largest loss.

    It is never expected to take more iterations than were requested. 0: every job runs for as many as it requested.
    """
    servers_per_gpu: float = 2.0
    """The most servers of a job for each GPU that it can have at most.

    Without a bound, a speed model that predicts no harm from servers takes all cores. Where servers ask for no cores, nothing
    else bounds them: it is for each GPU that the job has.
    """

    name = "optimus"

    def __post_init__(self) -> None:
        check_interval(self, "interval_s")
        check_positive(self, "servers_per_gpu")
        check_at_least(self, 0, "threshold")
        check_at_least(self, 0, "patience_s", endless=True)

    @property
    def rounds(self) -> tuple[float, float]:
        """interval_s and patience_s."""
        return self.interval_s, self.patience_s

    def smallest(self, job: Job) -> tuple[int, int]:
        """Return the fewest workers a job runs with, and one server."""
        return job.request.least, int(job.request.servers)

    def task_counts(self, placer: EvenPlacer, jobs: Sequence[Job], now: float) -> TaskCounts:
        """Return workers and servers by job: one each, then by marginal gain until there is none, or no placer."""
        budget = ClusterBudget(placer)
        started = [job for job in sorted(jobs, key=has_diverged) if budget.reserve(job, *self.smallest(job))]
        typical_s = typical_step_s(started)
        speeds = all_reduce_speeds(started, max(placer.gpus, default=0))
        growing = [
            _GrowingJob(self, job, budget, speeds.get(job.key) or speed_of(job, typical_s))
            for job in started
            if self._may_grow(job, budget) and not has_diverged(job)
        ]
        heap = [(-grown.gain, order) for order, grown in enumerate(growing) if grown.gain > 0]
        heapify(heap)
        while heap:
            _, order = heap[0]
            grown = growing[order]
            if budget.reserve(grown.job, *grown.step):
                grown.grow()
            else:  # A task that does not fit now will not fit later in this round: the other kind of task is tried.
                grown.exclude_step()
            if grown.gain > 0:
                heapreplace(heap, (-grown.gain, order))
            else:
                heappop(heap)
        sizes = {job.key: self.smallest(job) for job in started}
        return sizes | {grown.job.key: (grown.workers, grown.servers) for grown in growing}

    def _may_grow(self, job: Job, budget: ClusterBudget) -> bool:
        request = job.request
        return (budget.gpus > 0 and request.most > request.least) or (request.servers and budget.cpus >= request.server_cpus)

    def remaining(self, job: Job) -> float:
        """Return the iterations that a job is predicted to have left, at least those of one epoch unless it ends sooner."""
        if not self.threshold or not job.reports:
            return job.remaining
        reports = thinned(job.reports)
        curve = fit_inverse([report.iteration for report in reports], [report.loss for report in reports])
        left = curve.until_drop(self.threshold, job.request.epoch, job.done)
        if not left.known or not isfinite(left.value):
            return job.remaining
        return min(max(left.value, float(job.request.epoch)), job.remaining)


class _GrowingJob:
    """A job while it grows. step: the workers and servers to be added next; gain: seconds saved per dominant share of that."""

    def __init__(self, policy: Optimus, job: Job, budget: ClusterBudget, model: SpeedModel | AllReduceSpeed) -> None:
        self.job = job
        self.workers, self.servers = policy.smallest(job)
        self._servers_per_gpu = policy.servers_per_gpu if job.request.servers else 0.0
        self._most_workers = min(job.request.most, budget.total_gpus)
        self._may_add = [True, True]
        self._costs = (max(budget.dominant_share(job, 1, 0), MIN_COST), max(budget.dominant_share(job, 0, 1), MIN_COST))
        self._model = model
        self._remaining = policy.remaining(job)
        self._now_s = self._time_s(self.workers, self.servers)
        self.gain, self.step = 0.0, (0, 0)
        self._choose_step()

    def grow(self) -> None:
        """Take the step."""
        self.workers, self.servers = self.workers + self.step[0], self.servers + self.step[1]
        self._now_s = self._time_s(self.workers, self.servers)
        self._choose_step()

    def exclude_step(self) -> None:
        """Record that the step does not fit."""
        self._may_add[self.step[0] == 0] = False
        self._choose_step()

    def _choose_step(self) -> None:
        self.gain, self.step = 0.0, (0, 0)
        workers, servers = self.workers, self.servers
        if self._may_add[0] and workers < self.job.request.most:
            # Servers that cost nothing are added with a worker, as a worker alone may gain nothing.
            along = 0 if self.job.request.server_cpus else max(self._most_servers(workers + 1) - servers, 0)
            then_s, more = min((self._time_s(workers + 1, servers + count), count) for count in {0, along})
            self.gain, self.step = (self._now_s - then_s) / self._costs[0], (1, more)
        if self._may_add[1] and servers < self._most_servers(workers):
            gain = (self._now_s - self._time_s(workers, servers + 1)) / self._costs[1]
            if gain > self.gain:
                self.gain, self.step = gain, (0, 1)

    def _most_servers(self, workers: int) -> int:
        by = self._most_workers if self.job.request.server_cpus else workers
        return round(by * self._servers_per_gpu)

    def _time_s(self, workers: int, servers: int) -> float:
        return self._remaining * self._model.step_s(workers, max(servers, 1), self.job.request.batch_size)
