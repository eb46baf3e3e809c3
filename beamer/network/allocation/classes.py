"""What the queues of switches and hosts do: strict priority between classes, max-min inside a class.

This is the allocator that predicts the data plane.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from beamer.network.allocation.base import Allocator, Arrangement, Mode, in_order
from beamer.network.decide import assign_classes
from beamer.network.plan import QUEUES
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True)
class Classes(Allocator):
    """Serve jobs by class. [source: ALGORITHMS 4]

    queues: how many classes there are, assigned as the live system does; None: one for every tier, and for every job of a
    divisible one. minimum_share: of every link, that each class present is sure of, whatever is above it. Work-conserving.
    """

    name = "classes"
    mode = Mode.SHARING
    shares = True
    queues: int | None = QUEUES

    @property
    def sees_coflows(self) -> bool:
        """Real queues are set by what a live system knows, which no coflow in flight is part of."""
        return self.queues is None

    def lowest(self, groups: Collection[int]) -> int:
        """Return the last queue; with one for each job, one more than are in use."""
        return super().lowest(groups) if self.queues is None else self.queues - 1

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve jobs by the classes that the order gives them."""
        places = in_order(order, snapshot)
        if self.queues is None:
            units = [len(unit) for tier in order for unit in ([(key,) for key in tier.jobs] if tier.divisible else [tier.jobs])]
            return Arrangement(places, np.repeat(np.arange(len(units)), units))
        current = {key: klass for key, klass in zip(snapshot.jobs.key, snapshot.klass.tolist(), strict=True) if klass >= 0}
        klass = assign_classes(order, self.queues, current)
        group = np.array([klass[key] for tier in order for key in tier.jobs], np.int64)
        return Arrangement(places, group)
