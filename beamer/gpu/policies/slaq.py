"""SLAQ: give the next GPU to the job whose loss is predicted to fall most in the coming epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from math import inf, isfinite

from beamer.gpu.even_placement import EvenPlacer
from beamer.gpu.model import Job
from beamer.gpu.policy import check_at_least, check_positive, check_share
from beamer.gpu.predictors.loss_curve import LossCurve, fit_weighted, thinned
from beamer.gpu.predictors.speed import SpeedModel, speed_of, typical_step_s
from beamer.gpu.round_based import ClusterBudget, RoundBased, TaskCounts

REPORTS_TO_FIT = 3  # from so many reports on a curve is fitted: it has at least three parameters


@dataclass(frozen=True)
class Slaq(RoundBased):
    """Start jobs small, then grow those whose normalised loss is predicted to fall most.

    From Zhang, Stafman, Or and Freedman 2017, "SLAQ: quality-driven scheduling for distributed machine learning": losses are
    normalised by the job's own largest drop so far, predicted by a weighted fit of two families of curves, and resources are
    given one unit at a time to the largest predicted drop in the coming scheduling epoch. Our reconstruction of what the
    publication describes, made without its code, so that details may differ. Ours: GPUs in place of CPU cores, the speed model
    of `beamer.gpu.predictors.speed`, and what happens to jobs without a curve, below.

    epoch_s: between rounds, and the time for which drops are predicted. patience_s: after a round, until the next for a job
    that has arrived since and does not fit. decay: weight of a reported loss relative to the next one. Jobs start in order of
    arrival or, where they do not all fit, of the drop predicted for the coming epoch. A job whose curve is not known yet counts
    as dropping by its largest drop at the size it asked for, in proportion to its speed at others.
    """

    epoch_s: float = 60.0
    patience_s: float = 60.0
    decay: float = 0.9

    name = "slaq"

    def __post_init__(self) -> None:
        check_positive(self, "epoch_s", "decay")
        check_share(self, "decay")
        check_at_least(self, 0, "patience_s", endless=True)

    @property
    def rounds(self) -> tuple[float, float]:
        """epoch_s and patience_s."""
        return self.epoch_s, self.patience_s

    def task_counts(self, placer: EvenPlacer, jobs: Sequence[Job], now: float) -> TaskCounts:
        """Return workers by job, each with a server where there are any."""
        budget = ClusterBudget(placer)
        workers = {job.key: job.request.least for job in jobs if budget.reserve(job, *self.smallest(job))}
        typical_s = typical_step_s(jobs)
        if len(workers) < len(jobs):  # not all can start: first come those whose loss is predicted to fall most
            ranked = sorted(jobs, key=lambda job: -_GrowingJob(self, job, typical_s).drop)
            budget = ClusterBudget(placer)
            workers = {job.key: job.request.least for job in ranked if budget.reserve(job, *self.smallest(job))}
        started = [job for job in jobs if job.key in workers]
        if budget.gpus:
            growing = [_GrowingJob(self, job, typical_s) for job in started if job.request.most > job.request.least]
            heap = [(-grown.gain, order) for order, grown in enumerate(growing)]
            heapify(heap)
            while heap and budget.gpus:
                _, order = heap[0]
                grown = growing[order]
                job = grown.job
                if grown.gain > 0 and budget.reserve(job, 1, int(job.request.servers)):
                    workers[job.key] += 1
                    grown.grow()
                    heapreplace(heap, (-grown.gain, order))
                else:
                    heappop(heap)
        return {job.key: (workers[job.key], workers[job.key] * job.request.servers) for job in started}


class _GrowingJob:
    """A job while it grows. drop: of its normalised loss within the epoch. gain: what one GPU more adds to that."""

    def __init__(self, policy: Slaq, job: Job, typical_s: float) -> None:
        self.job = job
        self._workers = job.request.least
        self._epoch_s = policy.epoch_s
        self._model: SpeedModel = speed_of(job, typical_s)
        self._curve, self._largest = _curve(job, policy.decay)
        self._loss = self._curve.at(job.done) if self._curve else 0.0
        self.drop = self._at(self._workers)
        self.gain = self._next()

    def grow(self) -> None:
        """Give it one more."""
        self._workers += 1
        self.drop += self.gain
        self.gain = self._next()

    def _next(self) -> float:
        if self._workers >= self.job.request.most:
            return 0.0
        gain = self._at(self._workers + 1) - self.drop
        return gain if isfinite(gain) else 0.0

    def _at(self, workers: int) -> float:
        step_s = self._step_s(workers)
        if self._curve is None:
            return self._step_s(self.job.request.gpus) / step_s if step_s > 0 else 0.0
        iterations = min(self._epoch_s / step_s if step_s > 0 else inf, self.job.remaining)
        fall = self._loss - self._curve.at(self.job.done + iterations)
        return max(fall, 0.0) / self._largest

    def _step_s(self, workers: int) -> float:
        return self._model.step_s(workers, workers, self.job.request.batch_size)


def _curve(job: Job, decay: float) -> tuple[LossCurve | None, float]:
    """Return a job's curve and the largest drop between two of its reports; None while either is unknown."""
    if len(job.reports) < REPORTS_TO_FIT:
        return None, 1.0
    reports = thinned(job.reports)
    return _fitted(tuple([report.iteration for report in reports]), tuple([report.loss for report in reports]), decay)


@lru_cache(maxsize=1 << 16)  # of the jobs of a round, few have reported since the last one
def _fitted(iterations: tuple[float, ...], losses: tuple[float, ...], decay: float) -> tuple[LossCurve | None, float]:
    drops = [before - after for before, after in pairwise(losses)]
    largest = max((drop for drop in drops if 0 < drop < inf), default=0.0)
    curve = fit_weighted(iterations, losses, decay)
    if largest > 0 and isfinite(curve.noise):
        return curve, largest
    return None, 1.0
