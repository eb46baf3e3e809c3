"""Who goes on at a rung: as soon as it is certain and no sooner, whatever the order in which trials arrive."""

from itertools import permutations
from math import inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.engines.ray_tune.rungs import Rungs, Verdict
from beamer.errors import InputError
from beamer.workloads.searches import SearchRung, SuccessiveHalving

HALVING = SuccessiveHalving(trials=4, eta=2, iterations=3, resume=True).brackets()[0]  # 4, 2, 1 trials


def joined(rungs: Rungs, trials: int) -> Rungs:
    for i in range(trials):
        rungs.join(f"t{i}")
    return rungs


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_best_go_on_in_every_order(order: tuple[int, ...]) -> None:
    rungs = joined(Rungs(HALVING), 4)
    verdicts = [verdict for i in order for verdict in rungs.arrive(f"t{i}", float(i))]
    assert sorted(verdicts, key=lambda verdict: verdict.trial) == [Verdict(f"t{i}", i < 2) for i in range(4)]
    assert [rungs.rung(f"t{i}") for i in (0, 1)] == [1, 1]
    assert rungs.until("t0") == 6
    assert rungs.is_sealed(1)
    assert rungs.arrive("t0", 0.0) == []
    assert rungs.arrive("t1", 1.0) == [Verdict("t0", True), Verdict("t1", False)]
    assert rungs.is_last("t0")


def test_a_verdict_comes_as_soon_as_it_is_certain() -> None:
    rungs = joined(Rungs(HALVING), 4)
    assert rungs.arrive("t0", 1.0) == []
    assert rungs.arrive("t1", 2.0) == []
    assert rungs.arrive("t2", 3.0) == [Verdict("t0", True), Verdict("t2", False)]


def test_nobody_goes_on_while_more_may_join_and_be_better() -> None:
    rungs = joined(Rungs(HALVING), 3)
    assert not rungs.is_sealed(0)
    assert [rungs.arrive(f"t{i}", float(i)) for i in range(2)] == [[], []]
    assert rungs.arrive("t2", 2.0) == [Verdict("t0", True), Verdict("t2", False)]


def test_trials_that_end_elsewhere_leave_their_place_to_others() -> None:
    rungs = joined(Rungs(HALVING), 4)
    assert rungs.arrive("t0", 5.0) == []
    assert rungs.arrive("t1", 4.0) == []
    assert rungs.leave("t2") == [Verdict("t1", True)]
    assert rungs.leave("t3") == [Verdict("t0", True)]
    assert rungs.leave("t1") == []
    assert rungs.size(1) == 1
    assert rungs.arrive("t0", 5.0) == [Verdict("t0", True)]


def test_what_is_no_number_is_the_worst_and_the_first_of_equals_the_better() -> None:
    rungs = joined(Rungs(HALVING), 4)
    verdicts = [verdict for i, loss in enumerate((nan, inf, 1.0, 1.0)) for verdict in rungs.arrive(f"t{i}", loss)]
    assert {verdict.trial for verdict in verdicts if verdict.goes_on} == {"t2", "t3"}
    assert {verdict.trial for verdict in verdicts if not verdict.goes_on} == {"t0", "t1"}


@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0, 0.5))
def test_every_search_ends(seed: int, trials: int, failing: float) -> None:
    rng = Random(seed)
    rungs = joined(Rungs(SuccessiveHalving(trials=trials, eta=2, iterations=1, resume=True).brackets()[0]), trials)
    running, waiting, finished = [f"t{i}" for i in range(trials)], set[str](), 0
    while running:
        trial = running.pop(rng.randrange(len(running)))
        last, fails = rungs.is_last(trial), rng.random() < failing
        verdicts = rungs.leave(trial) if fails else rungs.arrive(trial, rng.random())
        finished += last and not fails
        if not fails and not last:
            waiting.add(trial)
        for verdict in verdicts:
            waiting.remove(verdict.trial)
            if verdict.goes_on:
                running.append(verdict.trial)
    assert not waiting
    assert finished <= 1


def test_rungs_that_cannot_be_are_refused() -> None:
    for rungs in ((), (SearchRung(2, 0, None),), (SearchRung(2, 1, None), SearchRung(1, 1, None)), (SearchRung(2, 1, 1),)):
        with pytest.raises(InputError, match="rungs"):
            Rungs(rungs)
