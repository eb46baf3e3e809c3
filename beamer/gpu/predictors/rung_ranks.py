"""Which trials of a search at rungs without barriers have the lowest losses, however far each of them has come.

A loss falls with the iterations, and trials have done different numbers of them. Of two trials those losses are compared that
they had after as many iterations as both have done, in powers of two; one that has diverged since is behind. That the order at
an early rung tells the one at a later rung is what successive halving goes by [Jamieson and Talwalkar 2016].
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from beamer.gpu.arrays import Floats
from beamer.gpu.model import Job, Report
from beamer.gpu.predictors.loss_trend import has_diverged


def rung_ranks(jobs: Sequence[Job]) -> Floats:
    """Return the rank of each of a search's jobs, which have reported: 1 for the least loss, the better one for equal losses.

    Losses of a job that has diverged, and those that are not finite, are the largest.
    """
    levels = np.array([_level(job.done) for job in jobs], np.int64)
    reports = [() if has_diverged(job) else job.reports for job in jobs]
    better = np.zeros(len(jobs), np.int64)
    for level in np.unique(levels).tolist():
        there = np.flatnonzero(levels >= level)
        losses = np.array([_loss_after(reports[row], 2.0**level) for row in there.tolist()])
        is_last = levels[there] == level
        better[there[is_last]] += np.searchsorted(np.sort(losses), losses[is_last])
        better[there[~is_last]] += np.searchsorted(np.sort(losses[is_last]), losses[~is_last])
    return 1.0 + better.astype(np.float64)


def _level(iterations: float) -> int:
    """Return the largest power of two of iterations that have been done, as its exponent."""
    return math.frexp(max(iterations, 1.0))[1] - 1


def _loss_after(reports: Sequence[Report], iterations: float) -> float:
    """Return the last loss that was reported after at most so many iterations, or the first one; infinity without reports."""
    if not reports:
        return math.inf
    last = max(bisect_right(reports, iterations, key=lambda report: report.iteration) - 1, 0)
    loss = reports[last].loss
    return loss if math.isfinite(loss) else math.inf
