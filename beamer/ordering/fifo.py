"""First come, first served: the baseline that orders jobs but knows nothing of stages."""

from random import Random

from beamer.model import Snapshot
from beamer.ordering.base import Nothing, Order, Ordering, Tier


class Fifo(Ordering[Nothing]):
    """Serve jobs in order of registration, each ahead of all that came after it. [source: ALGORITHMS 3]"""

    name = "fifo"
    State = Nothing

    def order(self, state: Nothing, snapshot: Snapshot, now: float, rng: Random) -> tuple[Nothing, Order, float | None]:
        """Return one tier per job, the first registered first; equal times in the snapshot's order."""
        jobs = sorted(snapshot.jobs(), key=lambda job: job.registered_s)
        return state, tuple(Tier((job.key,)) for job in jobs), None
