"""How fast a loss falls, how sure that is, and whether it has diverged.

Losses of fresh batches are noisy, and there may be many a second: over few of them one that stands can seem to fall faster than
one that falls. A fall is measured over as many reports as make it sure, along the line of Theil and Sen, the median of the
slopes between all pairs of points, which a quarter of outliers does not move far [Theil 1950; Sen 1968]. Its standard error is
that of a least-squares line whose residuals are as large as the median of these, and correlated as they are. Longer windows
are left out from the first on that contradicts a shorter one, so that a loss which stands is not taken to fall as it did before
[Lepski 1990].
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamer.gpu.arrays import Floats
from beamer.gpu.model import MAX_LOSS, Job, Report

DIVERGED_AFTER = 2  # So many losses in a row that are out of bounds mean divergence; a single one may be a numerical accident.
DIVERGED_FACTOR = 10.0
"""A loss is out of bounds beyond so many times the largest before it, if that is above 0, or where it is not finite. Training
lowers the loss that it starts with; ten times that is no noise of a batch."""
SURE = 4.0
"""Standard errors beyond which a fall is no chance, as it is asked about several windows."""
MIN_SURE = 12  # Of fewer noisy losses nothing is sure, as their error is too unsure itself.
MIN_MEDIAN = 24  # The median of fewer residuals is too unsure, and the mean of their squares stands for it.
MIN_SMOOTH = 6  # So many losses in a row that all fall, or all rise, are no chance of noise: 1 in 360.
MAX_REPORTS = 4096  # A fall that is not sure over so many reports is none.
MAX_POINTS = 32
"""Points of a line. Of more losses, neighbours are drawn together to their medians, so that all of them count."""
NORMAL_DEVIATION = 1.4826  # standard deviations in a median absolute deviation, of normal residuals
MAX_CORRELATION = 0.9  # of neighbouring residuals; keeps the error finite
MAX_REMEMBERED = 1 << 14  # The number of trends is several times the jobs of the largest cluster that is benchmarked.


class LossTrend(NamedTuple):
    """By how much a loss fell in a window. error: the fall's standard error. iterations, service_s: of the window.

    fall: minus infinity where the loss has diverged, or is not finite. is_judged: whether the fall is sure, or has been
    measured for long enough.
    """

    fall: float
    error: float
    iterations: float
    service_s: float
    is_judged: bool = True

    def bound(self, standard_errors: float, has_gpus: bool) -> float:
        """Return the fall, less so many standard errors of a job that waits, and with as many more of one that has GPUs.

        A verdict that stops the better of two costs more than one that lets the worse run on for a moment, as only who runs is
        measured again. So a fall that is not judged yet is the largest that it may be.
        """
        if not self.is_judged:
            return self.fall + SURE * self.error
        return self.fall + (standard_errors if has_gpus else -standard_errors) * self.error


def has_diverged(job: Job) -> bool:
    """Return whether the last `DIVERGED_AFTER` losses of a job that has reported a finite one are all out of bounds."""
    last = [report.loss for report in job.reports[-DIVERGED_AFTER:]]
    first = next((report.loss for report in job.reports if _is_finite(report.loss)), None)
    if first is None or len(last) < DIVERGED_AFTER:
        return False
    if any(_is_finite(loss) and loss <= DIVERGED_FACTOR * first for loss in last):
        return False  # The largest loss before them is at least the first.
    largest, beyond = first, 0
    for report in job.reports:
        if _is_finite(report.loss) and (report.loss <= DIVERGED_FACTOR * largest or largest <= 0):
            largest, beyond = max(largest, report.loss), 0
        else:
            beyond += 1
    return beyond >= DIVERGED_AFTER


def _is_finite(loss: float) -> bool:
    return abs(loss) <= MAX_LOSS


_KNOWN: OrderedDict[tuple[str, int, float], tuple[tuple[Report, ...], LossTrend | None]] = OrderedDict()
"""By job and arguments, the trend of its newest reports: few of the jobs that are looked at have reported since."""


def recent_trend(job: Job, window: int, judged_s: float) -> LossTrend | None:
    """Return the trend of a job's last losses, those that are not finite left out; None where it has not `window` + 1 reports.

    window: reports over which it is measured, those between their ends and the one before. Noisy losses are measured over as
    many, or twice, four times as many and so on, until the fall is `SURE` times its error. judged_s: seconds of service after
    which a fall that is less sure counts as judged.
    """
    key = job.key, window, judged_s
    known = _KNOWN.get(key)
    if known is None or known[0] is not job.reports:
        known = _KNOWN[key] = job.reports, _trend(job, window, judged_s)
        while len(_KNOWN) > MAX_REMEMBERED:
            _KNOWN.popitem(last=False)
    _KNOWN.move_to_end(key)
    return known[1]


def _trend(job: Job, window: int, judged_s: float) -> LossTrend | None:
    if has_diverged(job):
        return LossTrend(-math.inf, 0.0, 0.0, 0.0)
    if len(job.reports) <= window:
        return None
    reports = job.reports[-MAX_REPORTS:]
    if not any(_is_finite(report.loss) for report in reports[-DIVERGED_AFTER:]):
        return LossTrend(-math.inf, 0.0, 0.0, 0.0)
    shortest = _finite(reports[-1 - window :])
    losses = [one.loss for one in _finite(reports[-max(window + 1, MIN_SMOOTH) :])]
    if all(before >= after for before, after in pairwise(losses)) or all(before <= after for before, after in pairwise(losses)):
        first, last = shortest[0], shortest[-1]
        return LossTrend(first.loss - last.loss, 0.0, last.iteration - first.iteration, last.service_s - first.service_s)
    finite = _finite(reports)
    x = np.array([one.iteration for one in finite])
    y = np.array([one.loss for one in finite])
    slope, error, count, is_sure = _longest_line(x, y, window)
    first, last = finite[-count], finite[-1]
    iterations, service_s = last.iteration - first.iteration, last.service_s - first.service_s
    has_lasted = len(finite) >= MIN_SURE and reports[-1].service_s - reports[0].service_s >= judged_s
    return LossTrend(-slope * iterations, error * iterations, iterations, service_s, is_sure or has_lasted)


def _finite(reports: Sequence[Report]) -> list[Report]:
    """Return the reports of finite losses; of several of one iteration the last."""
    kept = [one for one in reports if _is_finite(one.loss)]
    return [one for one, after in pairwise(kept) if one.iteration < after.iteration] + kept[-1:]


def _longest_line(x: Floats, y: Floats, window: int) -> tuple[float, float, int, bool]:
    """Return the slope of the last points and its error, how many they are, and whether it is sure.

    They are `window` + 1, or about twice, four times as many and so on, as long as no longer window contradicts a shorter one.
    """
    low, high = -math.inf, math.inf
    count = min(window + 1, len(x))
    slope, error = _line(x[-count:], y[-count:])
    while not (is_sure := count >= MIN_SURE and abs(slope) >= SURE * error) and count < len(x):
        if count >= MIN_SURE:
            low, high = max(low, slope - SURE * error), min(high, slope + SURE * error)
        longer = min(2 * count, len(x))
        found = _line(x[-longer:], y[-longer:])
        if not low <= found[0] <= high:
            break
        (slope, error), count = found, longer
    return slope, error, count, is_sure


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the slope of the line of Theil and Sen, and its standard error: infinite of fewer than three points."""
    size = -(-len(x) // MAX_POINTS)
    points = len(x) // size
    x = x[-points * size :].reshape(points, size).mean(axis=1)
    y = np.median(y[-points * size :].reshape(points, size), axis=1)
    if points < 3:
        return 0.0, math.inf
    one, other = _pairs(points)
    slope = float(np.median((y[other] - y[one]) / (x[other] - x[one])))
    residuals = y - slope * x
    residuals -= np.median(residuals)
    squares = float(residuals @ residuals)
    # Most residuals may be 0, as those of losses of few levels.
    median = NORMAL_DEVIATION * float(np.median(np.abs(residuals))) if points >= MIN_MEDIAN else 0.0
    deviation = (median or math.sqrt(squares / points)) * math.sqrt(points / (points - 2))
    correlation = float(residuals[1:] @ residuals[:-1]) / squares if squares > 0 else 0.0
    correlation = min(max(correlation, 0.0), MAX_CORRELATION)
    return slope, deviation * math.sqrt((1.0 + correlation) / (1.0 - correlation) / float(((x - x.mean()) ** 2).sum()))


@cache
def _pairs(points: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(points, 1)
