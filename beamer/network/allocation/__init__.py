"""Allocators: from an order to rates; one per file, each registered here under its name."""

from typing import Any

from beamer.errors import InputError, nearest
from beamer.network.allocation.base import Allocator
from beamer.network.allocation.classes import Classes
from beamer.network.allocation.equal_split import EqualSplit
from beamer.network.allocation.greedy import Greedy
from beamer.network.allocation.madd import Madd
from beamer.network.allocation.maxmin import MaxMin
from beamer.network.policy import NetworkPolicy

__all__ = [
    "ALLOCATORS",
    "Allocator",
    "Classes",
    "EqualSplit",
    "Greedy",
    "Madd",
    "MaxMin",
    "allocator",
    "check_pair",
    "is_asked",
]

ALLOCATORS: dict[str, type[Allocator]] = {kind.name: kind for kind in (Greedy, Madd, MaxMin, Classes, EqualSplit)}


def allocator(name: str) -> Allocator:
    """Return the allocator that is registered under `name`. Raises `InputError` with the nearest name if there is none."""
    if name not in ALLOCATORS:
        raise InputError("allocator", name, nearest(name, ALLOCATORS))
    return ALLOCATORS[name]()


def is_asked(policy: NetworkPolicy[Any], chosen: Allocator) -> bool:
    """Return whether what `policy` says makes a difference: all coflows share alike if neither it nor the allocator orders."""
    return policy.orders or chosen.heeds_order


def check_pair(policy: NetworkPolicy[Any], chosen: Allocator) -> None:
    """Check that `chosen` can carry out what `policy` orders. Raises `InputError` that says what it would need."""
    if policy.shares and not chosen.shares:
        raise InputError("allocator", chosen.name, f"one that lets coflows share, as {policy.name} asks: maxmin or classes")
    if policy.needs_coflows and not chosen.sees_coflows:
        raise InputError(
            "policy",
            policy.name,
            "one that does without what coflows in flight have sent: no live system knows it, "
            f"nor {chosen.name} with a number of queues; "
            f"{'classes with unlimited queues does' if policy.shares else 'greedy and madd do'}, in the simulator",
        )
    if not chosen.heeds_order and policy.orders:
        raise InputError(
            "policy",
            policy.name,
            f"one that orders nothing, such as fair, as {chosen.name} heeds no order; greedy, madd and classes do",
        )
