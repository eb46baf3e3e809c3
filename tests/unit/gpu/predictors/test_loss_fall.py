"""How soon the loss of a job falls further."""

import math

import pytest

from beamer.gpu.model import Grant, Report, Request, Stage
from beamer.gpu.predictors.loss_fall import MAX_ITERATIONS, SHARE, iterations_until_fall
from tests.support.jobs import known_job

NAN = math.nan


def until(*losses: float, window: int = 3, every: int = 10, grant: Grant | None = None, errors: float = 1.0) -> float:
    reports = tuple(Report(float(k), float(k * every), loss, float(k)) for k, loss in enumerate(losses))
    job = known_job("s/t", Request(1000, epoch=every), 0.0, Stage("s", ""), reports, grant=grant)
    return iterations_until_fall(job, window, 1.0, errors)


def test_a_tenth_of_the_first_loss_at_the_rate_of_the_last_reports() -> None:
    assert until(10.0, 9.0, 8.0, 6.5, 5.0) == pytest.approx(SHARE * 10.0 / (4.0 / 30))


def test_what_is_not_known_yet_is_near_and_nearer_the_fewer_reports_it_lacks() -> None:
    assert 0 < until(9.0, 8.0, 7.0) < until(9.0, 8.0) < until(9.0) < until(9.0, 5.0, 2.0, 1.0)


def test_a_loss_that_rises_is_farther_away_than_one_that_stands() -> None:
    assert until(9.0, 9.0, 9.0, 9.0) == MAX_ITERATIONS
    assert MAX_ITERATIONS < until(9.0, 9.0, 9.0, 9.1) < until(9.0, 9.0, 9.0, 10.0) < until(9.0, 8.0, NAN, NAN)


def test_a_single_loss_that_is_not_finite_is_left_out() -> None:
    assert until(9.0, 8.0, NAN, 6.0) == pytest.approx(SHARE * 9.0 / (3.0 / 30))
    assert until(NAN, NAN, 8.0, 8.0) == MAX_ITERATIONS


def test_a_noisy_fall_counts_for_more_where_the_job_runs_and_for_less_where_it_waits() -> None:
    noisy = tuple(10.0 - 0.5 * k + 0.5 * (-1) ** k for k in range(14))
    waits, measured = until(*noisy), until(*noisy, errors=0.0)
    assert until(*noisy, grant=Grant.of({"n": 1})) < measured < waits
    assert until(*noisy, grant=Grant.of({"n": 1}), errors=0.0) == measured


def test_a_loss_that_has_diverged_is_infinitely_far_away_although_it_is_finite() -> None:
    assert until(9.0, 8.0, 7.0, 6.0, 7e14, 8e14) == math.inf
    assert until(0.0, 0.0, 0.0, 0.0, NAN, NAN) == math.inf


def test_a_first_loss_of_nothing_leaves_no_share() -> None:
    assert until(0.0, 0.0, 0.0, 0.0) == MAX_ITERATIONS
