"""How the jobs of a simulation are served, by their numbers in its network: as the last plan says, and those that it lacks."""

import numpy as np

from beamer.network.allocation import Allocator
from beamer.network.allocation.base import Arrangement
from beamer.network.arrays import Ints

NO_CLASS = -1  # A job that no plan contains has this class, and the next rank.
NO_RANK = np.iinfo(np.int64).max  # Jobs with this rank come behind all that have one.


class ServiceOrder:
    """The class, the rank and the cap of every job, as the last plan has them; all numbers are those of the network.

    plan_changes: plans that differed from the one before.
    """

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._group = np.zeros(0, np.int64)
        self._rank = np.zeros(0, np.int64)
        self._cap_bps = np.zeros(0)
        self.plan_changes = 0

    def add(self, jobs: int) -> None:
        """Add so many jobs, which no plan contains yet."""
        self._group = np.concatenate((self._group, np.full(jobs, NO_CLASS)))
        self._rank = np.concatenate((self._rank, np.full(jobs, NO_RANK)))
        self._cap_bps = np.concatenate((self._cap_bps, np.full(jobs, np.inf)))

    def forget(self, job: int) -> None:
        """Note that a job's connections are new, and have no class yet."""
        self._group[job] = NO_CLASS
        self._rank[job] = NO_RANK
        self._cap_bps[job] = np.inf

    def classes(self, jobs: Ints) -> Ints:
        """Return the class of each of some jobs, -1 if it has none."""
        return self._group[jobs]

    def caps_bps(self, jobs: Ints) -> list[float]:
        """Return the cap of each of some jobs, infinite for none."""
        caps: list[float] = self._cap_bps[jobs].tolist()
        return caps

    def install(self, plan: Arrangement) -> None:
        """Serve the jobs of `plan`, and no others, as it says, in O(jobs ever added)."""
        group, cap_bps = np.full_like(self._group, NO_CLASS), np.full_like(self._cap_bps, np.inf)
        group[plan.order] = plan.group
        if plan.cap_bps is not None:
            cap_bps[plan.order] = plan.cap_bps
        if not (np.array_equal(group, self._group) and np.array_equal(cap_bps, self._cap_bps)):
            self.plan_changes += 1
        self._group, self._cap_bps = group, cap_bps
        self._rank[:] = NO_RANK
        self._rank[plan.order] = np.arange(len(plan.order))

    def of(self, running: Ints) -> Arrangement:
        """Say how the running jobs are served: those that no plan contains come last, in the lowest class."""
        rank, group = self._rank[running], self._group[running]
        group[group == NO_CLASS] = self._allocator.lowest(int(self._group.max(initial=NO_CLASS)))
        by_rank = np.lexsort((running, rank))
        caps_bps = self._cap_bps[running][by_rank] if self._allocator.caps else None
        return Arrangement(running[by_rank], group[by_rank], caps_bps)
