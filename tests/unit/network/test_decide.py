"""From an order of tiers to classes on K queues."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from beamer.decision.policy import Stateless
from beamer.errors import InputError
from beamer.network.allocation import Greedy
from beamer.network.assignment import assign_classes
from beamer.network.decide import decide
from beamer.network.policies import NetworkPolicy, Order, Tier, network_policy
from beamer.network.snapshot import Snapshot
from beamer.sim import simulate
from beamer.sim.replay import replay
from beamer.sim.traces import Coflow, Trace
from beamer.workloads.scenario import load, shipped


def tier(jobs: str, divisible: bool = True) -> Tier:
    return Tier(tuple(jobs), divisible)


@pytest.mark.parametrize(
    ("order", "queues", "expected"),
    [
        pytest.param((), 8, "", id="nothing"),
        pytest.param((tier("ab", False),), 8, "a0 b0", id="an indivisible tier is one class"),
        pytest.param((tier("a"), tier("b"), tier("c")), 8, "a0 b1 c2", id="a class per tier"),
        pytest.param((tier("a"), tier("b"), tier("c")), 2, "a0 b1 c1", id="tiers that find no class share the lowest"),
        pytest.param((tier("ab"), tier("cd")), 1, "a0 b0 c0 d0", id="one queue"),
        pytest.param((tier("abc"), tier("de")), 8, "a0 b1 c2 d3 e4", id="classes to spare for every job"),
        pytest.param((tier("abc"), tier("de")), 3, "a0 b1 c1 d2 e2", id="spare classes go to the most urgent tier's slowest"),
        pytest.param((tier("abc"), tier("def")), 5, "a0 b1 c2 d3 e4 f4", id="then to the next tier"),
        pytest.param((tier("ab", False), tier("cd")), 3, "a0 b0 c1 d2", id="an indivisible tier leaves its spare ones"),
    ],
)
def test_classes(order: tuple[Tier, ...], queues: int, expected: str) -> None:
    assert assign_classes(order, queues) == {entry[0]: int(entry[1:]) for entry in expected.split()}


@pytest.mark.parametrize("queues", [0, 9, -1, True, 2.0])
def test_a_number_of_queues_that_no_port_has(queues: int) -> None:
    with pytest.raises(InputError, match=r"queues: got .*, expected 1 to 8"):
        decide(network_policy("fair"), queues)


def _tiers(*groups: str) -> tuple[Tier, ...]:
    return tuple(tier(group) for group in groups)


def test_jobs_that_go_on_keep_their_classes_when_others_end_above_them() -> None:
    before = assign_classes(_tiers("a", "bc", "d"), 8)
    assert before == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert assign_classes(_tiers("bc", "d"), 8, before) == {"b": 1, "c": 2, "d": 3}


def test_a_tier_that_comes_between_moves_as_few_as_it_can() -> None:
    before = {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    after = assign_classes(_tiers("a", "b", "x", "c", "d", "e"), 8, before)
    assert (after["a"], after["b"]) == (0, 1)
    assert 1 < after["x"] < after["c"] < after["d"] < after["e"]
    assert sum(after[job] != klass for job, klass in before.items()) == 3


def test_jobs_of_the_most_urgent_tier_are_told_apart_even_if_some_move() -> None:
    before = {"a": 5, "b": 5, "c": 6}
    after = assign_classes(_tiers("ab", "c"), 8, before)
    assert after["a"] < after["b"] < after["c"]


def test_whatever_the_classes_were_the_order_holds() -> None:
    rng = Random(0)
    for _ in range(200):
        jobs = rng.sample("abcdefghij", rng.randint(1, 10))
        cuts = sorted(rng.sample(range(len(jobs) + 1), rng.randint(0, min(4, len(jobs)))))
        groups = [g for g in (jobs[i:j] for i, j in zip([0, *cuts], [*cuts, len(jobs)], strict=True)) if g]
        order = tuple(Tier(tuple(g), divisible=rng.random() < 0.7) for g in groups)
        classes = assign_classes(order, 8, {job: rng.randrange(8) for job in "abcdefghij" if rng.random() < 0.7})
        for upper, lower in pairwise(order):
            assert max(classes[j] for j in upper.jobs) < min(classes[j] for j in lower.jobs)
        for each in order:
            within = [classes[job] for job in each.jobs]
            assert within == sorted(within)
            assert each.divisible or len(set(within)) == 1


class Illegal(NetworkPolicy[Stateless]):
    """Returns a tier too few, or every tier twice."""

    name = "illegal"
    State = Stateless

    def __init__(self, times: int) -> None:
        self.times = times

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        tiers = tuple(Tier((key,)) for key in snapshot.jobs.key)
        return state, tiers * self.times if self.times else tiers[:-1], None


@pytest.mark.parametrize("times", [0, 2])
def test_an_order_that_leaves_out_a_job_or_has_one_twice_is_refused_everywhere(times: int) -> None:
    policy = Illegal(times)
    scenario = load(shipped())
    with pytest.raises(InputError, match="order: got"):
        simulate(scenario, policy)
    trace = Trace(2, (Coflow("a", 0.0, *(np.array([i]) for i in (0, 1)), np.array([1e6])),))
    with pytest.raises(InputError, match="order: got"):
        replay(trace, 1e9, policy, Greedy())
