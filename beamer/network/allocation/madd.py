"""Rates at which the flows of a coflow end together."""

from beamer.network.allocation.base import Allocator, Arrangement, Mode, one_by_one
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


class Madd(Allocator):
    """Give each coflow in order the least rates that end it as early as can be, then backfill. [source: Varys, ALGORITHMS 4]

    A coflow that needs a link which those before it have taken is passed over; what is left is then split evenly among the
    flows of each that was, and what that leaves goes to the flows one by one, all in order.
    Rates are worked out when coflows start, end or are reordered, as Varys does: between these, what an ended flow leaves
    stays free, so that work conservation is promised at those instants only.
    """

    name = "madd"
    mode = Mode.MADD

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve jobs one by one."""
        return one_by_one(order, snapshot)
