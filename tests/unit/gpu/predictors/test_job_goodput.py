"""Which batch sizes jobs are given, by what is known of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from beamer.gpu.model import Grant, Job, Report, Request, Speed, Stage
from beamer.gpu.predictors.job_goodput import JobGoodputs
from tests.support.jobs import known_job

LIMITS: dict[str, Any] = {"batch_size": 64, "max_gpus": 8, "max_batch_size": 1024}
RATES = {"learning_rate": 0.1, "max_learning_rate": 0.4}


def job(noise: float = 0.0, **request: Any) -> Job:
    speeds = tuple(Speed(n, 1, 0, b, 0.1 + b / n / 640) for n in (1, 2, 4) for b in (64, 256))
    reports = (Report(1.0, 1.0, 1.0, 1.0, None, 1.0, noise),) if noise else ()
    return known_job("j", Request(10, **LIMITS, **request), 0.0, Stage("s", "0"), reports, speeds)


def batch(job: Job, gpus: int, cautious: bool = True) -> int:
    found = JobGoodputs.of([job], cautious).best(np.array([0]), np.array([gpus]), np.array([1]))[1]
    return int(found[0])


@pytest.mark.parametrize("gpus", [1, 4])
def test_without_gradients_or_rates_the_batch_stays(gpus: int) -> None:
    assert batch(job(), gpus) == batch(job(), gpus, cautious=False) == 64


def test_learning_rates_say_how_far_it_grows() -> None:
    assert [batch(job(**RATES), gpus) for gpus in (1, 2, 8)] == [64, 128, 256]
    assert batch(job(**RATES), 8, cautious=False) == 64  # Without caution learning rates do not count.


def test_gradients_count_more_than_rates() -> None:
    noisy = job(noise=100.0)
    assert 64 < batch(noisy, 4) == batch(noisy, 4, cautious=False) <= 1024
    assert batch(job(noise=100.0, **RATES), 4) == batch(noisy, 4)


def test_a_job_that_stays_keeps_its_batch_until_another_pays() -> None:
    noisy, where = job(noise=100.0), Grant((("n0", 4),))
    best = batch(noisy, 4)
    held = replace(noisy, grant=replace(where, batch_size=best // 2))
    learning = JobGoodputs.of([held], cautious=True)
    at = np.array([0]), np.array([4]), np.array([1])
    gain = learning.best(*at)[0] / learning._at(*at, np.array([best / 2]))
    for pays, size in ((gain[0] - 1.0 - 1e-6, best), (gain[0] - 1.0 + 1e-6, best // 2)):
        assert learning.with_batches([held], {"j": where}, float(pays))["j"].batch_size == size
    moved = learning.with_batches([held], {"j": Grant((("n1", 4),))}, 1e9)
    assert moved["j"].batch_size == best


def test_a_job_that_accumulates_grows_its_batch_beyond_what_fits() -> None:
    fits = {"max_local_batch_size": 64, "noise": 1e6}
    assert batch(job(**fits), 2) == 128
    assert batch(job(**fits, accumulates=True), 2) == 1024
    found = JobGoodputs.of([job(**fits, accumulates=True), job(noise=1e6)])
    at = np.array([0, 1]), np.array([2, 2]), np.array([1, 1])
    split, whole = found._at(*at, np.array([512.0, 512.0])).tolist()
    assert split < whole, "sub-steps repeat what a step takes without samples"
    assert split == pytest.approx(512 / (4 * (0.1 + 64 / 640)) * (1e6 + 64) / (1e6 + 512), rel=0.05)
