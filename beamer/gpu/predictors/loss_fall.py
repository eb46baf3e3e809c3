"""How soon the loss of a job falls further, by which `convergence` orders trials that state neither an end nor a target.

It is Hermes' order, in which the jobs come first whose normalised loss falls fastest, and before them those that have reported
too little to tell [Son et al. 2021], as a time: the iterations until the loss has fallen by another share of what it was at
first, at the rate of the last reports.
"""

import math

from beamer.gpu.model import Job
from beamer.gpu.predictors.loss_trend import recent_trend

SHARE = 0.1
"""Of the first loss. Any share orders the trials of a search alike where changes cost nothing. Otherwise GPUs change only to a
trial that gains time on its way to this share; a tenth is our choice."""
# A fall by that share takes at most so many iterations: a loss that hardly falls counts like one that does not.
MAX_ITERATIONS = 1e6
UNJUDGED = 1e-3  # A job that cannot be judged yet counts for this share of the iterations until then, ahead of all that fall.


def iterations_until_fall(job: Job, window: int, judged_s: float, standard_errors: float) -> float:
    """Return the iterations until a job's loss has fallen by another tenth of its first.

    window, judged_s: as of `beamer.gpu.predictors.loss_trend.recent_trend`. standard_errors: as of `LossTrend.bound`. A loss
    that rose is farther away the more it rose, one that has diverged infinitely far; a job without so many reports is near.
    """
    recent = recent_trend(job, window, judged_s)
    if recent is None:
        return UNJUDGED * job.request.epoch * (window + 1 - len(job.reports))
    if recent.fall == -math.inf:
        return math.inf
    first = next((abs(report.loss) for report in job.reports if math.isfinite(report.loss)), 0.0)
    fall = recent.bound(standard_errors, job.grant is not None) / (SHARE * first) if first > 0 else 0.0
    if fall > 0 and recent.iterations > 0:
        return min(recent.iterations / fall, MAX_ITERATIONS)
    return MAX_ITERATIONS * (1.0 - fall)
