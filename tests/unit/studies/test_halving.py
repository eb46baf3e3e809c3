"""Who is promoted at a rung: as soon as it is certain and no sooner, whatever the order in which trials arrive."""

from itertools import permutations
from math import inf, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.studies.halving import Halving, Verdict
from beamer.studies.model import Rung

RUNGS = (Rung("r0", 4, 3), Rung("r1", 2, 6), Rung("r2", 1, 12))


def joined(trials: int, rungs: tuple[Rung, ...] = RUNGS) -> Halving:
    halving = Halving(rungs)
    for i in range(trials):
        halving.join(f"t{i}")
    return halving


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_best_are_promoted_in_every_order(order: tuple[int, ...]) -> None:
    halving = joined(4)
    verdicts = [verdict for i in order for verdict in halving.arrive(f"t{i}", float(i))]
    assert sorted(verdicts, key=lambda verdict: verdict.trial) == [Verdict(f"t{i}", i < 2) for i in range(4)]
    assert halving.survivors(0) == ["t0", "t1"]
    assert halving.is_over(0)
    assert [halving.rung(f"t{i}") for i in (0, 1)] == [1, 1]
    assert [f"t{i}" in halving for i in range(4)] == [True, True, False, False]
    assert halving.arrive("t0", 0.0) == []
    assert halving.arrive("t1", 1.0) == [Verdict("t0", True), Verdict("t1", False)]
    assert not halving.is_over(2)
    assert halving.arrive("t0", 0.0) == []
    assert halving.is_over(2)
    assert "t0" not in halving


def test_a_verdict_comes_as_soon_as_it_is_certain() -> None:
    halving = joined(4)
    assert halving.arrive("t0", 1.0) == []
    assert halving.arrive("t1", 2.0) == []
    assert halving.arrive("t2", 3.0) == [Verdict("t0", True), Verdict("t2", False)]


@pytest.mark.parametrize("worst", [nan, inf, -inf])
def test_nobody_is_judged_before_a_finite_loss_comes(worst: float) -> None:
    halving = joined(4)
    assert [halving.arrive(f"t{i}", worst) for i in range(3)] == [[], [], []]
    assert not halving.is_without_loss(0)
    last = halving.arrive("t3", 5.0)
    assert {verdict.trial for verdict in last if verdict.promoted} == {"t3", "t0"}
    assert len(last) == 4
    assert not halving.is_without_loss(0)


def test_a_rung_without_a_finite_loss_is_judged_on_nothing() -> None:
    halving = joined(4)
    for i in range(3):
        halving.arrive(f"t{i}", nan)
    halving.leave("t3")
    assert halving.is_without_loss(0)


def test_who_survives_a_rung_in_any_case_needs_no_loss() -> None:
    halving = joined(2, (Rung("r0", 2, 1), Rung("r1", 2, 2)))
    assert halving.arrive("t0", nan) == [Verdict("t0", True)]
    assert halving.arrive("t1", nan) == [Verdict("t1", True)]
    assert not halving.is_without_loss(0)
    assert [halving.arrive(f"t{i}", nan) for i in range(2)] == [[], []]
    assert not halving.is_without_loss(1), "nobody goes further"


def test_nobody_is_promoted_while_more_may_join_and_be_better() -> None:
    halving = joined(3)
    assert [halving.arrive(f"t{i}", float(i)) for i in range(2)] == [[], []]
    assert halving.arrive("t2", 2.0) == [Verdict("t0", True), Verdict("t2", False)]
    assert not halving.is_sealed(0)
    assert halving.close() == [Verdict("t1", True)]
    assert [halving.is_sealed(i) for i in range(3)] == [True, True, False]


def test_more_trials_than_declared_make_the_first_rung_larger() -> None:
    halving = joined(6)
    assert halving.size(0) == 6
    assert [halving.arrive(f"t{i}", float(i)) for i in range(2)] == [[], []]


def test_who_joins_when_all_places_are_taken_is_not_promoted() -> None:
    halving = joined(2, (Rung("r0", 2, 1), Rung("r1", 1, 2)))
    assert halving.arrive("t0", 2.0) == []
    assert halving.arrive("t1", 3.0) == [Verdict("t0", True), Verdict("t1", False)]
    halving.join("t2")
    assert halving.arrive("t2", 1.0) == [Verdict("t2", False)], "better, but late"
    assert halving.close() == []
    assert halving.is_sealed(1)
    assert halving.arrive("t0", 1.0) == []
    assert halving.is_over(1)


def test_trials_that_end_elsewhere_leave_their_place_to_others() -> None:
    halving = joined(4)
    assert halving.arrive("t0", 5.0) == []
    assert halving.arrive("t1", 4.0) == []
    assert halving.leave("t2") == [Verdict("t1", True)]
    assert halving.leave("t3") == [Verdict("t0", True)]
    assert halving.leave("t1") == []
    assert halving.size(1) == 1
    assert halving.arrive("t0", 5.0) == [Verdict("t0", True)]


def test_a_trial_that_leaves_while_it_waits_holds_up_nobody() -> None:
    halving = joined(4)
    assert halving.arrive("t0", 1.0) == []
    assert halving.leave("t0") == []
    assert halving.arrive("t1", 2.0) == []
    assert halving.arrive("t2", 3.0) == [Verdict("t2", False)]
    assert halving.arrive("t3", 4.0) == [Verdict("t1", True), Verdict("t3", False)]
    assert halving.survivors(0) == ["t1"]
    assert halving.arrive("t1", 2.0) == [Verdict("t1", True)]


@pytest.mark.parametrize("first", [nan, inf, -inf])
def test_a_loss_that_is_not_finite_is_the_worst_and_the_first_of_equals_the_better(first: float) -> None:
    halving = joined(4)
    verdicts = [verdict for i, loss in enumerate((first, inf, 1.0, 1.0)) for verdict in halving.arrive(f"t{i}", loss)]
    assert {verdict.trial for verdict in verdicts if verdict.promoted} == {"t2", "t3"}
    assert halving.survivors(0) == ["t2", "t3"]


@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0, 0.5))
@settings(deadline=None)
def test_every_search_ends(seed: int, trials: int, failing: float) -> None:
    rng = Random(seed)
    sizes = [trials // 2**i for i in range(trials.bit_length())]
    halving = joined(trials, tuple(Rung(f"r{i}", size, 2**i) for i, size in enumerate(sizes)))
    last = len(sizes) - 1
    running, waiting, finished = [f"t{i}" for i in range(trials)], set[str](), 0
    while running:
        trial = running.pop(rng.randrange(len(running)))
        is_last, fails = halving.rung(trial) == last, rng.random() < failing
        verdicts = halving.leave(trial) if fails else halving.arrive(trial, rng.random())
        finished += is_last and not fails
        if not fails and not is_last:
            waiting.add(trial)
        if waiting and rng.random() < failing / 4:
            gone = rng.choice(sorted(waiting))
            if gone not in {verdict.trial for verdict in verdicts}:
                waiting.remove(gone)
                verdicts += halving.leave(gone)
        for verdict in verdicts:
            waiting.remove(verdict.trial)
            if verdict.promoted:
                running.append(verdict.trial)
    assert not waiting
    assert finished <= 1
    assert all(halving.is_over(rung) for rung in range(last + 1))


def test_rungs_that_cannot_be_are_refused() -> None:
    for rungs in ((), (Rung("r0", 0, 1),), (Rung("r0", 2, 1), Rung("r1", 1, 1))):
        with pytest.raises(InputError, match="rungs"):
            Halving(rungs)
