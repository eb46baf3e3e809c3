"""Asynchronous halving beside Tune's own class: the same rungs, and decisions that differ as docs/tuners/ray-tune.md says."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, nan
from random import Random
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from beamer.studies.asynchronous_halving import AsynchronousHalving, RungArrival

TRIALS = 40  # So many trials come to the rung of a drawn search, one after another.
SEARCHES = 250


class TuneRung:
    """The first rung of Tune's class."""

    def __init__(self, reduction_factor: int) -> None:
        self._scheduler = AsyncHyperBandScheduler(metric="loss", mode="min", max_t=100, reduction_factor=reduction_factor)
        self._count = 0

    def goes_on(self, loss: float) -> bool:
        trial = SimpleNamespace(trial_id=f"t{self._count}")
        self._count += 1
        self._scheduler.on_trial_add(None, trial)
        decision: str = self._scheduler.on_trial_result(None, trial, {"training_iteration": 1, "loss": loss})
        return decision == TrialScheduler.CONTINUE


def reason(loss: float, before: Sequence[RungArrival], goes_on: bool, reduction_factor: int) -> str:
    """Return why a decision differs from Tune's, "" where there is none.

    equal: fewer are strictly better than are the best, but as many that are better or equal have gone on. cut: it lies beside
    the place among those before it at which Tune interpolates its limit. rounding: it is at that place, so that its loss is
    that limit but for rounding.
    """
    better = sum(other.loss < loss for other in before)
    best = ceil((len(before) + 1) / reduction_factor)
    place, part = divmod(len(before) - 1, reduction_factor)
    if not goes_on and better < best <= sum(other.went_on and other.loss <= loss for other in before):
        return "equal"
    if better == place + 1:
        return "cut"
    return "rounding" if goes_on and better == place and part == 0 else ""


def differences(levels: int | None) -> Counter[str]:
    """Return how many of the 10 000 decisions of drawn searches differ, by reason. levels: of losses; None: all differ."""
    rng = Random(f"levels {levels}")
    counted: Counter[str] = Counter()
    for search in range(SEARCHES):
        reduction_factor = 2 + search % 3
        tune, ours = TuneRung(reduction_factor), AsynchronousHalving(100, reduction_factor)
        before: list[RungArrival] = []
        for _ in range(TRIALS):
            loss = rng.random() if levels is None else rng.randrange(levels) / levels
            goes_on = ours.goes_on(loss, before)
            if goes_on != tune.goes_on(loss):
                counted[reason(loss, before, goes_on, reduction_factor)] += 1
            before.append(RungArrival(loss, goes_on))
    return counted


def test_trials_of_different_losses_are_judged_as_tune_judges_them_but_for_those_at_the_cut() -> None:
    found = differences(None)
    assert found.keys() == {"cut"}, found
    assert found["cut"] < 0.02 * SEARCHES * TRIALS


def test_of_ten_levels_those_whose_equals_have_their_share_are_ended() -> None:
    found = differences(10)
    assert found.keys() == {"equal", "cut", "rounding"}, found
    assert found["equal"] < 0.05 * SEARCHES * TRIALS
    assert found["cut"] + found["rounding"] < 0.02 * SEARCHES * TRIALS


def test_sixteen_of_64_equal_trials_go_on_and_all_under_tune() -> None:
    tune, ours = TuneRung(4), AsynchronousHalving(100)
    before: list[RungArrival] = []
    for _ in range(64):
        before.append(RungArrival(0.5, ours.goes_on(0.5, before)))
        assert tune.goes_on(0.5)
    assert sum(one.went_on for one in before) == 16


def test_a_loss_that_is_not_a_number_goes_on_under_tune_alone() -> None:
    tune = TuneRung(4)
    assert tune.goes_on(0.5)
    assert tune.goes_on(nan)
    assert not AsynchronousHalving(100).goes_on(nan, [RungArrival(0.5, True)])


@pytest.mark.parametrize(("iterations", "reduction_factor", "first"), [(100, 4, 1), (64, 4, 1), (270, 3, 10), (125, 5, 1)])
def test_the_rungs_are_tunes(iterations: int, reduction_factor: int, first: int) -> None:
    scheduler = AsyncHyperBandScheduler(max_t=iterations, reduction_factor=reduction_factor, grace_period=first)
    by_tune = [step for step, _ in scheduler._brackets[0]._rungs if step < iterations]
    ours = [rung.step for rung in AsynchronousHalving(iterations, reduction_factor, first).rungs]
    assert ours == [*reversed(by_tune), iterations]
