"""What the policies have in common that rank coflows by one figure each."""

from abc import abstractmethod
from random import Random

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.arrays import Floats
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot


class Ranking(NetworkPolicy[Stateless]):
    """Serve coflows in ascending order of a figure, each ahead of all behind it; equal ones by release, then by position."""

    State = Stateless
    by_coflow = True

    @abstractmethod
    def figure(self, snapshot: Snapshot) -> Floats:
        """Return the figure of each job's coflow."""

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per job; jobs without a coflow in flight are ranked by their next one."""
        places = np.lexsort((snapshot.coflows.released_s, _without_rounding(self.figure(snapshot))))
        return state, tuple(Tier((snapshot.jobs.key[i],)) for i in places.tolist()), None


def _without_rounding(figure: Floats) -> Floats:
    """Return figures to nine digits, so that what is equal but for rounding is a tie."""
    magnitude = 10.0 ** np.floor(np.log10(np.where(figure > 0, figure, 1.0)))
    return np.round(figure / magnitude, 9) * magnitude


def look_again_s(interval_s: float, snapshot: Snapshot, now: float) -> float:
    """Return after how long to look at the bytes sent again: `interval_s`, or a 20th of the time since the last release."""
    flying = snapshot.coflows.in_flight
    return max(interval_s, (now - float(snapshot.coflows.released_s[flying].max())) / 20)


def effective_bottleneck_s(snapshot: Snapshot) -> Floats:
    """Return Gamma of each coflow: seconds that what is left of it needs of its busiest link alone."""
    gamma = np.zeros(len(snapshot.jobs.key))
    np.maximum.at(gamma, snapshot.jobs.owner, snapshot.coflows.seconds)
    return gamma
