"""Sincronia's order, computed anew at every event."""

from random import Random

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.bssi import Items, sequence
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot


class SincroniaEvent(NetworkPolicy[Stateless]):
    """Order what is left of the coflows in flight by BSSI whenever one starts or ends.

    The ordering is that of Agarwal et al. 2018 (SIGCOMM), all coflows of equal weight. To repeat it at every event is a simple
    online variant; the publication's online algorithm is `sincronia`.
    """

    name = "sincronia-event"
    State = Stateless
    by_coflow = True

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per job; those without a coflow in flight last, if any has one."""
        jobs, coflows = snapshot.jobs, snapshot.coflows
        items = Items(
            np.ones(len(jobs.key)),
            jobs.first,
            jobs.link,
            coflows.seconds,
            np.zeros(len(jobs.key)),
            len(snapshot.capacity_bps),
        )
        positions = sequence(items)[0]
        if coflows.in_flight.any():
            positions = positions[np.argsort(~coflows.in_flight[positions], kind="stable")]
        return state, tuple(Tier((jobs.key[i],)) for i in positions.tolist()), None
