"""The do-nothing baseline: a network without priorities."""

from random import Random

from beamer.decision.policy import Stateless
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot


class Fair(NetworkPolicy[Stateless]):
    """Put every job in one class, so that TCP alone shares the links.

    Ideally that is per-flow max-min fairness (Bertsekas, Gallager 1992, Data Networks, section 6.5.2), see the allocator
    `maxmin`.
    """

    name = "fair"
    orders = False
    shares = True
    State = Stateless

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one indivisible tier with all jobs."""
        return state, (Tier(snapshot.jobs.key),) if snapshot.jobs.key else (), None
