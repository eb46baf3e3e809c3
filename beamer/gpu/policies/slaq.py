"""SLAQ: give the next GPU to the job whose loss is predicted to fall most in the coming epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from math import inf, isfinite

from beamer.gpu.even_placement import EvenPlacer
from beamer.gpu.model import Job
from beamer.gpu.policy import check_at_least, check_interval, check_positive, check_share
from beamer.gpu.predictors.batch_cache import BatchCache
from beamer.gpu.predictors.loss_curve import History, LossCurve, fit_weighted_of_each, thinned
from beamer.gpu.predictors.loss_trend import has_diverged
from beamer.gpu.predictors.speed import SpeedModel, speed_of, typical_step_s
from beamer.gpu.round_based import ClusterBudget, RoundBased, TaskCounts

REPORTS_TO_FIT = 3  # A curve is fitted from so many reports on, as it has at least three parameters.
MAX_REMEMBERED = 1 << 16  # The number of fits is several times the jobs of the largest cluster that is benchmarked.

Fit = tuple[LossCurve | None, float]
"""A job's curve, None while it is not known, and the largest drop between two of its reports."""


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
    as dropping by its largest drop at the size it asked for, in proportion to its speed at others. One that has diverged
    (`beamer.gpu.predictors.loss_trend.has_diverged`) starts last in a round and does not grow, which is ours.
    """

    epoch_s: float = 60.0
    patience_s: float = 60.0
    decay: float = 0.9

    name = "slaq"

    def __post_init__(self) -> None:
        check_interval(self, "epoch_s")
        check_positive(self, "decay")
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
        if len(workers) < len(jobs):  # Not all jobs can start: those whose loss is predicted to fall most come first.
            drops = {grown.job.key: grown.drop for grown in self._growing(jobs, typical_s)}
            ranked = sorted(jobs, key=lambda job: (has_diverged(job), -drops[job.key]))
            budget = ClusterBudget(placer)
            workers = {job.key: job.request.least for job in ranked if budget.reserve(job, *self.smallest(job))}
        started = [job for job in jobs if job.key in workers]
        if budget.gpus:
            may_grow = [job for job in started if job.request.most > job.request.least and not has_diverged(job)]
            growing = self._growing(may_grow, typical_s)
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

    def _growing(self, jobs: Sequence[Job], typical_s: float) -> list["_GrowingJob"]:
        fits = _fits(jobs, self.decay)
        return [_GrowingJob(self.epoch_s, job, fit, typical_s) for job, fit in zip(jobs, fits, strict=True)]


class _GrowingJob:
    """A job while it grows. drop: of its normalised loss within the epoch. gain: what one GPU more adds to that."""

    def __init__(self, epoch_s: float, job: Job, fit: Fit, typical_s: float) -> None:
        self.job = job
        self._workers = job.request.least
        self._epoch_s = epoch_s
        self._model: SpeedModel = speed_of(job, typical_s)
        self._curve, self._largest = fit
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


def _fits(jobs: Sequence[Job], decay: float) -> list[Fit]:
    """Return the fit of each job; the curve is unknown with fewer than `REPORTS_TO_FIT` reports."""
    histories: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for job in jobs:
        reports = thinned(job.reports) if len(job.reports) >= REPORTS_TO_FIT else ()
        histories.append((tuple([report.iteration for report in reports]), tuple([report.loss for report in reports])))
    return _remembered(decay)(histories)


@cache
def _remembered(decay: float) -> BatchCache[History, Fit]:
    """Return the fits with a decay: of the jobs of a round, few have reported since the last one."""
    return BatchCache(partial(_fitted, decay=decay), MAX_REMEMBERED)


def _fitted(histories: Sequence[History], decay: float) -> list[Fit]:
    fits: list[Fit] = []
    for (_, losses), curve in zip(histories, fit_weighted_of_each(histories, decay), strict=True):
        largest = max((before - after for before, after in pairwise(losses) if 0 < before - after < inf), default=0.0)
        fits.append((curve, largest) if largest > 0 and isfinite(curve.noise) else (None, 1.0))
    return fits
