"""What may be expected of a job of a search: whether it will get where its search wants to be, and when. [rebuilt]

A loss curve falls ever more slowly, so that one which would miss its target even if it went on falling at its mean rate so far
will not reach it: few reports sort such jobs out. Of the others the fitted curve says how likely they are to arrive in time.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from beamer.gpu.model import Job
from beamer.gpu.predictors.loss_curve import fit_weighted, thinned

HOPELESS = 1e-3
FITTED = 5  # reports from which on a curve is fitted
SURE = 0.98


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
    target, sign = request.target_loss, 1.0
    if target is None and request.target_accuracy is not None:
        target, sign = 1.0 - request.target_accuracy, -1.0
    if target is None:
        return Outlook(1.0, job.remaining)
    reports = [r for r in thinned(job.reports) if sign > 0 or r.accuracy is not None]
    losses = tuple(r.loss if sign > 0 else 1.0 - (r.accuracy or 0.0) for r in reports)
    iterations = tuple(r.iteration for r in reports)
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
    done, last = iterations[-1], losses[-1]
    left = max(end - done, 1.0)
    if len(losses) < looks:
        return Outlook(prior, left)
    if _hoped_for(iterations, losses, end) > target:
        return Outlook(HOPELESS, left)
    if len(losses) < FITTED:
        return Outlook(max(prior, 0.5), left)
    curve = fit_weighted(iterations, losses)
    final = curve.loss(end)
    deviation = final.deviation if math.isfinite(final.deviation) else abs(last - target)
    chance = _normal((target - final.value) / max(deviation, 1e-12)) if math.isfinite(final.value) else prior
    until = curve.until_loss(target, done).value
    until = min(until, left) if math.isfinite(until) and until > 0 else left
    return Outlook(min(max(chance, HOPELESS), SURE), max(until, 1e-9))


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
    return first * math.exp(-rate * (end - iterations[0]))


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))
