"""Rates in the network against the plain allocators: at a start, and kept up to date through starts, ends and kills."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given

from beamer.network.allocation import Allocator, Classes, EqualSplit, Greedy, Madd, MaxMin
from beamer.network.allocation.base import Arrangement
from beamer.network.fluid.network import FluidEvent, FluidNetwork
from beamer.testing.profile import PROFILE
from tests.support.loads import Paths, SyntheticJob, active, advance, block, demands, next_s, rates, used
from tests.support.reference.classes import classes
from tests.support.reference.demand import FlowDemand, Rates
from tests.support.reference.equal_split import equal_split
from tests.support.reference.greedy import greedy
from tests.support.reference.madd import madd
from tests.support.reference.maxmin import maxmin
from tests.support.reference.network import Flow
from tests.support.strategies import networks

SHARE = 0.04


def with_minimum_share(demands: Sequence[FlowDemand], capacity: Sequence[float]) -> list[float]:
    return classes(demands, capacity, SHARE)


PAIRS: dict[str, tuple[Allocator, Rates]] = {
    "greedy": (Greedy(), greedy),
    "madd": (Madd(), madd),
    "maxmin": (MaxMin(), maxmin),
    "classes": (Classes(queues=None), classes),
    "minimum share": (Classes(queues=None, minimum_share=SHARE), with_minimum_share),
    "equal-split": (EqualSplit(), equal_split),
}


def grouped(allocator: Allocator, positions: Sequence[int], rng: Random) -> Arrangement:
    """Serve jobs in this order: one by one, all alike, or in classes of up to three."""
    count = len(positions)
    if allocator.name == "classes":
        group = np.cumsum([rng.random() < 0.5 for _ in positions])
    else:
        group = np.arange(count) if allocator.heeds_order else np.zeros(count, np.int64)
    return Arrangement(np.array(positions, np.int64), group.astype(np.int64))


def same(network: FluidNetwork, arrangement: Arrangement, allocate: Rates, capacity: Sequence[float]) -> None:
    """Check that rates are those that a fresh plain allocation gives."""
    positions, group = arrangement.order.tolist(), arrangement.group.tolist()
    demanded = demands(network, positions, group)
    given = rates(network, positions)
    rounding = [1e-12 * max(capacity[link] for link in demand.usage) for demand in demanded]
    wrong = [
        (demand, rate, due)
        for demand, rate, due, most in zip(demanded, given.tolist(), allocate(demanded, capacity), rounding, strict=True)
        if abs(rate - due) > 1e-6 * due + most
    ]
    assert not wrong, f"at {network.now_s} s"


@pytest.mark.parametrize("name", PAIRS)
def test_rates_at_the_start(name: str) -> None:
    allocator, allocate = PAIRS[name]

    @PROFILE
    @given(networks())
    def check(network: tuple[list[SyntheticJob], list[float]]) -> None:
        loads, capacity = network
        network = FluidNetwork(np.array(capacity), allocator)
        network.add(block(loads))
        network.start(range(len(loads)))
        arrangement = grouped(allocator, list(range(len(loads)))[::-1], Random(len(loads)))
        network.arrange(arrangement)
        advance(network, 0.0)
        same(network, arrangement, allocate, capacity)

    check()


def drawn(rng: Random, links: int) -> SyntheticJob:
    """A job of up to three phases of up to five flows, often equal in path or size, some weighing little on some links."""

    def flow() -> Flow:
        path = rng.sample(range(links), rng.randint(1, min(3, links)))
        usage = dict.fromkeys(path, 1.0)
        if rng.random() < 0.3:
            back = rng.randrange(links)
            usage[back] = usage.get(back, 0.0) + 0.0218
        return Flow(usage, rng.choice((0.0, 1e6, 1e6, 3e6, rng.uniform(1e5, 1e7))))

    phases = tuple(tuple(flow() for _ in range(rng.randint(0, 5))) for _ in range(rng.randint(1, 3)))
    return SyntheticJob(
        phases, rng.randint(1, 3), rng.choice((0.0, 0.0, 0.2, rng.uniform(0, 0.5))), rng.choice((0.0, 0.5, 1.0))
    )


def drive(
    allocator: Allocator, rng: Random, capacity: Sequence[float], observe: Callable[[FluidNetwork, Arrangement, bool], None]
) -> None:
    """Let jobs come, be reordered, be killed and end; show `observe` every event, and whether all rates are of that moment."""
    network = FluidNetwork(np.array(capacity), allocator)
    loads = [drawn(rng, len(capacity)) for _ in range(10)]
    waiting, running = list(range(len(loads))), list[int]()
    arrangement = grouped(allocator, [], rng)
    changed, paths = False, Paths()
    for _ in range(400):
        if not running and not waiting:
            return
        if waiting and (not running or rng.random() < 0.15):
            count = min(len(waiting), rng.randint(1, 3))
            first = network.add(block([loads[waiting.pop(0)] for _ in range(count)], paths))
            network.start(range(first, first + count))
            running += range(first, first + count)
            changed = True
        if running and rng.random() < 0.05:
            network.kill([running.pop(rng.randrange(len(running)))])
            changed = True
        if changed or rng.random() < 0.2:
            rng.shuffle(running)
            before, arrangement = arrangement, grouped(allocator, running, rng)
            network.arrange(arrangement)
            changed = changed or not np.array_equal(before.order, arrangement.order)
            changed = changed or not np.array_equal(before.group, arrangement.group)
        soon, moving = next_s(network), active(network)
        happened = network.run(network.now_s if changed or soon == float("inf") else soon, by_coflow=True)
        running = [job for job in running if (FluidEvent.FINISHED, job) not in happened]
        if happened:
            changed = True
            gone = set(arrangement.order.tolist()) - set(running)
            if gone:
                arrangement = grouped(allocator, [job for job in arrangement.order.tolist() if job not in gone], rng)
                network.arrange(arrangement)
        else:
            observe(network, arrangement, changed and np.array_equal(active(network), moving))
            changed = False
    raise AssertionError("the jobs do not end")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", PAIRS)
def test_rates_are_kept_up_to_date(name: str, seed: int) -> None:
    allocator, allocate = PAIRS[name]
    rng = Random(seed)
    capacity = [rng.choice((1e6, 1e6, 1e7, 1e9)) for _ in range(rng.randint(2, 6))]
    seen = 0

    def observe(network: FluidNetwork, arrangement: Arrangement, changed: bool) -> None:
        nonlocal seen
        if changed or allocator.name != "madd":  # The rates of MADD stand until something changes.
            same(network, arrangement, allocate, capacity)
            seen += 1

    drive(allocator, rng, capacity, observe)
    assert seen > 10


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PAIRS)
def test_what_links_carry_is_what_rates_add_up_to(name: str, seed: int) -> None:
    rng = Random(100 + seed)
    capacity = [rng.choice((1e6, 1e7)) for _ in range(4)]
    moved, taken, before_s = np.zeros(4), [0.0] * 4, 0.0

    def observe(network: FluidNetwork, arrangement: Arrangement, changed: bool) -> None:
        nonlocal moved, taken, before_s
        moved = moved + np.array(taken) * (network.now_s - before_s)
        assert np.allclose(network.carried_bits(), moved, rtol=1e-6, atol=1.0), f"at {network.now_s} s"
        positions = arrangement.order.tolist()
        taken = used(demands(network, positions, arrangement.group.tolist()), rates(network, positions).tolist(), 4)
        before_s = network.now_s

    drive(PAIRS[name][0], rng, capacity, observe)
    assert moved.any()
