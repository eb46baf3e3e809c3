"""Ceilings on the rates of senders, to keep an order without queues: what greedy leaves to each job, and no less than a share.

Jobs are walked in order over the links, as the allocator `greedy` does (Agarwal et al. 2018, "Sincronia", the greedy
order-preserving allocation), with two differences, as a ceiling stands until the next decision while greedy's rates follow
every flow: a job counts with its mean load, computing included, and links may be promised `oversubscription` times over; TCP
shares what conflicts. Ceilings follow from the order and from what jobs load links with, not from their progress, so that they
change only with these.
"""

import math
from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from beamer.errors import InputError
from beamer.network.arrays import Floats, Ints
from beamer.network.policy import Order
from beamer.network.snapshot import JobColumns, Snapshot

MINIMUM = 0.1  # The jobs that load a link share this part of it if all others leave them nothing.
# Links are oversubscribed by this factor: 1 costs some percent, 1.25 to 2 do about equally well, on seeds outside the study.
OVERSUBSCRIPTION = 1.5
STEP = 0.05  # Ceilings are rounded down to powers of 1 + STEP.


@dataclass(frozen=True)
class Ceilings:
    """A rule for ceilings.

    minimum: of every link, divided evenly among the jobs that load it, below which no ceiling is but by rounding, against
    starvation. oversubscription: how often a link is given away. step: ratio between one ceiling and the next less 1; a ceiling
    in force stands while it is at most two steps too low. Raises `InputError` for values with which no job could send.
    """

    minimum: float = MINIMUM
    oversubscription: float = OVERSUBSCRIPTION
    step: float = STEP

    def __post_init__(self) -> None:
        if not 0 < self.minimum <= 1:
            raise InputError("minimum", self.minimum, "a share above 0, of at most 1")
        if not self.oversubscription >= 1:
            raise InputError("oversubscription", self.oversubscription, "a factor of at least 1")
        if not self.step > 0:
            raise InputError("step", self.step, "a share above 0")

    def of(self, order: Order, snapshot: Snapshot, sharing: Container[str]) -> dict[str, int]:
        """Return the ceilings of the jobs in `sharing`, bit/s of each one's busiest sender; none for those that need none.

        order: of all jobs that load the network; those that are not in `sharing` are kept ahead by other means.
        """
        caps: dict[str, int] = {}
        for key, share in self.shares(order, snapshot, sharing).items():
            if share < 1:
                bps = share * float(snapshot.jobs.sender_bps[snapshot.jobs.position[key]])
                caps[key] = self._rounded(bps, snapshot.cap_bps.get(key))
        return caps

    def shares(self, order: Order, snapshot: Snapshot, sharing: Container[str]) -> dict[str, float]:
        """Return the ceilings as shares of what each job takes with the fabric to itself; 1 or more is no ceiling.

        A job in `sharing` may have what is left by those of them before it. What these take depends on all before them: where a
        job cannot send for want of one link, it leaves its other links to those behind it.
        """
        jobs = snapshot.jobs
        loads = {key: _Load.of(jobs, jobs.position[key]) for tier in order for key in tier.jobs}
        users = np.zeros(len(snapshot.capacity_bps))
        for load in loads.values():
            users[load.link] += 1
        free = np.full(len(users), self.oversubscription)  # share of each link that all jobs so far leave
        left = free.copy()  # share of each link that the jobs in `sharing` so far leave
        shares: dict[str, float] = {}
        for tier in order:
            for together in [(key,) for key in tier.jobs] if tier.divisible else [tier.jobs]:
                least = {key: self.minimum / float(users[loads[key].link].max()) for key in together}
                mean = {key: loads[key].mean(max(loads[key].fitting(free), least[key])) for key in together}
                capped = [key for key in together if key in sharing]
                shares.update({key: max(loads[key].fitting(left), least[key]) for key in capped})
                for key in together:
                    free[loads[key].link] -= mean[key]
                for key in capped:
                    left[loads[key].link] -= mean[key]
        return shares

    def _rounded(self, bps: float, present: int | None) -> int:
        if present is not None and bps / (1 + self.step) ** 2 <= present <= bps:
            return present
        return max(1, int((1 + self.step) ** math.floor(math.log(max(bps, 1.0), 1 + self.step))))


@dataclass(frozen=True, eq=False)
class _Load:
    """What a job loads its links with. seconds: per iteration, by link. idle_s: of an iteration, without synchronising."""

    link: Ints
    seconds: Floats
    idle_s: float

    @classmethod
    def of(cls, jobs: JobColumns, j: int) -> "_Load":
        own = slice(jobs.first[j], jobs.first[j + 1])
        loaded = jobs.seconds[own] > 0
        seconds = jobs.seconds[own][loaded]
        return cls(jobs.link[own][loaded], seconds, max(float(jobs.iteration_s[j] - seconds.max()), 0.0))

    def fitting(self, free: Floats) -> float:
        """Return the share of its full rate at which no link carries more than what is free of it."""
        return float((free[self.link] * self.seconds.max() / self.seconds).min())

    def mean(self, share: float) -> Floats:
        """Return the shares of links that it takes on average, computing included, if it sends at `share` of its full rate."""
        mean: Floats = self.seconds / (self.idle_s + float(self.seconds.max()) / min(share, 1.0))
        return mean
