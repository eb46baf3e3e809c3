"""What every allocator has to satisfy; run each of `ALLOCATOR_CHECKS` on your own."""

import math
import random
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from beamer.allocation.demand import Allocator, Demand
from beamer.testing.profile import PROFILE
from beamer.testing.strategies import networks

AllocatorCheck = Callable[[Allocator], None]

CAPACITY_TOLERANCE = 1e-9
FULL = 1 - 1e-6


def _used(demands: Sequence[Demand], rates: Sequence[float], links: int) -> list[float]:
    used = [0.0] * links
    for demand, rate in zip(demands, rates, strict=True):
        for link, use in demand.usage.items():
            used[link] += use * rate
    return used


def keeps_to_capacity(allocate: Allocator) -> None:
    """No rate is negative and no link carries more than its capacity."""

    @PROFILE
    @given(networks())
    def check(network: tuple[list[Demand], list[float]]) -> None:
        demands, capacity = network
        rates = allocate(demands, capacity)
        assert all(rate >= 0 for rate in rates)
        for used, possible in zip(_used(demands, rates, len(capacity)), capacity, strict=True):
            assert used <= possible * (1 + CAPACITY_TOLERANCE)

    check()


def conserves_work(allocate: Allocator) -> None:
    """Every flow that uses links uses a full one, and one that uses none is not held back."""

    @PROFILE
    @given(networks())
    def check(network: tuple[list[Demand], list[float]]) -> None:
        demands, capacity = network
        rates = allocate(demands, capacity)
        used = _used(demands, rates, len(capacity))
        for demand, rate in zip(demands, rates, strict=True):
            full = any(used[link] >= FULL * capacity[link] for link in demand.usage)
            assert full if demand.usage else math.isinf(rate)

    check()


def ignores_positions(allocate: Allocator) -> None:
    """The order in which flows are listed changes no rate."""

    @PROFILE
    @given(networks(), st.randoms(use_true_random=False))
    def check(network: tuple[list[Demand], list[float]], rng: random.Random) -> None:
        demands, capacity = network
        places = list(range(len(demands)))
        rng.shuffle(places)
        shuffled = allocate([demands[i] for i in places], capacity)
        expected = allocate(demands, capacity)
        for place, rate in zip(places, shuffled, strict=True):
            assert math.isclose(rate, expected[place], rel_tol=1e-6, abs_tol=1e-6)

    check()


def repeats_itself(allocate: Allocator) -> None:
    """Equal flows on equal links have exactly equal rates from call to call."""

    @PROFILE
    @given(networks())
    def check(network: tuple[list[Demand], list[float]]) -> None:
        assert allocate(*network) == allocate(*network)

    check()


def treats_twins_alike(allocate: Allocator) -> None:
    """Two flows that ask for the same get the same."""

    @PROFILE
    @given(networks())
    def check(network: tuple[list[Demand], list[float]]) -> None:
        demands, capacity = network
        rates = allocate([*demands, *demands], capacity)
        for one, other in zip(rates[: len(demands)], rates[len(demands) :], strict=True):
            assert math.isclose(one, other, rel_tol=1e-9)

    check()


def needs_no_flows(allocate: Allocator) -> None:
    """No flows have no rates."""
    assert allocate([], [1.0]) == []


ALLOCATOR_CHECKS: tuple[AllocatorCheck, ...] = (
    keeps_to_capacity,
    conserves_work,
    ignores_positions,
    repeats_itself,
    treats_twins_alike,
    needs_no_flows,
)
