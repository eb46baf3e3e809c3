"""How fast a noisy loss falls, how sure that is, and what has diverged."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from beamer.gpu.model import Job, Report, Request, Stage
from beamer.gpu.predictors.loss_trend import DIVERGED_FACTOR, MAX_REPORTS, SURE, LossTrend, has_diverged, recent_trend
from tests.support.jobs import known_job

NAN = math.nan
LOST = LossTrend(-math.inf, 0.0, 0.0, 0.0)


def job(losses: Sequence[float], every_s: float = 1.0) -> Job:
    reports = tuple(Report(k * every_s, float(k), loss, k * every_s) for k, loss in enumerate(losses))
    return known_job("s/t", Request(10_000), 0.0, Stage("s", ""), reports)


def trend(losses: Sequence[float], window: int = 5, judged_s: float = 0.0, every_s: float = 1.0) -> LossTrend:
    found = recent_trend(job(losses, every_s), window, judged_s)
    assert found is not None
    return found


def noisy(fall: float, count: int, seed: int, deviation: float = 1.0) -> list[float]:
    """Return losses around a line that falls by `fall` in all."""
    noise = np.random.default_rng(seed).normal(scale=deviation, size=count)
    return (10.0 - np.linspace(0.0, fall, count) + noise).tolist()


def correlated(count: int, seed: int, correlation: float) -> list[float]:
    """Return losses that stand, but for noise each of which has so much of the one before."""
    walk, losses = 0.0, []
    for step in np.random.default_rng(seed).normal(size=count).tolist():
        walk = correlation * walk + step
        losses.append(10.0 + walk)
    return losses


@pytest.mark.parametrize(
    "losses", [[10.0, 9.0, 7.0, 6.5, 6.25, 6.0], [3.0, 3.0, 3.0, 3.0, 3.0, 3.0], [9.0, 1.0, 1.1, 1.3, 1.6, 2.0, 2.5]]
)
def test_a_smooth_loss_falls_between_the_ends_of_the_fewest_reports_that_are_asked_for(losses: list[float]) -> None:
    assert trend(losses, window=3) == (losses[-4] - losses[-1], 0.0, 3.0, 3.0, True)


def test_a_noisy_loss_is_judged_by_as_many_reports_as_make_it_sure() -> None:
    for seed in range(20):
        found = trend(noisy(5.0, 400, seed))
        assert found.is_judged
        assert found.iterations > 50
        slope, error = found.fall / found.iterations, found.error / found.iterations
        assert abs(slope - 5.0 / 399) < 4 * error
        assert found.fall > SURE * found.error


@pytest.mark.parametrize(("count", "most"), [(6, 1.8), (12, 1.6), (24, 1.4), (60, 1.25), (600, 1.25)])
def test_the_error_is_how_far_falls_are_off(count: int, most: float) -> None:
    found = [trend(noisy(0.0, count, seed), window=count - 1) for seed in range(300)]
    off = [one.fall / one.error for one in found if one.error > 0]
    assert len(off) > 295  # the others happen to fall all the time
    assert 0.75 < np.std(off) < most
    assert abs(np.mean(off)) < 0.25


def test_correlated_noise_leaves_it_less_sure() -> None:
    found = [trend(correlated(200, seed, 0.8), window=199) for seed in range(200)]
    assert np.std([one.fall / one.error for one in found]) < 1.6  # three times as far off if residuals were independent


def test_a_loss_that_stands_is_hardly_ever_sure_to_fall() -> None:
    sure = sum(trend(noisy(0.0, count, seed), judged_s=math.inf).is_judged for seed in range(100) for count in (16, 64, 200))
    assert sure < 0.05 * 300


def test_outliers_do_not_move_it_far() -> None:
    losses = noisy(5.0, 60, 0, 0.1)
    for place in range(3, 60, 6):
        losses[place] = 1000.0
    found = trend(losses, window=59)
    assert found.fall == pytest.approx(5.0, abs=4 * found.error)
    assert found.error < 0.5


def test_all_of_many_reports_count() -> None:
    few, many = (trend(noisy(5.0, count, 1), window=count - 1) for count in (40, 4000))
    assert many.error < few.error / 4  # a tenth, less what a median loses to a mean


def test_losses_of_few_levels_are_noisy_too() -> None:
    rng = np.random.default_rng(0)
    losses = (rng.random(400) < np.linspace(0.7, 0.3, 400)).astype(float).tolist()
    assert trend(losses).error > 0
    rounded = [round(loss, 2) for loss in noisy(0.05, 60, 1, 0.004)]
    found = trend(rounded)
    assert found.iterations > 5
    assert found.error > 0


def test_a_loss_that_turns_and_rises_is_not_taken_to_fall() -> None:
    losses = [9.0 - 0.1 * k for k in range(50)] + [4.1 + 0.05 * k for k in range(1, 6)]
    assert trend(losses).fall < 0


@pytest.mark.parametrize("flat", [200, 400, 800])
def test_a_loss_that_stands_does_not_fall_as_it_did_before(flat: int) -> None:
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(scale=0.1, size=500 + flat)
        losses = np.concatenate((np.linspace(2.0, 0.5, 500), np.full(flat, 0.5))) + noise
        found = trend(losses.tolist())
        assert found.bound(1.0, has_gpus=True) / found.iterations < 0.2 * 1.5 / 500


def test_what_is_not_sure_counts_once_it_has_lasted() -> None:
    stands, falls = noisy(0.0, 30, 3), noisy(20.0, 30, 3)
    for losses, judged_s, is_judged in (
        (stands, 2.9, True),
        (stands, 3.0, False),
        (falls, 3.0, True),
        (stands[:9], 0.5, False),
    ):
        assert trend(losses, 5, judged_s, every_s=0.1).is_judged == is_judged


def test_a_fall_counts_for_less_where_a_job_waits_and_for_the_most_it_may_be_until_it_is_judged() -> None:
    judged = LossTrend(2.0, 0.5, 10.0, 1.0)
    assert judged.bound(1.0, has_gpus=False) == 1.5
    assert judged.bound(1.0, has_gpus=True) == 2.5
    not_judged = judged._replace(is_judged=False)
    assert not_judged.bound(1.0, has_gpus=False) == not_judged.bound(1.0, has_gpus=True) == 2.0 + SURE * 0.5


def test_too_few_reports_tell_nothing_and_one_finite_loss_no_fall() -> None:
    assert recent_trend(job([3.0, 2.0, 1.0]), 3, 0.0) is None
    assert trend([NAN, NAN, NAN, 1.0], window=3) == (0.0, 0.0, 0.0, 0.0, True)
    assert trend([NAN] * 6) == LOST
    assert recent_trend(job([3.0, NAN, NAN]), 3, 0.0) == LOST


def test_of_several_reports_of_an_iteration_the_last_counts() -> None:
    several = job(noisy(3.0, 30, 1))
    twice = tuple(one for report in several.reports for one in (replace(report, loss=0.0), report))
    assert recent_trend(replace(several, key="s/u", reports=twice), 5, 0.0) is not None
    same = replace(several, key="s/v", reports=tuple(replace(report, iteration=0.0) for report in several.reports))
    assert recent_trend(same, 5, 0.0) == (0.0, 0.0, 0.0, 0.0, True)


def test_a_loss_that_overflows_is_not_finite() -> None:
    assert trend([3.0, 1e300, 2.5, 2.4, 1e300, 2.2], window=3).fall == pytest.approx(0.3)


def test_what_is_remembered_of_a_job_is_of_its_present_reports() -> None:
    first, second = job(noisy(5.0, 100, 1)), job(noisy(-5.0, 100, 2))
    before, after = recent_trend(first, 5, 0.0), recent_trend(second, 5, 0.0)
    assert before is not None
    assert after is not None
    assert before.fall > 0 > after.fall
    assert recent_trend(first, 5, 0.0) == before


def test_no_more_reports_are_looked_at_than_can_matter() -> None:
    losses = noisy(0.0, MAX_REPORTS, 1)
    assert trend([*noisy(9.0, 1000, 2), *losses]) == trend(losses)._replace()


@pytest.mark.parametrize(
    ("losses", "diverged"),
    [
        ([2.3, NAN, NAN], True),
        ([2.3, math.inf, NAN, 2.0], False),
        ([2.3, 1.5, NAN], False),
        ([2.3, 1.5, 7e14, NAN], True),
        ([2.3, 1.5, 7e14, 8e15], True),
        ([2.3, 1.5, 7e14], False),
        ([2.3, 1.5, 7e14, 8e15, 9e15, 7e14], True),
        ([2.3, 7e14, 1.5, 1.4], False),
        ([2.3, 2.3 * DIVERGED_FACTOR, 2.3 * DIVERGED_FACTOR], False),
        ([1.0, 9.0, 80.0, 700.0], False),
        ([0.0, 5.0, 6.0], False),
        ([-3.0, -2.0, 31.0, 32.0], False),
        ([-0.05, -0.02, 1.0, 1.2], False),
        ([NAN, NAN], False),
        ([NAN, 1.0, NAN, NAN], True),
        ([], False),
    ],
)
def test_a_loss_that_left_its_bounds_twice_has_diverged(losses: list[float], diverged: bool) -> None:
    assert has_diverged(job(losses)) == diverged
