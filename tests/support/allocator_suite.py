"""The conformance suite of allocators; run each of `ALLOCATOR_CHECKS` on your own.

What an allocator promises follows from its kernel: `GREEDY`, `MADD` and `SHARING` conserve work, `GREEDY` and `SHARING` keep
the less urgent from having any influence.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beamer.network.allocation import Allocator
from beamer.network.allocation.base import Mode
from beamer.network.fluid.network import FluidNetwork
from beamer.network.policies import Order, Tier
from beamer.testing.profile import PROFILE
from tests.support.loads import SyntheticJob, advance, block, snapshot, used
from tests.support.reference.demand import FlowDemand
from tests.support.strategies import networks, orders

AllocatorCheck = Callable[[Allocator], None]

CAPACITY_TOLERANCE = 1e-9
FULL = 1 - 1e-6
ROUNDING = 1e-14  # share of a link's capacity that sums in another order may differ by

_drawn = networks().flatmap(lambda network: st.tuples(st.just(network), orders(len(network[0]))))
Drawn = tuple[tuple[list[SyntheticJob], list[float]], Order]


def allocate(allocator: Allocator, loads: Sequence[SyntheticJob], capacity: Sequence[float], order: Order) -> list[list[float]]:
    """Return the rates, by job and flow, at the instant at which all jobs release their coflow; NaN for what does not move."""
    network = FluidNetwork(np.array(capacity), allocator)
    network.add(block(loads))
    network.start(range(len(loads)))
    network.arrange(allocator.arrange(order, snapshot(loads, capacity)))
    advance(network, 0.0)
    rates = iter(network.rates().tolist())
    return [[next(rates) if flow.usage and flow.size_bits else next(rates) * math.nan for flow in load.flows] for load in loads]


def _moving(loads: Sequence[SyntheticJob], rates: Sequence[Sequence[float]]) -> list[tuple[FlowDemand, float]]:
    each = [
        (FlowDemand(flow.usage), rate)
        for load, of in zip(loads, rates, strict=True)
        for flow, rate in zip(load.flows, of, strict=True)
    ]
    return [(demand, rate) for demand, rate in each if not math.isnan(rate)]


def _close(
    loads: Sequence[SyntheticJob],
    rates: Sequence[Sequence[float]],
    others: Sequence[Sequence[float]],
    capacity: Sequence[float],
) -> bool:
    """Return whether flows have equal rates; what a link of great capacity leaves of a sum may be a rate to a small one."""
    return all(
        (math.isnan(rate) and math.isnan(other))
        or math.isclose(rate, other, rel_tol=1e-6, abs_tol=ROUNDING * max(capacity[link] for link in flow.usage))
        for load, of, of_others in zip(loads, rates, others, strict=True)
        for flow, rate, other in zip(load.flows, of, of_others, strict=True)
    )


def keeps_to_capacity(allocator: Allocator) -> None:
    """No rate is negative and no link carries more than its capacity."""

    @PROFILE
    @given(_drawn)
    def check(drawn: Drawn) -> None:
        (loads, capacity), order = drawn
        moving = _moving(loads, allocate(allocator, loads, capacity, order))
        assert all(0 <= rate < math.inf for _, rate in moving)
        taken = used([demand for demand, _ in moving], [rate for _, rate in moving], len(capacity))
        assert all(sum_ <= possible * (1 + CAPACITY_TOLERANCE) for sum_, possible in zip(taken, capacity, strict=True))

    check()


def conserves_work(allocator: Allocator) -> None:
    """Every flow uses a full link, unless the allocator makes no such promise."""

    @PROFILE
    @given(_drawn)
    def check(drawn: Drawn) -> None:
        (loads, capacity), order = drawn
        moving = _moving(loads, allocate(allocator, loads, capacity, order))
        taken = used([demand for demand, _ in moving], [rate for _, rate in moving], len(capacity))
        for demand, _ in moving:
            assert any(taken[link] >= FULL * capacity[link] for link in demand.usage)

    if allocator.mode is not Mode.SPLIT:
        check()


def ignores_positions(allocator: Allocator) -> None:
    """How jobs are numbered changes no rate."""

    @PROFILE
    @given(_drawn, st.randoms(use_true_random=False))
    def check(drawn: Drawn, rng: random.Random) -> None:
        (loads, capacity), order = drawn
        positions = list(range(len(loads)))
        rng.shuffle(positions)
        number = {str(position): str(i) for i, position in enumerate(positions)}
        renumbered = tuple(replace(tier, jobs=tuple(number[key] for key in tier.jobs)) for tier in order)
        expected = allocate(allocator, loads, capacity, order)
        shuffled = allocate(allocator, [loads[i] for i in positions], capacity, renumbered)
        assert _close([loads[i] for i in positions], shuffled, [expected[i] for i in positions], capacity)

    check()


def repeats_itself(allocator: Allocator) -> None:
    """Equal flows on equal links have exactly equal rates from call to call."""

    @PROFILE
    @given(_drawn)
    def check(drawn: Drawn) -> None:
        (loads, capacity), order = drawn
        once, again = (_moving(loads, allocate(allocator, loads, capacity, order)) for _ in range(2))
        assert once == again

    check()


def treats_twins_alike(allocator: Allocator) -> None:
    """Two jobs that ask for the same, and that share, get the same; unless no jobs share."""

    @PROFILE
    @given(networks())
    def check(network: tuple[list[SyntheticJob], list[float]]) -> None:
        loads, capacity = network
        everyone = Tier(tuple(str(i) for i in range(2 * len(loads))))
        rates = allocate(allocator, [*loads, *loads], capacity, (everyone,) if loads else ())
        assert _close(loads, rates[: len(loads)], rates[len(loads) :], capacity)

    if allocator.shares:
        check()


def spares_the_urgent(allocator: Allocator) -> None:
    """A job after all others changes no other rate, unless the allocator does not promise so."""

    @PROFILE
    @given(networks())
    def check(network: tuple[list[SyntheticJob], list[float]]) -> None:
        loads, capacity = network
        if not loads[1:]:
            return
        first = Tier(tuple(str(i) for i in range(len(loads) - 1)))
        last = Tier((str(len(loads) - 1),))
        rates = allocate(allocator, loads, capacity, (first, last))
        without = allocate(allocator, loads[:-1], capacity, (first,))
        assert _close(loads[:-1], rates[:-1], without, capacity)

    if allocator.heeds_order and allocator.mode is not Mode.MADD and not allocator.minimum_share:
        check()


def needs_no_flows(allocator: Allocator) -> None:
    """No jobs have no rates, nor have jobs without flows."""
    assert allocate(allocator, [], [1.0], ()) == []
    assert allocate(allocator, [SyntheticJob(()), SyntheticJob(((),))], [1.0], (Tier(("1", "0")),)) == [[], []]


ALLOCATOR_CHECKS: tuple[AllocatorCheck, ...] = (
    keeps_to_capacity,
    conserves_work,
    ignores_positions,
    repeats_itself,
    treats_twins_alike,
    spares_the_urgent,
    needs_no_flows,
)
