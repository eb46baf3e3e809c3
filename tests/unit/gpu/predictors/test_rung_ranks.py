"""Ranks of trials at different iterations by their losses."""

import math
from collections.abc import Sequence

from beamer.gpu.model import Job, Report, Request, RungWithoutBarrier
from beamer.gpu.predictors.rung_ranks import rung_ranks
from tests.support.jobs import known_job


def trial(*losses: float, every: float = 1.0) -> Job:
    reports = [Report(every * k, every * k, loss, every * k) for k, loss in enumerate(losses, 1)]
    return known_job("s/t", Request(1000), 0.0, RungWithoutBarrier("s", "rung", 9), reports)


def ranks(*jobs: Job) -> Sequence[float]:
    return rung_ranks(jobs).tolist()


def test_losses_after_as_many_iterations_are_compared() -> None:
    far, near = trial(9.0, 8.0, 7.0, 6.0, 5.0), trial(8.0)
    assert ranks(far, near) == [2.0, 1.0]
    assert ranks(near, far, trial(8.5, 8.4)) == [1.0, 2.0, 3.0]
    assert ranks(near, far, trial(8.5, 7.5)) == [1.0, 3.0, 2.0]
    assert ranks(trial(9.0, 5.0, 5.0), trial(9.0, 6.0, 1.0)) == [1.0, 2.0]  # after two iterations, of three


def test_one_that_has_done_less_is_compared_there_with_each() -> None:
    jobs = trial(1.0, 9.0), trial(2.0, 8.0, 8.0, 8.0), trial(3.0, 7.0, 7.0, 9.0)
    assert ranks(*jobs) == [3.0, 1.0, 2.0]  # the first is the best after one iteration, the last after two


def test_equal_losses_share_the_better_rank_and_what_is_not_finite_is_last() -> None:
    assert ranks(trial(3.0), trial(3.0), trial(4.0)) == [1.0, 1.0, 3.0]
    assert ranks(trial(math.nan), trial(-math.inf), trial(1e300)) == [2.0, 2.0, 1.0]


def test_one_that_has_diverged_since_is_last() -> None:
    for beyond in (math.nan, 1e9):
        assert ranks(trial(*[0.9] * 256, *[beyond] * 200), trial(*[1.0] * 500)) == [2.0, 1.0]
    assert ranks() == []


def test_reports_of_several_iterations_each_count_from_the_first_on() -> None:
    assert ranks(trial(5.0, 1.0, every=40.0), trial(4.0, 3.0, 3.0)) == [2.0, 1.0]
    assert ranks(trial(3.0, 5.0, every=0.25), trial(4.0, every=0.25)) == [2.0, 1.0]  # the last of an iteration
