"""Queues by bytes sent: the baseline that knows nothing in advance."""

from random import Random
from typing import ClassVar

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.ranking import look_again_s
from beamer.network.snapshot import Snapshot

FIRST_LIMIT_BITS = 8 * 10 * 2**20
FACTOR = 10.0
QUEUES = 10


class Aalo(NetworkPolicy[Stateless]):
    """Serve the coflows that have sent least first, by decades of bytes; FIFO within one. [source: Aalo's D-CLAS, ALGORITHMS 3]

    interval_s: how often the bytes sent are looked at while nothing else happens, as Aalo's coordinator does; less often the
    longer nothing has.
    """

    name = "aalo"
    State = Stateless
    by_coflow = True
    interval_s: ClassVar[float] = 1.0

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per job, jobs without a coflow in flight as if theirs had just been released."""
        coflows = snapshot.coflows
        limits = FIRST_LIMIT_BITS * FACTOR ** np.arange(QUEUES - 1)
        queue = np.searchsorted(limits, coflows.sent_bits, side="right")
        places = np.lexsort((coflows.released_s, ~coflows.in_flight, queue))
        wake_at = now + look_again_s(self.interval_s, snapshot, now) if coflows.in_flight.any() else None
        return state, tuple(Tier((snapshot.jobs.key[i],)) for i in places.tolist()), wake_at
