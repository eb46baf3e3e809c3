"""Lower bounds on the weighted completion time of items that share links.

An item is what a schedule ends as one: a coflow, a stage, or a study of chained stages. Bounds hold for every schedule,
fractional and preemptive ones included; each checks at the call that it applies.
"""

from beamer.bounds.instance import Instance
from beamer.bounds.jobs import IteratingJobs
from beamer.bounds.selection import BOUNDS, Bounds, bounds, study_bounds
from beamer.bounds.study import chained

__all__ = [
    "BOUNDS",
    "Bounds",
    "Instance",
    "IteratingJobs",
    "bounds",
    "chained",
    "study_bounds",
]
