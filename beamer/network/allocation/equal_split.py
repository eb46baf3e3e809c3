"""CoflowSim's idea of fair sharing, kept to compare with its figures."""

from beamer.network.allocation.base import Allocator, Arrangement, Mode, together
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


class EqualSplit(Allocator):
    """Give a flow the least, over its links, of capacity / flows there. [source: CoflowSim]

    Not work-conserving: what a flow that is held back elsewhere does not use stays free. Real TCP is nearer to `maxmin`.
    """

    name = "equal-split"
    mode = Mode.SPLIT
    heeds_order = False
    shares = True

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve all jobs alike."""
        return together(order, snapshot)
