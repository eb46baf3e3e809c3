"""How soon the loss of a job falls further."""

import math

import pytest

from beamer.gpu.model import Report, Request, Stage
from beamer.gpu.predictors.loss_fall import MAX_ITERATIONS, SHARE, iterations_until_fall
from tests.support.jobs import known_job

NAN = math.nan


def until(*losses: float, window: int = 3, every: int = 10) -> float:
    reports = tuple(Report(float(k), float(k * every), loss, float(k)) for k, loss in enumerate(losses))
    return iterations_until_fall(known_job("s/t", Request(1000, epoch=every), 0.0, Stage("s", ""), reports), window)


def test_a_hundredth_of_the_first_loss_at_the_rate_of_the_last_reports() -> None:
    assert until(10.0, 9.0, 8.0, 6.5, 5.0) == pytest.approx(SHARE * 10.0 / (4.0 / 30))


def test_what_is_not_known_yet_is_near_and_nearer_the_fewer_reports_it_lacks() -> None:
    assert 0 < until(9.0, 8.0, 7.0) < until(9.0, 8.0) < until(9.0) < until(9.0, 5.0, 2.0, 1.0)


def test_a_loss_that_rises_is_farther_away_than_one_that_stands() -> None:
    assert until(9.0, 9.0, 9.0, 9.0) == MAX_ITERATIONS
    assert MAX_ITERATIONS < until(9.0, 9.0, 9.0, 9.1) < until(9.0, 9.0, 9.0, 10.0) < until(9.0, 8.0, NAN, NAN)


def test_a_single_loss_that_is_not_finite_is_left_out() -> None:
    assert until(9.0, 8.0, NAN, 6.0) == pytest.approx(SHARE * 9.0 / (3.0 / 30))
    assert until(NAN, NAN, 8.0, 8.0) == MAX_ITERATIONS
    assert until(0.0, 0.0, 0.0, 0.0) == MAX_ITERATIONS
