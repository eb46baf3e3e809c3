"""What policies share that serve coflows in ascending order of one number."""

from abc import abstractmethod
from random import Random

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.arrays import Floats
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import JobColumns, Snapshot

POLLS_PER_IDLE_TIME = 20  # The interval is this part of the time since the last release, so that polls grow as its logarithm.
ROUNDING = 1e-9  # The number of bits that a coflow has sent, a sum over its flows, may be off by this share.


class Ranking(NetworkPolicy[Stateless]):
    """Serve coflows in ascending order of a sort key, each ahead of all after it; equal ones by release, then by position."""

    State = Stateless
    by_coflow = True

    @abstractmethod
    def sort_key(self, snapshot: Snapshot) -> Floats:
        """Return the sort key of each job's coflow, the smallest served first."""

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per job; jobs without a coflow in flight are ranked by their next one."""
        positions = np.lexsort((snapshot.coflows.released_s, without_rounding(self.sort_key(snapshot))))
        return state, tuple(Tier((snapshot.jobs.key[i],)) for i in positions.tolist()), None


def without_rounding(key: Floats) -> Floats:
    """Return sort keys of at least 0 to nine digits: those that differ by rounding alone are a tie. Infinite ones stay."""
    finite = np.where(np.isfinite(key), key, 0.0)
    magnitude = 10.0 ** np.floor(np.log10(np.where(finite > 0, finite, 1.0)))
    return np.where(np.isfinite(key), np.round(finite / magnitude, 9) * magnitude, key)


def polling_interval_s(shortest_s: float, idle_s: float) -> float:
    """Return the seconds until a policy that follows the bytes sent decides again though no coflow starts or ends.

    At least `shortest_s`; longer while nothing happens, so that a run with one long coflow has few decisions. idle_s: since the
    last release of a coflow in flight.
    """
    return max(shortest_s, idle_s / POLLS_PER_IDLE_TIME)


def next_poll_s(shortest_s: float, snapshot: Snapshot, now: float, limit_bits: Floats) -> float | None:
    """Return the first instant of polling at which a coflow in flight may have sent its limit; None if none can before it ends.

    Instants of polling follow each other from `now` on by `polling_interval_s`. Those that are left out are too early for every
    coflow, even if it had its senders and receivers to itself: a decision then that goes by limits would be the one of now.
    limit_bits: by job, for all that its coflow sends, above what it has sent so far; infinite for none.
    """
    coflows = snapshot.coflows
    able = coflows.in_flight & (coflows.sent_bits + coflows.left_bits > limit_bits * (1 + ROUNDING))
    if not able.any():
        return None
    missing_bits = limit_bits * (1 - ROUNDING) - coflows.sent_bits
    soonest_s = now + float((missing_bits[able] / most_bps(snapshot.jobs, snapshot.capacity_bps)[able]).min())
    released_s = float(coflows.released_s[coflows.in_flight].max())
    at = now + polling_interval_s(shortest_s, now - released_s)
    while at < soonest_s:
        at += polling_interval_s(shortest_s, at - released_s)
    return at


def most_bps(jobs: JobColumns, capacity_bps: Floats) -> Floats:
    """Return a rate that each job's coflow cannot exceed: that of the fastest link that it loads, for each sender or receiver.

    Whichever are fewer; a host has one link to send on and one to receive on.
    """
    fastest_bps = np.zeros(len(jobs.key))
    np.maximum.at(fastest_bps, jobs.owner, capacity_bps[jobs.link])
    return np.minimum(jobs.senders, jobs.receivers) * fastest_bps


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
