"""The seam of allocators: how an order of jobs becomes the rates of their flows.

An allocator is one class in one file, and one line in the registry of `beamer.network.allocation`. In the simulator the
kernel that it names computes the rates; on real links, queues and TCP do approximately what `classes` does.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np

from beamer.errors import InputError
from beamer.network.arrays import Floats, Ints
from beamer.network.kernels import fluid as kernels
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


class Mode(IntEnum):
    """The kernels that turn an order, or groups, into rates."""

    GREEDY = kernels.GREEDY
    MADD = kernels.MADD
    SHARING = kernels.SHARING
    SPLIT = kernels.SPLIT


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Positions of jobs in the order in which they are served, and the group of each; a group shares, lower ones go first.

    cap_bps: what the busiest sender of each may not exceed, infinite for none; None: no job has a cap.
    """

    order: Ints
    group: Ints
    cap_bps: Floats | None = None


@dataclass(frozen=True)
class Allocator(ABC):
    """A rule that turns an order into rates.

    name: what users select it by. mode: its kernel. heeds_order, shares: whether it serves some jobs before others, and
    whether it can let some share. minimum_share: of every link, guaranteed to each group.
    """

    name: ClassVar[str]
    mode: ClassVar[Mode]
    heeds_order: ClassVar[bool] = True
    shares: ClassVar[bool] = False
    minimum_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.minimum_share <= 1:
            raise InputError("minimum_share", self.minimum_share, "a share from 0 to 1")
        if self.minimum_share and self.mode is not Mode.SHARING:
            raise InputError("minimum_share", self.minimum_share, f"0, as {self.name} has no groups that share")

    @property
    def sees_coflows(self) -> bool:
        """Whether it stands for a network whose coflows in flight are known, as ideal allocators do."""
        return True

    @property
    def caps(self) -> bool:
        """Whether it may cap the rates of senders, so that a network has to be able to."""
        return False

    def lowest(self, last: int) -> int:
        """Return the group of jobs that no order contains yet, after all that are in use. last: of these, -1 if none is."""
        return last + 1 if self.heeds_order else 0

    @abstractmethod
    def arrange(self, order: Order, snapshot: Snapshot) -> Arrangement:
        """Say how the jobs of `snapshot` are served, given their order."""


def in_order(order: Order, snapshot: Snapshot) -> Ints:
    """Return the positions of jobs as `order` has them, tier after tier."""
    position = snapshot.jobs.position
    return np.array([position[key] for tier in order for key in tier.jobs], np.int64)


def one_by_one(order: Order, snapshot: Snapshot) -> Arrangement:
    """Serve each job ahead of all behind it."""
    positions = in_order(order, snapshot)
    return Arrangement(positions, np.arange(len(positions)))


def together(order: Order, snapshot: Snapshot) -> Arrangement:
    """Serve all jobs alike."""
    positions = np.arange(len(snapshot.jobs.key))
    return Arrangement(positions, np.zeros(len(positions), np.int64))
