"""What the model says of a job's past, and what it leaves to be said."""

from dataclasses import MISSING, fields, replace

import pytest
from hypothesis import given, settings

from beamer.gpu.model import Cluster, Grant, Job, Report, Request, Stage
from beamer.gpu.predictors.silence import PATIENCE_S, is_silent
from beamer.testing.gpu_policies import NOW, situations
from beamer.testing.profile import PROFILE

ONE, OTHER = Grant.of({"n": 2}), Grant.of({"n": 3})


def waiting() -> Job:
    return Job.waiting("s/t", Request(iterations=10, max_gpus=4), 5.0, Stage("s", ""))


def test_no_field_of_a_job_has_a_default() -> None:
    assert [one.name for one in fields(Job) if (one.default, one.default_factory) != (MISSING, MISSING)] == []
    with pytest.raises(TypeError, match="heard_s"):
        Job("s/t", Request(iterations=10), 5.0, Stage("s", ""))  # type: ignore[call-arg]


def test_a_waiting_job_has_had_nothing() -> None:
    job = waiting()
    assert (job.since_s, job.service_at(1e6), job.gpu_seconds_at(1e6), job.unheard_at(1e6)) == (5.0, 0.0, 0.0, 0.0)
    assert (job.reports, job.speeds, job.grant, job.last) == ((), (), None, None)


def test_time_on_gpus_goes_with_the_grant() -> None:
    job = waiting().regranted(ONE, 10.0).regranted(OTHER, 20.0).regranted(None, 24.0)
    assert (job.last, job.since_s, job.service_s, job.gpu_s) == (OTHER, 24.0, 14.0, 32.0)


def test_a_job_is_heard_of_when_it_reports_or_fails() -> None:
    job = waiting().regranted(ONE, 10.0)
    report = Report(16.0, 1.0, 0.5, 6.0)
    assert job.unheard_at(16.0) == 6.0
    assert job.heard_at(16.0, report) == replace(job, reports=(report,), heard_s=6.0)
    assert job.heard_at(16.0).unheard_at(17.0) == 1.0


def test_most_jobs_of_the_conformance_suite_are_not_silent() -> None:
    running: list[bool] = []

    @settings(PROFILE, max_examples=200)
    @given(situations())
    def look(situation: tuple[Cluster, tuple[Job, ...]]) -> None:
        running.extend(is_silent(job, PATIENCE_S, NOW) for job in situation[1] if job.grant)

    look()
    assert 0 < sum(running) < len(running) / 2
