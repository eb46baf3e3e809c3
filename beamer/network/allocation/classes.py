"""Strict priority between classes, max-min fairness within a class: a model of the queues of switches and hosts.

This is the allocator that predicts the data plane.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from beamer.network.allocation.base import Allocator, Arrangement, Mode, in_order
from beamer.network.decide import assign_classes, without_idle
from beamer.network.plan import QUEUES
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True)
class Classes(Allocator):
    """Serve jobs by class.

    A composition of strict priority queueing and the water-filling of `maxmin`. Work-conserving.

    queues: how many classes there are, assigned as the live system does; None: one for every tier, and for every job of a
    divisible one. minimum_share: of every link, guaranteed to each class present, whatever is above it.
    """

    name = "classes"
    mode = Mode.SHARING
    shares = True
    queues: int | None = QUEUES

    @property
    def sees_coflows(self) -> bool:
        """Queues of a switch are set by what a live system knows, which does not include the coflows in flight."""
        return self.queues is None

    def lowest(self, groups: Collection[int]) -> int:
        """Return the last queue; with one for each job, one more than are in use."""
        return super().lowest(groups) if self.queues is None else self.queues - 1

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve jobs by the classes that the order gives them."""
        positions = in_order(order, snapshot)
        if self.queues is None:
            sizes = [size for tier in order for size in ([1] * len(tier.jobs) if tier.divisible else [len(tier.jobs)])]
            return Arrangement(positions, np.repeat(np.arange(len(sizes)), sizes))
        current = {key: klass for key, klass in zip(snapshot.jobs.key, snapshot.klass.tolist(), strict=True) if klass >= 0}
        klass = assign_classes(without_idle(order, snapshot), self.queues, current)
        lowest = self.queues - 1
        group = np.array([klass.get(key, lowest) for tier in order for key in tier.jobs], np.int64)
        return Arrangement(positions, group)
