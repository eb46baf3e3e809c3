"""Per-flow fairness: what TCP alone approximates."""

from beamer.network.allocation.base import Allocator, Arrangement, Mode, together
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


class MaxMin(Allocator):
    """Give flows max-min fair rates by water-filling: none can grow without a smaller or equal one shrinking.

    Bertsekas, Gallager 1992 (Data Networks, 2nd edition), section 6.5.2.
    """

    name = "maxmin"
    mode = Mode.SHARING
    heeds_order = False
    shares = True

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve all jobs alike."""
        return together(order, snapshot)
