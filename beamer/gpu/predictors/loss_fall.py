"""How soon the loss of a job falls further: what orders the trials of a search that states neither an end nor a target.

Hermes gives GPUs to the jobs whose normalised loss falls fastest, and first to those that have reported too little to tell
[Son et al. 2021]. As a time: the iterations until the loss has fallen by another share of what it was at first, at the rate of
the last reports.
"""

import math

from beamer.gpu.model import Job

SHARE = 0.01  # of the first loss; any would order the trials of one search alike
MOST_ITERATIONS = 1e6  # for that share: a loss that hardly falls counts like one that does not
UNJUDGED = 1e-3  # times the iterations until it can be judged that such a job counts for: ahead of all that fall
DIVERGED_AFTER = 2  # losses in a row that are not finite: a single one may be a numerical accident


def iterations_until_fall(job: Job, window: int) -> float:
    """Return the iterations until a job's loss has fallen by another hundredth of its first.

    window: reports over which its rate is measured. A loss that rose is farther away the more it rose, one that is not finite
    any more infinitely far; a job without so many reports is near.
    """
    reports = job.reports
    if len(reports) <= window:
        return UNJUDGED * job.request.epoch * (window + 1 - len(reports))
    if not any(math.isfinite(report.loss) for report in reports[-DIVERGED_AFTER:]):
        return math.inf
    finite = [report for report in reports[-1 - window :] if math.isfinite(report.loss)]
    scale = abs(next(report.loss for report in reports if math.isfinite(report.loss)))
    done = finite[-1].iteration - finite[0].iteration
    fall = (finite[0].loss - finite[-1].loss) / (SHARE * scale) if scale > 0 else 0.0
    if fall > 0 and done > 0:
        return min(done / fall, MOST_ITERATIONS)
    return MOST_ITERATIONS * (1.0 - fall)
