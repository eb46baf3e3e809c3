"""By which reports a job with a target is judged."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from beamer.gpu.model import Job, Report, Request, Stage
from beamer.gpu.predictors.target_forecast import MIN_PROBABILITY, PROBABILITY_BEFORE_FIT, forecasts, judged_reports
from tests.support.jobs import known_job

PRIOR = 0.1


def rare_accuracy(every: int, accuracy: float) -> Job:
    """A job that reports its loss after every iteration, and its accuracy now and then."""
    reports = tuple(
        Report(float(k), float(k), 1.0 / (1.0 + k), float(k), accuracy=accuracy * k / 600 if k % every == 0 else None)
        for k in range(600)
    )
    request = Request(1200, gpus=1, target_accuracy=0.9)
    return known_job("s/0", request, 0.0, Stage("s", "0"), reports)


def test_accuracies_between_many_losses_count() -> None:
    job = rare_accuracy(every=100, accuracy=0.4)
    assert [report.iteration for report in judged_reports(job)] == [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    rising = forecasts([job], 2, PRIOR)[job.key]
    flat = rare_accuracy(every=100, accuracy=0.01)
    assert forecasts([flat], 2, PRIOR)[flat.key].probability < PRIOR, "it is ruled out"
    assert rising.probability != pytest.approx(PRIOR), "it is judged"


def test_losses_count_all() -> None:
    job = rare_accuracy(every=100, accuracy=0.4)
    by_loss = known_job(job.key, Request(1200, gpus=1, target_loss=0.001), 0.0, job.stage, job.reports)
    assert len(judged_reports(by_loss)) == 600


def test_a_job_that_has_diverged_is_less_likely_to_reach_its_target_than_one_that_is_ruled_out() -> None:
    def lost(*losses: float) -> Job:
        reports = tuple(Report(float(k), float(k), loss, float(k)) for k, loss in enumerate(losses))
        return known_job(f"s/{losses[-1]}", Request(100, target_loss=0.1), 0.0, Stage("s", "0"), reports)

    jobs = [lost(2.0, 1.9, 7e14, 8e14), lost(2.0, 1.9, math.nan, math.inf), lost(2.0, 2.1, 2.2, 2.3)]
    diverged, infinite, ruled_out = (forecasts(jobs, 2, PRIOR)[job.key].probability for job in jobs)
    assert 0 < diverged == infinite < ruled_out < PRIOR


def reporting(losses: Sequence[float], end: int, target: float, every_s: float = 0.0125) -> Job:
    reports = tuple(Report(k * every_s, float(k), loss, k * every_s) for k, loss in enumerate(losses))
    return known_job(f"s/{losses}", Request(end, target_loss=target), 0.0, Stage("s", "0"), reports)


def noisy(first: float, last: float, count: int, deviation: float, seed: int) -> list[float]:
    noise = np.random.default_rng(seed).normal(scale=deviation, size=count)
    return (np.linspace(first, last, count) + noise).tolist()


def probability(job: Job) -> float:
    return forecasts([job], 2, PRIOR)[job.key].probability


def test_a_few_noisy_losses_rule_no_job_out_that_may_reach_its_target() -> None:
    kept = [probability(reporting(noisy(1.0, 0.98, 9, 0.2, seed), 640, 0.3)) >= PROBABILITY_BEFORE_FIT for seed in range(20)]
    assert sum(kept) >= 18  # 3 of 20 where losses are taken as they are


def test_a_loss_that_stands_is_ruled_out_early_where_its_noise_is_small() -> None:
    ruled_out = [probability(reporting(noisy(2.3, 2.3, 8, 0.005, seed), 60, 0.25)) < PRIOR for seed in range(20)]
    assert sum(ruled_out) >= 19  # six noisy losses may all fall by chance


def test_a_first_loss_that_is_low_by_chance_rules_no_job_out() -> None:
    losses = [0.6, *noisy(1.0, 0.75, 99, 0.02, 1)]
    assert probability(reporting(losses, 640, 0.3)) > MIN_PROBABILITY


def test_the_slope_of_four_losses_may_be_farther_off_than_that_of_many() -> None:
    # Noise around 1 / (1 + 0.1 k), which is below the target at the end: the last four would rule it out by two errors.
    losses = [1.02, 0.95, 0.84, 0.72, 0.72, 0.67, 0.61, 0.54, 0.55, 0.47, 0.49, 0.48, 0.53]
    assert probability(reporting(losses, 40, 0.3, every_s=1.0)) > MIN_PROBABILITY
    assert probability(reporting(losses, 40, 0.01, every_s=1.0)) == MIN_PROBABILITY
