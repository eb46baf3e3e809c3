"""By which reports a job with a target is judged."""

import pytest

from beamer.gpu.model import Job, Report, Request, Stage
from beamer.gpu.predictors.target_forecast import forecasts, judged_reports
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
