"""First come, first served with limited multiplexing: a heavy coflow does not block those behind it."""

from random import Random
from typing import ClassVar

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.ranking import ROUNDING, next_poll_s
from beamer.network.snapshot import Snapshot

HEAVY_PERCENTILE = 80  # percentile of coflow sizes, as in Baraat


class FifoLm(NetworkPolicy[Stateless]):
    """Serve coflows by release, a heavy one together with the next ones up to the first that is not heavy.

    FIFO-LM of Baraat (Dogar, Karagiannis, Ballani, Rowstron 2014, SIGCOMM), whose tasks are coflows here: an iteration's, for a
    training job. A coflow is heavy once it has sent more than the threshold: the 80th percentile of the coflow sizes known,
    unless `heavy_bits` is set. Groups of coflows that share are strictly one before another, which is our reconstruction.

    It goes by what a coflow has sent, so that it is nothing but `fifo` where that is not known.

    interval_s: the shortest time between two decisions while no coflow starts or ends; there are none before one may be heavy.
    """

    name = "fifo-lm"
    State = Stateless
    by_coflow = True
    shares = True
    needs_coflows = True
    heavy_bits: ClassVar[float | None] = None
    interval_s: ClassVar[float] = 0.1

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per group of coflows that share."""
        coflows = snapshot.coflows
        if not snapshot.jobs.key:
            return state, (), None
        threshold = np.percentile(snapshot.jobs.size_bits, HEAVY_PERCENTILE) if self.heavy_bits is None else self.heavy_bits
        # A coflow that has sent just the threshold is not heavy, whatever its flows sum up to.
        heavy = coflows.sent_bits > threshold * (1 + ROUNDING)
        tiers: list[Tier] = []
        group: list[str] = []
        for i in np.lexsort((coflows.released_s, ~coflows.in_flight)).tolist():
            group.append(snapshot.jobs.key[i])
            if not heavy[i]:
                tiers.append(Tier(tuple(group)))
                group = []
        if group:
            tiers.append(Tier(tuple(group)))
        return state, tuple(tiers), next_poll_s(self.interval_s, snapshot, now, np.where(heavy, np.inf, threshold))
