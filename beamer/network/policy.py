"""The seam of network policies: from what is known now to an order of the running jobs.

Simulator and controller call the same policies through `beamer.network.decide`. A policy is one class with one method in one
file, and one line in the registry of `beamer.network.policies`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from random import Random
from typing import ClassVar, TypeVar

from beamer.decision.policy import Policy
from beamer.network.snapshot import Snapshot

S = TypeVar("S")


@dataclass(frozen=True)
class Tier:
    """Jobs that the policy would serve together.

    jobs: their keys, slowest first. divisible: whether classes that are left over may separate them.
    """

    jobs: tuple[str, ...]
    divisible: bool = False


Order = tuple[Tier, ...]
"""Every running job in exactly one tier, most urgent tier first."""


class NetworkPolicy(Policy[S]):
    """A network policy.

    by_coflow: whether it decides whenever a coflow starts or ends, not only when jobs do.
    orders: whether it serves any jobs before others; one that does not is not asked where the allocator heeds no order either.
    shares: whether the jobs of a tier that is not divisible are meant to share, so that no order of them may be invented.
    needs_coflows: whether it goes by what coflows in flight have sent, which no live system knows.
    """

    by_coflow: ClassVar[bool] = False
    orders: ClassVar[bool] = True
    shares: ClassVar[bool] = False
    needs_coflows: ClassVar[bool] = False

    @abstractmethod
    def order(self, state: S, snapshot: Snapshot, now: float, rng: Random) -> tuple[S, Order, float | None]:
        """Order the running jobs.

        now: seconds, on the clock of the snapshot's times. Returns the new state, the order, and when to decide again if
        nothing happens (None: not at all). Equal arguments give equal results.
        """
