"""The simulated network: coflows in flight and the rates at which their flows drain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beamer.allocation.classes import classes
from beamer.allocation.demand import Demand

_DONE = 1e-9  # share of a flow's size that rounding may leave over


@dataclass(frozen=True)
class Flow:
    """Bits to move. usage: as in `Demand`. size_bits: frames included."""

    usage: Mapping[int, float]
    size_bits: float


@dataclass
class _Moving:
    flow: Flow
    owner: str
    left_bits: float
    rate_bps: float = 0.0


class Network:
    """Flows on links of `capacity` bit/s, one coflow per owner at a time, at the rates of `allocation.classes`."""

    def __init__(self, capacity: Sequence[float], lowest: int, minimum_share: float = 0.0) -> None:
        self._capacity = tuple(capacity)
        self._lowest = lowest
        self._minimum_share = minimum_share
        self._classes: Mapping[str, int] = {}
        self._moving: list[_Moving] = []
        self._stale = False
        self.carried_bits = [0.0] * len(self._capacity)

    def release(self, owner: str, flows: Sequence[Flow]) -> bool:
        """Start a coflow; return False if it has nothing to move over the network."""
        started = [_Moving(flow, owner, flow.size_bits) for flow in flows if flow.usage and flow.size_bits > 0]
        self._moving += started
        self._stale = self._stale or bool(started)
        return bool(started)

    def install(self, classes_by_owner: Mapping[str, int]) -> None:
        """Move every owner's traffic to its class; an owner without one is served in the lowest."""
        self._classes = classes_by_owner
        self._stale = True

    def next_end_s(self) -> float:
        """Return the seconds until the next flow ends, infinite if none moves."""
        if self._stale:
            demands = [Demand(m.flow.usage, self._classes.get(m.owner, self._lowest)) for m in self._moving]
            for moving, rate in zip(self._moving, classes(demands, self._capacity, self._minimum_share), strict=True):
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
        if ended:
            self._moving = staying
            self._stale = True
        waiting = {m.owner for m in staying}
        return [owner for owner in dict.fromkeys(ended) if owner not in waiting]
