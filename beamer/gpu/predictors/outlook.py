"""What may be expected of a job of a search: whether it will get where its search wants to be, and when. [rebuilt]

A loss curve falls ever more slowly, so that one which would miss its target even if it went on falling at its mean rate so far,
or along a line at its recent pace, will not reach it: few reports sort such jobs out. How likely the others are to arrive in
time is said by two extrapolations, of which the more hopeful one counts: what it hopes for in vain soon shows.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from beamer.gpu.model import Job
from beamer.gpu.predictors.loss_curve import fit_weighted, thinned

HOPELESS = 1e-3
FITTED = 5  # reports from which on a curve is fitted
SURE = 0.98
SLACK = 2.0  # standard errors by which a pace may be better than it looks
DECAY = 0.8  # weight of a loss relative to the next one


@dataclass(frozen=True)
class Outlook:
    """chance: of reaching the target within the job's iterations. left: iterations until then, if it does."""

    chance: float
    left: float


def outlook(job: Job, looks: int, prior: float) -> Outlook:
    """Return what may be expected of a job; one that has no target will end after its iterations.

    looks: reports, the initial one included, before a job is judged; prior: its chance until then.
    """
    request = job.request
    reports = thinned(job.reports)
    if request.target_loss is not None:
        target = request.target_loss
        losses = tuple([report.loss for report in reports])
    elif request.target_accuracy is not None:  # what is missing to 1 is as good as a loss
        target = 1.0 - request.target_accuracy
        reports = [report for report in reports if report.accuracy is not None]
        losses = tuple([1.0 - (report.accuracy or 0.0) for report in reports])
    else:
        return Outlook(1.0, job.remaining)
    iterations = tuple([report.iteration for report in reports])
    if not losses:
        return Outlook(prior, job.remaining)
    if not math.isfinite(losses[-1]):
        return Outlook(HOPELESS, job.remaining)
    if losses[-1] <= target:
        return Outlook(HOPELESS, job.remaining)  # nothing more is wanted of it
    return _judged(iterations, losses, target, float(request.iterations), looks, prior)


@lru_cache(maxsize=1 << 16)
def _judged(
    iterations: tuple[float, ...], losses: tuple[float, ...], target: float, end: float, looks: int, prior: float
) -> Outlook:
    left = max(end - iterations[-1], 1.0)
    if len(losses) < looks:
        return Outlook(prior, left)
    if _hoped_for(iterations, losses, end) > target or _at_recent_pace(iterations, losses, end) > target:
        return Outlook(HOPELESS, left)
    if len(losses) < FITTED:
        return Outlook(max(prior, 0.5), left)
    views = (_by_curve(iterations, losses, target, end), _by_power(iterations, losses, target, end))
    chance = max(view.chance for view in views)
    # each way of arriving counts as much as it is likely
    until = sum(view.chance * view.left for view in views) / max(sum(view.chance for view in views), 1e-12)
    return Outlook(min(max(chance, HOPELESS), SURE), min(max(until, 1e-9), left))


def _by_curve(iterations: tuple[float, ...], losses: tuple[float, ...], target: float, end: float) -> Outlook:
    """Judge by SLAQ's curves, which end at a floor of their own."""
    done, left = iterations[-1], max(end - iterations[-1], 1.0)
    curve = fit_weighted(iterations, losses)
    final = curve.loss(end)
    deviation = final.deviation if math.isfinite(final.deviation) else abs(losses[-1] - target)
    chance = _normal((target - final.value) / max(deviation, 1e-12)) if math.isfinite(final.value) else 0.0
    until = curve.until_loss(target, done).value
    return Outlook(chance, min(until, left) if math.isfinite(until) and until > 0 else left)


def _by_power(iterations: tuple[float, ...], losses: tuple[float, ...], target: float, end: float) -> Outlook:
    """Judge by a power of the iterations, which has no floor: as the recent losses fall on logarithmic axes."""
    done, left = iterations[-1], max(end - iterations[-1], 1.0)
    seen = [(k, loss) for k, loss in zip(iterations, losses, strict=True) if k > 0 and 0 < loss < math.inf]
    if len(seen) < 3 or target <= 0:
        return Outlook(0.0, left)
    x, y = np.log(np.array(seen)).T
    weights = DECAY ** np.arange(len(seen) - 1, -1, -1.0)
    weights /= weights.sum()
    middle, level = float(weights @ x), float(weights @ y)
    spread = float(weights @ (x - middle) ** 2)
    slope = float(weights @ ((x - middle) * (y - level))) / spread
    count = 1.0 / float(weights @ weights)  # of points, as if all weighed the same
    residual = float(weights @ (y - level - slope * (x - middle)) ** 2) * count / max(count - 2.0, 0.5)
    ahead = math.log(end) - middle
    deviation = math.sqrt(residual * (1.0 + 1.0 / count + ahead**2 / (count * spread)))
    chance = _normal((math.log(target) - level - slope * ahead) / max(deviation, 1e-9))
    if slope >= 0:
        return Outlook(chance, left)
    until = math.exp(min(middle + (math.log(target) - level) / slope, 50.0)) - done
    return Outlook(chance, min(max(until, 1.0), left))


def _hoped_for(iterations: tuple[float, ...], losses: tuple[float, ...], end: float) -> float:
    """Return the loss at `end` if it fell exponentially at the rate seen between the first and the best report so far."""
    first = losses[0]
    finite = [(loss, k) for loss, k in zip(losses, iterations, strict=True) if math.isfinite(loss) and k > iterations[0]]
    if not math.isfinite(first) or first <= 0 or not finite:
        return -math.inf
    best, at = min(finite)
    if best <= 0:
        return -math.inf
    if best >= first:
        return first
    rate = math.log(first / best) / (at - iterations[0])
    return first * math.exp(-rate * max(end - iterations[0], 0.0))  # one may have gone on beyond its end


def _at_recent_pace(iterations: tuple[float, ...], losses: tuple[float, ...], end: float) -> float:
    """Return the loss at `end` if it fell on along a line through the recent reports, as steeply as their noise allows."""
    recent = max(len(losses) // 3, 4)
    seen = [(k, loss) for k, loss in zip(iterations, losses, strict=True) if math.isfinite(loss)][-recent:]
    if len(seen) < 4:
        return -math.inf
    x, y = np.array(seen).T
    x = x - x.mean()
    spread = float(x @ x)
    slope = float(x @ y) / spread
    error = math.sqrt(float(np.sum((y - y.mean() - slope * x) ** 2)) / (len(seen) - 2) / spread)
    return float(y.mean()) + (slope - SLACK * error) * (end - iterations[-1] + float(x[-1]))


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))
