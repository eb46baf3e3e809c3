"""The do-nothing baseline: what the network does when nobody tells it about stages."""

from random import Random

from beamer.ordering.base import Nothing, Order, Ordering, Tier
from beamer.snapshot import Snapshot


class Fair(Ordering[Nothing]):
    """Put every job in one class, so that TCP alone shares the links: per-flow max-min fairness. [source: ALGORITHMS 3]"""

    name = "fair"
    orders = False
    shares = True
    State = Nothing

    def order(self, state: Nothing, snapshot: Snapshot, now: float, rng: Random) -> tuple[Nothing, Order, float | None]:
        """Return one indivisible tier with all jobs."""
        return state, (Tier(snapshot.jobs.key),) if snapshot.jobs.key else (), None
