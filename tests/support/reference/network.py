"""The plain simulated network: coflows in flight and the rates at which their flows drain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.reference.demand import FlowDemand, Rates

_DONE = 1e-9  # share of a flow's size that rounding may leave over


@dataclass(frozen=True)
class Flow:
    """Bits to move. usage: as in `FlowDemand`. size_bits: frames included."""

    usage: Mapping[int, float]
    size_bits: float


@dataclass
class _Moving:
    flow: Flow
    owner: str
    left_bits: float
    rate_bps: float = 0.0


class ReferenceNetwork:
    """Flows on links of `capacity` bit/s, one coflow per owner at a time, at the rates of a plain allocator.

    klass: of every owner. by_coflow: whether rates stand while only flows end, not coflows.
    """

    def __init__(self, capacity: Sequence[float], allocate: Rates, klass: Mapping[str, int], by_coflow: bool = False) -> None:
        self._capacity = tuple(capacity)
        self._allocate = allocate
        self._klass = klass
        self._by_coflow = by_coflow
        self._moving: list[_Moving] = []
        self._stale = False
        self.carried_bits = [0.0] * len(self._capacity)

    def release(self, owner: str, flows: Sequence[Flow]) -> bool:
        """Start a coflow; return False if it has nothing to move over the network."""
        started = [_Moving(flow, owner, flow.size_bits) for flow in flows if flow.usage and flow.size_bits > 0]
        self._moving += started
        self._stale = self._stale or bool(started)
        return bool(started)

    def reallocate(self) -> None:
        """Have rates worked out anew."""
        self._stale = True

    def next_end_s(self) -> float:
        """Return the seconds until the next flow ends, infinite if none moves."""
        if self._stale:
            demands = [FlowDemand(m.flow.usage, self._klass[m.owner], 0, m.left_bits) for m in self._moving]
            for moving, rate in zip(self._moving, self._allocate(demands, self._capacity), strict=True):
                moving.rate_bps = rate
            self._stale = False
        return min((m.left_bits / m.rate_bps for m in self._moving if m.rate_bps > 0), default=math.inf)

    def advance(self, seconds: float) -> list[str]:
        """Let `seconds` pass, at most `next_end_s`; return the owners whose coflow is now complete."""
        ended: list[str] = []
        staying: list[_Moving] = []
        for moving in self._moving:
            moved = min(moving.rate_bps * seconds, moving.left_bits)
            moving.left_bits -= moved
            for link, use in moving.flow.usage.items():
                self.carried_bits[link] += use * moved
            if moving.left_bits <= _DONE * moving.flow.size_bits:
                ended.append(moving.owner)
            else:
                staying.append(moving)
        self._moving = staying
        waiting = {m.owner for m in staying}
        complete = [owner for owner in dict.fromkeys(ended) if owner not in waiting]
        if complete if self._by_coflow else ended:
            self._stale = True
        return complete
