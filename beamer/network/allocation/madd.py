"""Rates at which the flows of a coflow end together."""

from beamer.network.allocation.base import Allocator, Arrangement, Mode, one_by_one
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


class Madd(Allocator):
    """Give each coflow in order the least rates that end it as early as possible, then backfill.

    Minimum allocation for desired duration of Varys (Chowdhury, Zhong, Stoica 2014, SIGCOMM). A coflow that needs a link which
    those before it have taken is skipped. How the bandwidth left is backfilled is our reconstruction: it is split evenly among
    the flows of each skipped coflow, and the rest goes to the flows one by one, all in order. Rates are computed when coflows
    start, end or are reordered, as in Varys: in between, what an ended flow leaves stays free, so that work conservation holds
    at those instants only.
    """

    name = "madd"
    mode = Mode.MADD

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve jobs one by one."""
        return one_by_one(order, snapshot)
