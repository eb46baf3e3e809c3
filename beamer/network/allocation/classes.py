"""Strict priority between classes, max-min fairness within a class: a model of the queues of switches and hosts.

This is the allocator that predicts the data plane.
"""

from dataclasses import dataclass

import numpy as np

from beamer.errors import InputError
from beamer.network.allocation.base import Allocator, Arrangement, Mode, in_order
from beamer.network.plan import QUEUES, JobPlan
from beamer.network.plan_modes import DEFAULT_MODE, PLAN_MODES, PlanMode
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True)
class Classes(Allocator):
    """Serve jobs by class.

    A composition of strict priority queueing and the water-filling of `maxmin`.

    queues: how many classes there are, assigned as the live system does; None: one for every tier, and for every job of a
    divisible one. minimum_share: of every link, guaranteed to each class present, whatever is above it. plan_mode: how the
    order becomes classes and caps. Work-conserving unless there are caps.
    """

    name = "classes"
    mode = Mode.SHARING
    shares = True
    queues: int | None = QUEUES
    plan_mode: PlanMode = PLAN_MODES[DEFAULT_MODE]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queues is None and self.caps:
            raise InputError("queues", self.queues, f"a number beside the mode {self.plan_mode.name}")

    @property
    def caps(self) -> bool:
        """Whether its mode sets any."""
        return self.plan_mode.caps

    @property
    def sees_coflows(self) -> bool:
        """Queues of a switch are set by what a live system knows, which does not include the coflows in flight."""
        return self.queues is None

    def lowest(self, last: int) -> int:
        """Return the last queue; with one for each job, the one after those in use."""
        return super().lowest(last) if self.queues is None else self.queues - 1

    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Serve jobs by the classes that the order gives them."""
        positions = in_order(order, snapshot)
        if self.queues is None:
            sizes = [size for tier in order for size in ([1] * len(tier.jobs) if tier.divisible else [len(tier.jobs)])]
            return Arrangement(positions, np.repeat(np.arange(len(sizes)), sizes))
        planned = self.plan_mode.plan(order, snapshot, self.queues)
        unplanned = JobPlan(self.queues - 1)
        each = [planned.get(key, unplanned) for tier in order for key in tier.jobs]
        group = np.array([job.klass for job in each], np.int64)
        if not self.caps:
            return Arrangement(positions, group)
        return Arrangement(positions, group, np.array([np.inf if job.cap_bps is None else job.cap_bps for job in each]))
