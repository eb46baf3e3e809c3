"""Strict order of flows: the ideal that the queues of switches are compared with."""

from beamer.network.allocation.base import Allocator, Arrangement, Mode, one_by_one
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


class Greedy(Allocator):
    """Give every flow in order what the flows before it leave of its path.

    The greedy order-preserving allocation of Sincronia (Agarwal et al. 2018, SIGCOMM). Work-conserving. Flows
    of one coflow come in the order in which its collective or trace lists them.
    """

    name = "greedy"
    mode = Mode.GREEDY

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve jobs one by one."""
        return one_by_one(order, snapshot)
