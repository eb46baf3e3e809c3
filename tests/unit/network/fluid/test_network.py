"""The network on jobs small enough to work out by hand."""

import math

import numpy as np
import pytest

from beamer.network.allocation import Allocator, Classes, EqualSplit, Greedy, Madd, MaxMin
from beamer.network.allocation.base import Arrangement
from beamer.network.fluid.network import FluidEvent, FluidNetwork
from tests.support.loads import SyntheticJob, block, snapshot
from tests.support.reference.network import Flow

RELEASED, COMPLETE, FINISHED = FluidEvent.RELEASED, FluidEvent.COMPLETE, FluidEvent.FINISHED

ALLOCATORS = (Greedy(), Madd(), MaxMin(), Classes(), EqualSplit())


def one(*bits: float, iterations: int = 1, compute_s: float = 0.0, overlap: float = 0.0) -> SyntheticJob:
    """A job of one phase, all of whose flows share link 0."""
    return SyntheticJob((tuple(Flow({0: 1.0}, size) for size in bits),), iterations, compute_s, overlap)


def started(loads: list[SyntheticJob], capacity: list[float], allocator: Allocator) -> FluidNetwork:
    network = FluidNetwork(np.array(capacity), allocator)
    network.add(block(loads))
    network.start(range(len(loads)))
    positions = np.arange(len(loads))
    network.arrange(Arrangement(positions, positions if allocator.heeds_order else np.zeros_like(positions)))
    return network


def ends(network: FluidNetwork) -> dict[int, float]:
    """Run to the end; return when each job finishes."""
    at: dict[int, float] = {}
    while happened := network.run(1e6, by_coflow=False):
        at.update({job: network.now_s for _, job in happened})
    return at


def test_a_coflow_is_complete_when_its_last_flow_is() -> None:
    network = started([SyntheticJob(((Flow({0: 1.0}, 1.0), Flow({1: 1.0}, 2.0)),))], [1.0, 1.0], MaxMin())
    assert network.run(0.0, by_coflow=True) == [(RELEASED, 0)]
    assert network.run(1.5, by_coflow=True) == []
    assert network.now_s == 1.5
    assert network.run(math.inf, by_coflow=True) == [(COMPLETE, 0), (FINISHED, 0)]
    assert network.now_s == 2.0


def test_phases_follow_each_other() -> None:
    job = SyntheticJob(((Flow({0: 1.0}, 1.0),), (), (Flow({}, 5.0), Flow({0: 1.0}, 0.0)), (Flow({0: 1.0}, 2.0),)), iterations=2)
    network = started([job], [1.0], Greedy())
    seen = []
    while happened := network.run(100.0, by_coflow=True):
        seen.append((network.now_s, [kind.name for kind, _ in happened]))
    assert seen == [
        (0.0, ["RELEASED"]),
        (1.0, ["COMPLETE", "RELEASED"]),
        (3.0, ["COMPLETE", "RELEASED"]),
        (4.0, ["COMPLETE", "RELEASED"]),
        (6.0, ["COMPLETE", "FINISHED"]),
    ]


@pytest.mark.parametrize("allocator", ALLOCATORS, ids=lambda allocator: allocator.name)
def test_a_flow_that_starts_as_another_ends_keeps_its_own_end(allocator: Allocator) -> None:
    """A short flow that takes the place of another on a path is not held up by a long one there."""
    long, short = one(10.0), one(1.0, iterations=2)
    at = ends(started([short, long], [1.0], allocator))
    assert at == ({0: 2.0, 1: 12.0} if allocator.heeds_order else {0: 4.0, 1: 12.0})


@pytest.mark.parametrize("allocator", ALLOCATORS, ids=lambda allocator: allocator.name)
def test_what_a_killed_job_has_moved_is_not_forgotten(allocator: Allocator) -> None:
    network = started([one(1.0, 100.0), one(50.0)], [10.0], allocator)
    network.run(3.0, by_coflow=False)
    before = network.carried_bits()
    network.kill([0])
    assert network.carried_bits() == pytest.approx(before)
    network.arrange(Arrangement(np.array([1]), np.array([0])))
    ends(network)
    assert network.carried_bits()[0] <= 151.0


def test_what_a_job_moves_inside_a_host_counts_for_no_policy() -> None:
    inside, across = Flow({}, 100.0), Flow({0: 1.0}, 10.0)
    loads = [SyntheticJob(((inside, across),))]
    network = started(loads, [1.0], MaxMin())
    network.run(4.0, by_coflow=False)
    coflows = network.coflows(np.array([0]), snapshot(loads, [1.0]).jobs)
    assert coflows.left_bits.tolist() == [6.0]
    assert coflows.sent_bits.tolist() == [4.0]


def test_coflows_in_flight_are_described() -> None:
    loads = [
        SyntheticJob(((Flow({0: 1.0}, 4.0), Flow({0: 1.0, 1: 1.0}, 6.0)), (Flow({0: 1.0}, 3.0),))),
        one(5.0, compute_s=1e3),
    ]
    network = started(loads, [2.0, 1.0], MaxMin())
    network.run(2.0, by_coflow=False)
    coflows = network.coflows(np.array([0, 1]), snapshot(loads, [2.0, 1.0]).jobs)
    assert coflows.in_flight.tolist() == [True, False]
    assert coflows.released_s.tolist() == [0.0, 0.0]
    assert coflows.left_bits.tolist() == [6.0, 5.0]
    assert coflows.longest_bits.tolist() == [4.0, 5.0]
    assert coflows.sent_bits.tolist() == [4.0, 0.0]
    assert coflows.seconds.tolist() == [3.0, 4.0, 2.5]


def test_jobs_with_nothing_to_do_end_at_once() -> None:
    assert ends(started([one(0.0, iterations=10**6), SyntheticJob((), 10**6)], [1.0], Greedy())) == {0: 0.0, 1: 0.0}


def test_nothing_runs() -> None:
    network = started([], [1.0], Madd())
    assert network.run(3.0, by_coflow=True) == []
    assert network.now_s == 3.0
    assert network.carried_bits().tolist() == [0.0]


@pytest.mark.parametrize("overlap", [0.0, 0.25, 1.0])
def test_many_iterations_take_as_long_as_they_should(overlap: float) -> None:
    iterations = 10_000
    at = ends(started([one(3.0, iterations=iterations, compute_s=1.0, overlap=overlap)], [10.0], Greedy()))
    assert at[0] == pytest.approx(iterations * max(1.0, (1 - overlap) * 1.0 + 0.3), rel=1e-9)
