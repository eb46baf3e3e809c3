"""Queues by bytes sent: the baseline that knows nothing in advance."""

from random import Random
from typing import ClassVar

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.ranking import ROUNDING, next_poll_s
from beamer.network.snapshot import Snapshot

# These are the parameters of Aalo's evaluation: the first queue ends at 10 MB, every further one at 10 times the one before.
FIRST_LIMIT_BITS = 8 * 10 * 2**20
LIMIT_FACTOR = 10.0
AALO_QUEUES = 10


class Aalo(NetworkPolicy[Stateless]):
    """Serve coflows by queues of bytes sent, those that have sent least first; FIFO within a queue.

    Discretized coflow-aware least-attained service (D-CLAS) of Aalo (Chowdhury, Stoica 2015, SIGCOMM), with the limits of its
    evaluation. Deviates in that queues are strictly one before another, as in CoflowSim, the authors' simulator; Aalo shares
    links between queues by weight. It goes by what a coflow has sent, so that it is nothing but `fifo` where that is not known.

    interval_s: the shortest time between two decisions while no coflow starts or ends, as Aalo's coordinator has one; there are
    none before one may have come to the end of its queue.
    """

    name = "aalo"
    State = Stateless
    by_coflow = True
    needs_coflows = True
    interval_s: ClassVar[float] = 1.0

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per job, jobs without a coflow in flight as if theirs had just been released."""
        coflows = snapshot.coflows
        limits = FIRST_LIMIT_BITS * LIMIT_FACTOR ** np.arange(AALO_QUEUES - 1)
        # A sum over flows may miss its limit.
        queue = np.searchsorted(limits * (1 - ROUNDING), coflows.sent_bits, side="right")
        positions = np.lexsort((coflows.released_s, ~coflows.in_flight, queue))
        next_limit = np.append(limits, np.inf)[queue]
        order = tuple(Tier((snapshot.jobs.key[i],)) for i in positions.tolist())
        return state, order, next_poll_s(self.interval_s, snapshot, now, next_limit)
