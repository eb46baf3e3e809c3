"""Searches without barriers: which trial a free slot runs next, by hand, and the losses that decide it."""

import numpy as np
import pytest

from beamer.errors import InputError
from beamer.studies.model import Rung, TrialStatus
from beamer.testing.fabrics import star
from eval.asynchronous.searches import (
    Arrivals,
    Asha,
    AsynchronousSearch,
    IndependentTrials,
    LossCurves,
    MedianStopping,
)
from eval.asynchronous.simulation import Draws, asynchronous_searches


def follow(search: AsynchronousSearch, losses: dict[tuple[int, int], float], slots: int = 1) -> list[tuple[int, int]]:
    """Run to the end in so many slots, those that run arriving in turn; return the trials and rungs in order of start."""
    known = Arrivals.of(len(search.steps))
    started: list[tuple[int, int]] = []
    running: list[tuple[int, int]] = []
    while True:
        while len(running) < slots and (following := search.next(known)) is not None:
            known.entered[following[1]].add(following[0])
            running.append(following)
            started.append(following)
        if not running:
            return started
        trial, rung = running.pop(0)
        known.losses[rung][trial] = losses.get((trial, rung), float(trial))
        if search.verdict(known, trial, rung) is not None:
            known.ended.add(trial)


def test_asha_promotes_the_best_third_as_soon_as_there_is_one() -> None:
    asha = Asha(trials=6, eta=3, iterations=1, halvings=1)
    assert asha.rungs == (Rung("rung0", 0, 1), Rung("rung1", 0, 3))
    assert follow(asha, {(2, 0): -1.0}) == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (5, 0), (0, 1)]


def test_asha_promotes_a_trial_that_has_come_to_be_among_the_best_when_others_arrived() -> None:
    """Trial 0 is the second best of six, not the best of three."""
    asha = Asha(trials=6, eta=3, iterations=1, halvings=1)
    assert follow(asha, {(1, 0): -1.0})[-1] == (0, 1)


def test_asha_looks_at_the_highest_rung_first() -> None:
    asha = Asha(trials=4, eta=2, iterations=1, halvings=2)
    assert follow(asha, {}) == [(0, 0), (1, 0), (0, 1), (2, 0), (3, 0), (1, 1), (0, 2)]


def test_with_several_slots_a_new_trial_starts_where_none_can_be_promoted() -> None:
    asha = Asha(trials=4, eta=2, iterations=1, halvings=1)
    assert follow(asha, {}, slots=2) == [(0, 0), (1, 0), (2, 0), (0, 1), (3, 0), (1, 1)]


def test_asha_promotes_its_share_of_equal_trials_in_order_of_their_numbers() -> None:
    asha = Asha(trials=64, eta=4, iterations=1, halvings=1)
    equal = {(trial, rung): 0.5 for trial in range(64) for rung in (0, 1)}
    assert [trial for trial, rung in follow(asha, equal) if rung == 1] == list(range(16))


@pytest.mark.parametrize("mark", [0.1, 0.7, 1 / 3])
@pytest.mark.parametrize("reports", [1, 3, 7, 9])
def test_median_stopping_stops_none_of_equal_trials(mark: float, reports: int) -> None:
    """Summed up one by one, the mean of seven losses of 0.7 is less than 0.7."""
    search = MedianStopping(trials=6, iterations=1, reports=reports)
    equal = {(trial, rung): mark for trial in range(6) for rung in range(reports)}
    assert len(follow(search, equal)) == 6 * reports


def test_median_stopping_stops_what_is_worse_than_the_median_of_averages() -> None:
    search = MedianStopping(trials=4, iterations=5, reports=2, fewest=2)
    assert search.steps == (5, 10)
    started = follow(search, {(t, r): loss for t, loss in enumerate((3.0, 1.0, 2.0, 2.5)) for r in (0, 1)})
    assert started == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]


def test_a_trial_that_was_good_once_is_not_stopped() -> None:
    """The rule compares its best loss so far with what the others had on average."""
    search = MedianStopping(trials=3, iterations=1, reports=2, fewest=2)
    losses = {(0, 0): 2.0, (0, 1): 1.0, (1, 0): 2.0, (1, 1): 1.0, (2, 0): 1.4, (2, 1): 9.0}
    known = Arrivals([{0, 1, 2}, {0, 1, 2}], [{}, {}])
    for (trial, rung), loss in losses.items():
        known.losses[rung][trial] = loss
    assert search.verdict(known, 2, 1) is TrialStatus.FINISHED


def test_independent_trials_run_one_after_another() -> None:
    assert follow(IndependentTrials(trials=3, iterations=7), {}) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Asha(trials=0), "trials"),
        (lambda: Asha(eta=1), "eta"),
        (lambda: Asha(completed=0), "completed"),
        (lambda: MedianStopping(reports=0), "reports"),
        (lambda: IndependentTrials(iterations=0), "iterations"),
    ],
)
def test_parameters_that_cannot_be_are_named(build: object, field: str) -> None:
    assert callable(build)
    with pytest.raises(InputError, match=rf"search\.{field}"):
        build()


def test_losses_depend_on_seed_trial_and_step_alone() -> None:
    curves = LossCurves("7/search")
    assert curves.loss(3, 10) == LossCurves("7/search").loss(3, 10)
    assert len({curves.loss(3, 10), curves.loss(4, 10), curves.loss(3, 11), LossCurves("8/search").loss(3, 10)}) == 4


def test_ranks_become_more_reliable_with_the_steps() -> None:
    """What halving assumes, and that early ranks mislead is why it may not halve at once."""
    curves, trials = LossCurves("0"), range(200)
    limits = [curves.limit(trial) for trial in trials]

    def agreement(step: int) -> float:
        return float(np.corrcoef(limits, [curves.loss(trial, step) for trial in trials])[0, 1])

    agreements = [agreement(step) for step in (2, 50, 5000)]
    assert agreements == sorted(agreements)
    assert agreements[0] < 0.5 < 0.8 < agreements[2]


def test_searches_are_drawn_from_the_seed() -> None:
    drawn = star(6), Asha(), 2, 3, Draws(("resnet50",), (4,), 1.0)
    plans = asynchronous_searches(*drawn, seed=3)
    assert plans == asynchronous_searches(*drawn, seed=3)
    assert plans != asynchronous_searches(*drawn, seed=4)
    assert [len(plan.slots) for plan in plans] == [3, 3]
    assert all(len(slot.workers) == 4 and slot.compute_s > 0 for plan in plans for slot in plan.slots)
    assert plans[0].losses != plans[1].losses
