"""The do-nothing baseline: what the network does when nobody tells it about stages."""

from random import Random

from beamer.model import Snapshot
from beamer.ordering.base import Nothing, Order, Ordering, Tier


class Fair(Ordering[Nothing]):
    """Put every job in one class, so that TCP alone shares the links: per-flow max-min fairness. [source: ALGORITHMS 3]"""

    name = "fair"
    State = Nothing

    def order(self, state: Nothing, snapshot: Snapshot, now: float, rng: Random) -> tuple[Nothing, Order, float | None]:
        """Return one indivisible tier with all jobs."""
        jobs = tuple(job.key for job in snapshot.jobs())
        return state, (Tier(jobs),) if jobs else (), None
