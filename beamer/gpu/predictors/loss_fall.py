"""By how much the loss of a job fell in its last reports, and how soon it falls further.

Hermes gives GPUs to the jobs whose normalised loss falls fastest, and first to those that have reported too little to tell
[Son et al. 2021]. `convergence` orders the trials of a search that states neither an end nor a target by the same, as a time:
the iterations until the loss has fallen by another share of what it was at first, at the rate of the last reports.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from beamer.gpu.model import Job

SHARE = 0.01  # Any share of the first loss would order the trials of one search alike.
# A fall by that share takes at most so many iterations: a loss that hardly falls counts like one that does not.
MAX_ITERATIONS = 1e6
UNJUDGED = 1e-3  # A job that cannot be judged yet counts for this share of the iterations until then, ahead of all that fall.
DIVERGED_AFTER = 2  # So many losses in a row that are not finite mean divergence; a single one may be a numerical accident.


class LossFall(NamedTuple):
    """By how much a loss fell within some iterations and seconds of service. scale: what it is relative to."""

    fall: float
    scale: float
    iterations: float
    service_s: float


def recent_fall(job: Job, window: int, scale: Callable[[Sequence[float]], float]) -> LossFall | None:
    """Return the fall between the first and the last finite loss of the last `window` reports and the one before them.

    A single loss that is not finite must not suspend a job, which could then not report a better one. None where none of the
    last `DIVERGED_AFTER` is finite, as in all later reports of a job that has diverged.

    scale: of all finite losses, oldest first.
    """
    if not any(math.isfinite(report.loss) for report in job.reports[-DIVERGED_AFTER:]):
        return None
    finite = [report for report in job.reports[-1 - window :] if math.isfinite(report.loss)]
    before, last = finite[0], finite[-1]
    relative_to = scale([report.loss for report in job.reports if math.isfinite(report.loss)])
    return LossFall(before.loss - last.loss, relative_to, last.iteration - before.iteration, last.service_s - before.service_s)


def iterations_until_fall(job: Job, window: int) -> float:
    """Return the iterations until a job's loss has fallen by another hundredth of its first.

    window: reports over which its rate is measured. A loss that rose is farther away the more it rose, one that is not finite
    any more infinitely far; a job without so many reports is near.
    """
    if len(job.reports) <= window:
        return UNJUDGED * job.request.epoch * (window + 1 - len(job.reports))
    recent = recent_fall(job, window, lambda losses: abs(losses[0]))
    if recent is None:
        return math.inf
    fall = recent.fall / (SHARE * recent.scale) if recent.scale > 0 else 0.0
    if fall > 0 and recent.iterations > 0:
        return min(recent.iterations / fall, MAX_ITERATIONS)
    return MAX_ITERATIONS * (1.0 - fall)
