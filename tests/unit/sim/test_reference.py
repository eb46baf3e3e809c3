"""Whole simulated runs against plain ones in which every job keeps its place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.decision.policy import Stateless
from beamer.network.allocation import Allocator, Classes, EqualSplit, Greedy, Madd, MaxMin
from beamer.network.policies import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot
from beamer.sim import Assumptions, simulate
from beamer.studies.model import trial_key
from beamer.testing.profile import PROFILE
from beamer.testing.situations import FABRICS, FAST_FABRICS
from beamer.workloads.scenario import Scenario
from tests.support.reference.classes import classes
from tests.support.reference.demand import Rates
from tests.support.reference.equal_split import equal_split
from tests.support.reference.greedy import greedy
from tests.support.reference.madd import madd
from tests.support.reference.maxmin import maxmin
from tests.support.reference.simulate import simulate as plain
from tests.support.strategies import scenarios
from tests.support.tiers import few, long

# Which of two jobs that start at once takes which plane is a tie that rounding decides.
ONE_PLANE = tuple(replace(fabric, planes=1) for fabric in (*FABRICS, *FAST_FABRICS))


class Fixed(NetworkPolicy[Stateless]):
    """Serve jobs by the class that each has been given once and for all."""

    name = "fixed"
    State = Stateless

    def __init__(self, klass: Mapping[str, int]) -> None:
        self._klass = klass

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return one tier per class."""
        tiers: dict[int, list[str]] = {}
        for key in snapshot.jobs.key:
            tiers.setdefault(self._klass[key], []).append(key)
        return state, tuple(Tier(tuple(tiers[klass])) for klass in sorted(tiers)), None


class Fair(Fixed):
    """The same as a policy that orders nothing."""

    name = "fair"
    orders = False
    shares = True


def keys(scenario: Scenario) -> list[str]:
    trials = [(study.name, job.name) for study in scenario.studies for stage in study.stages for job in stage.jobs]
    return [trial_key(*trial) for trial in dict.fromkeys(trials)]


def alike(of: Sequence[str], rng: Random) -> dict[str, int]:
    return dict.fromkeys(of, 0)


def in_line(of: Sequence[str], rng: Random) -> dict[str, int]:
    return {key: place for place, key in enumerate(rng.sample(of, len(of)))}


def grouped(of: Sequence[str], rng: Random) -> dict[str, int]:
    return {key: rng.randrange(3) for key in of}


PAIRS: dict[str, tuple[Allocator, Rates, Callable[[Sequence[str], Random], dict[str, int]], type[Fixed]]] = {
    "fair": (MaxMin(), maxmin, alike, Fair),
    "equal-split": (EqualSplit(), equal_split, alike, Fair),
    "fixed order, greedy": (Greedy(), greedy, in_line, Fixed),
    "fixed order, madd": (Madd(), madd, in_line, Fixed),
    "fixed order, classes": (Classes(queues=None), classes, in_line, Fixed),
    "classes": (Classes(queues=None), classes, grouped, Fixed),
    "minimum shares": (Classes(queues=None, minimum_share=0.1), partial(classes, minimum_share=0.1), grouped, Fixed),
}


@pytest.mark.parametrize("acknowledgements", [False, *long(True)])
@pytest.mark.parametrize("name", few(PAIRS, {"fair", "fixed order, madd", "classes", "minimum shares"}))
def test_jobs_end_when_they_do_in_a_plain_run(name: str, acknowledgements: bool) -> None:
    allocator, allocate, draw, policy = PAIRS[name]

    @PROFILE
    @given(scenarios(ONE_PLANE), st.randoms(use_true_random=False))
    def check(scenario: Scenario, rng: Random) -> None:
        klass = draw(keys(scenario), rng)
        assumed = Assumptions(acknowledgements=acknowledgements, progress_s=1e9)
        result = simulate(scenario, policy(klass), assumptions=assumed, allocator=allocator)
        ends, carried = plain(scenario, klass, allocate, allocator.name == "madd", acknowledgements)
        assert {job.key: job.end_s for job in result.jobs} == pytest.approx(ends, rel=1e-6, abs=1e-9)
        assert [8 * size for size in result.link_bytes.values()] == pytest.approx(carried, rel=1e-6, abs=1.0)

    check()
