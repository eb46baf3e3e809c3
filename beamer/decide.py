"""The one decision: from what is known to a class for every running job, pure, shared by controller and simulator."""

from collections.abc import Callable
from random import Random
from types import MappingProxyType
from typing import TypeVar

from beamer.model import Snapshot
from beamer.ordering.base import Order, Ordering
from beamer.plan import JobPlan, Plan, check_queues

S = TypeVar("S")

Decide = Callable[[S, Snapshot, float, Random], tuple[S, Plan, float | None]]
"""(state, snapshot, now, rng) -> (state, plan, wake_at), times in seconds."""


def decide(policy: Ordering[S], queues: int) -> Decide[S]:
    """Return the decision of `policy` for ports with `queues` managed classes. Raises `InputError` for too many of them."""
    check_queues(queues)

    def decision(state: S, snapshot: Snapshot, now: float, rng: Random) -> tuple[S, Plan, float | None]:
        state, order, wake_at = policy.order(state, snapshot, now, rng)
        jobs = {key: JobPlan(klass) for key, klass in assign_classes(order, queues).items()}
        return state, Plan(queues, MappingProxyType(jobs)), wake_at

    return decision


def assign_classes(order: Order, queues: int) -> dict[str, int]:
    """Return the class of every job of `order`, 0 served first.

    A class per tier in order; tiers that find none left share the lowest. Classes that tiers leave over separate the jobs of
    divisible tiers, slowest first, the most urgent tier's before the next one's. [rebuilt]
    """
    tiers = [tier for tier in order if tier.jobs]
    spare = max(queues - len(tiers), 0)
    klass: dict[str, int] = {}
    first = 0
    for tier in tiers:
        extra = min(spare, len(tier.jobs) - 1) if tier.divisible else 0
        for i, key in enumerate(tier.jobs):
            klass[key] = min(first + min(i, extra), queues - 1)
        first += 1 + extra
        spare -= extra
    return klass
