"""What policies share that serve coflows in ascending order of one number."""

from abc import abstractmethod
from random import Random

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.arrays import Floats
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import JobColumns, Snapshot

POLLS_PER_IDLE_TIME = 20  # the interval is this part of the time since the last release, so that polls grow as its logarithm


class Ranking(NetworkPolicy[Stateless]):
    """Serve coflows in ascending order of a sort key, each ahead of all after it; equal ones by release, then by position."""

    State = Stateless
    by_coflow = True

    @abstractmethod
    def sort_key(self, snapshot: Snapshot) -> Floats:
        """Return the sort key of each job's coflow, the smallest served first."""

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per job; jobs without a coflow in flight are ranked by their next one."""
        positions = np.lexsort((snapshot.coflows.released_s, _without_rounding(self.sort_key(snapshot))))
        return state, tuple(Tier((snapshot.jobs.key[i],)) for i in positions.tolist()), None


def _without_rounding(key: Floats) -> Floats:
    """Return sort keys to nine digits, so that keys that differ by rounding alone are a tie."""
    magnitude = 10.0 ** np.floor(np.log10(np.where(key > 0, key, 1.0)))
    return np.round(key / magnitude, 9) * magnitude


def polling_interval_s(shortest_s: float, snapshot: Snapshot, now: float) -> float:
    """Return the seconds until a policy that follows the bytes sent decides again though no coflow starts or ends.

    At least `shortest_s`; longer while nothing happens, so that a run with one long coflow has few decisions.
    """
    in_flight = snapshot.coflows.in_flight
    idle_s = now - float(snapshot.coflows.released_s[in_flight].max())
    return max(shortest_s, idle_s / POLLS_PER_IDLE_TIME)


def effective_bottleneck_s(snapshot: Snapshot) -> Floats:
    """Return the effective bottleneck of each coflow: the seconds that what is left of it needs of its busiest link alone.

    Gamma in Chowdhury, Zhong, Stoica 2014 (SIGCOMM), with whole links instead of their free capacity.
    """
    return bottleneck_s(snapshot.jobs, snapshot.coflows.seconds)


def bottleneck_s(jobs: JobColumns, seconds: Floats) -> Floats:
    """Return the most that each job needs of any link, of `seconds` as `JobColumns.seconds`."""
    most = np.zeros(len(jobs.key))
    np.maximum.at(most, jobs.owner, seconds)
    return most
