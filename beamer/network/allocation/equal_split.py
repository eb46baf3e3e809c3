"""The fair sharing of CoflowSim, for comparison with its figures."""

from beamer.network.allocation.base import Allocator, Arrangement, Mode, together
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


class EqualSplit(Allocator):
    """Give a flow the least, over its links, of capacity / flows there.

    As CoflowSim does, the simulator by the authors of Chowdhury, Zhong, Stoica 2014 (SIGCOMM). Not work-conserving: what a flow
    with a bottleneck elsewhere does not use stays free. TCP is nearer to `maxmin`.
    """

    name = "equal-split"
    mode = Mode.SPLIT
    heeds_order = False
    shares = True

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve all jobs alike."""
        return together(order, snapshot)
