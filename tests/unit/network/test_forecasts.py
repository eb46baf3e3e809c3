"""How many steps trials have left of which nobody says it: what their losses tell, and when it is worked out anew."""

from itertools import pairwise

import pytest

from beamer.network.estimates import Source, Sourced
from beamer.network.forecasts import FIT_GROWTH, FIT_PERIOD_S, FIT_STEPS, MAX_PERIOD_FITS, Point
from beamer.studies.events import (
    Progressed,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.model import TrialStatus
from tests.support.counted import Site, forecast


def report(site: Site, trial: str, steps: int, level: bool = False) -> None:
    for step in range(1, steps + 1):
        site.take(Progressed(site.tracker.now_s + 1, trial, step, 1.0 if level else 1 / step))


def test_a_target_or_a_budget_counts_before_any_forecast() -> None:
    site = Site(forecast)
    trial = site.start("s/a")
    report(site, trial, 20)
    assert site.remaining(trial) == Sourced(180, Source.PREDICTED)
    site.take(TrialRegistered(50.0, "s", "a", budget=300))
    assert site.remaining(trial) == Sourced(280, Source.DECLARED)
    site.take(TargetSet(51.0, trial, 400))
    assert site.remaining(trial) == Sourced(380, Source.DECLARED)


def test_losses_that_tell_nothing_leave_what_was_done() -> None:
    site = Site(forecast)
    trial = site.start("s/a")
    report(site, trial, 20, level=True)
    assert site.remaining(trial) == Sourced(20, Source.PREDICTED)


def test_a_trial_that_goes_on_beyond_its_forecast_has_a_step_left() -> None:
    site = Site(forecast)
    trial = site.start("s/a")
    report(site, trial, 250)
    assert site.remaining(trial).value == 1


def test_the_error_of_forecasts_is_kept_by_study() -> None:
    site = Site(forecast)
    for name, steps in (("a", 250), ("b", 100), ("c", 200)):
        trial = site.start(f"s/{name}")
        report(site, trial, steps)
        site.take(TrialEnded(400.0, trial, TrialStatus.KILLED))
    going_on = site.start("s/d")
    assert site.remaining(going_on) == Sourced(1, Source.PREDICTED)
    report(site, going_on, 10)
    assert site.remaining(going_on).error == pytest.approx(0.2)
    assert site.remaining(site.start("t/d")).error is None


def test_histories_grow_slowly() -> None:
    site = Site(forecast)
    trial = site.start("s/a")
    report(site, trial, 5000)
    assert len(site.ledger.forecasts.histories[trial].points) < 200


def test_a_forecast_is_made_again_after_a_fifth_more_points_or_twice_the_steps() -> None:
    asked: set[tuple[Point, ...]] = set()
    site = Site(lambda losses: asked.add(losses))
    trial = site.start("s/a")
    for step in range(1, 2000):
        site.take(Progressed(float(step), trial, step, 1 / step))
        site.remaining(trial)
    made = [losses for losses in sorted(asked, key=len) if losses]
    assert all(
        len(later) >= FIT_GROWTH * len(before) or later[-1][0] >= FIT_STEPS * before[-1][0] for before, later in pairwise(made)
    )
    assert len(made) < 25
    assert made[-1][-1][0] * FIT_STEPS > 1999


def test_trials_that_report_at_once_are_forecast_one_after_the_other() -> None:
    asked: list[tuple[Point, ...]] = []
    site = Site(lambda losses: asked.append(losses))
    trials = [site.start(f"s/{i}") for i in range(40)]
    for step in range(1, 60):
        for i, trial in enumerate(trials):
            site.take(Progressed(step * FIT_PERIOD_S, trial, step, 1 / step + i))
        before = set(asked)
        site.ledger.views(site.tracker)
        assert len(set(asked) - before) <= 2 * MAX_PERIOD_FITS
    histories = site.ledger.forecasts.histories.values()
    assert all(history.fitted for history in histories)
    # None is left out for those that report before it.
    assert min(len(history.fitted) for history in histories) > max(len(history.fitted) for history in histories) / 2


def test_a_study_that_begins_anew_or_a_trial_that_ends_waits_for_no_forecast() -> None:
    site = Site(forecast)
    trials = [site.start(f"{study}/{i}") for study in "st" for i in range(MAX_PERIOD_FITS)]
    for trial in trials:
        site.take(Progressed(1.0, trial, 1, 1.0))
    assert list(site.ledger.forecasts.waiting) == trials[MAX_PERIOD_FITS:]
    site.take(TrialEnded(2.0, trials[-1], TrialStatus.KILLED))
    assert list(site.ledger.forecasts.waiting) == trials[MAX_PERIOD_FITS:-1]
    site.take(StudyRegistered(3.0, "t", run="2", barriers=False))
    assert not site.ledger.forecasts.waiting


def test_a_journal_gives_the_same_forecasts_again_and_makes_no_others() -> None:
    site = Site(lambda losses: losses[-1][0] * 3 if losses else None)
    trials = [site.start(f"s/{i}") for i in range(3)]
    for step in range(1, 300):
        for i, trial in enumerate(trials):
            site.take(Progressed(step * 0.07 + i * 0.01, trial, step, 1 / step + i))
        if step % 7 == 0:
            site.ledger.views(site.tracker)
    again = site.replayed()
    assert again.ledger.forecasts == site.ledger.forecasts
    assert again.ledger.views(again.tracker) == site.ledger.views(site.tracker)
    asked: list[tuple[Point, ...]] = []
    again.ledger.forecasts.forecast = lambda losses: asked.append(losses)
    again.ledger.views(again.tracker)
    assert len(asked) == len(trials)
