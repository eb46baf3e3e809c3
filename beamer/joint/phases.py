"""When a job starts, so that its coflows fall between those of others on the links that they share.

Jobs that compute and synchronise in turn share a link without slowing each other down if one synchronises while the other
computes [CASSINI: Rajasekaran, Ghobadi and Akella 2024, NSDI]. Delays of a start are tried on a grid over the job's own
iteration; each costs itself once, and the time within the next iterations in which another job synchronises on a link at the
same time costs that time again. Nothing waits once it has started.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DELAYS = 8  # So many delays are tried, including none.
ITERATIONS = 8  # Coflows are taken to keep their phases over so many iterations: later ones have drifted.


@dataclass(frozen=True)
class Cycle:
    """A job's iterations with the fabric to itself: from when on, how long each, and the coflow at its end, seconds."""

    starts_s: float
    lasts_s: float
    coflow_s: float


def start_delay_s(own: Cycle, others: Sequence[Cycle]) -> float:
    """Return by how much a job starts later than it could; others: jobs that share a link with it.

    Of delays that cost the same the smallest is taken; 0 where none gains.
    """
    if not others or own.lasts_s <= 0 or own.coflow_s <= 0:
        return 0.0
    delays = own.lasts_s * np.arange(DELAYS) / DELAYS
    cost = [delay + sum(_together_s(own, other, delay) for other in others) for delay in delays.tolist()]
    return float(delays[int(np.argmin(cost))])


def _together_s(own: Cycle, other: Cycle, delay_s: float) -> float:
    """Return for how long both synchronise within the next iterations of a job that starts later by a delay."""
    if other.lasts_s <= 0 or other.coflow_s <= 0:
        return 0.0
    ends = own.starts_s + delay_s + own.lasts_s * np.arange(1, ITERATIONS + 1)
    first = np.floor((ends - own.coflow_s - other.starts_s) / other.lasts_s)
    count = int(np.ceil(own.coflow_s / other.lasts_s)) + 1
    theirs = other.starts_s + (first[:, None] + np.arange(1, count + 1)) * other.lasts_s
    since = np.maximum(ends[:, None] - own.coflow_s, theirs - other.coflow_s)
    return float(np.maximum(np.minimum(ends[:, None], theirs) - since, 0.0).sum())
