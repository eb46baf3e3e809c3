"""Jobs that were on GPUs for long without a report come last, are looked at again in time, and come back when they report."""

from dataclasses import replace
from math import inf
from random import Random

import pytest

from beamer.gpu.model import Cluster, Grant, Job, Node, Report, Request, Stage
from beamer.gpu.policies import gpu_policy
from beamer.gpu.predictors.silence import falls_silent_s, is_silent
from tests.support.jobs import known_job

CLUSTER = Cluster((Node("n", 1),))
POLICIES = ["hermes", "convergence"]
GRANT = Grant.of({"n": 1})


def job(name: str, **fields: object) -> Job:
    plain = known_job(f"s/{name}", Request(iterations=100), 0.0, Stage("s", "rung0", 3, 1))
    return replace(plain, **fields)  # type: ignore[arg-type]  # of the fields' types


def granted(policy: str, jobs: list[Job], now: float, **parameters: float) -> tuple[list[str], float | None]:
    chosen = gpu_policy(policy, **parameters)
    _, allocation, wake_s = chosen.allocate(chosen.initial(), CLUSTER, jobs, now, Random(0))
    return list(allocation), wake_s


def test_time_on_gpus_counts_and_only_since_it_was_heard_of() -> None:
    one = job("a", grant=GRANT, since_s=100.0, service_s=50.0, heard_s=40.0)
    assert one.unheard_at(110.0) == 20.0
    assert not is_silent(one, 20.0, 110.0)
    assert is_silent(one, 20.0, 111.0)
    assert is_silent(one, 20.0, falls_silent_s(one, 20.0, 105.0))
    waiting = replace(one, grant=None)
    assert waiting.unheard_at(1e6) == 10.0, "who waits cannot report"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_silent_job_makes_way_for_one_that_waits(policy: str) -> None:
    running = job("a", grant=GRANT, last=GRANT, since_s=0.0)
    waiting = job("b", since_s=0.0)
    assert granted(policy, [running, waiting], 1000.0, patience_s=900.0)[0] == ["s/b"]
    assert granted(policy, [running, waiting], 800.0, patience_s=900.0)[0] == ["s/a"]
    assert granted(policy, [running, waiting], 1e9, patience_s=inf)[0] == ["s/a"], "as it was"
    assert granted(policy, [running], 1000.0, patience_s=900.0)[0] == ["s/a"], "nobody else wants the GPU"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_has_converged_fast_and_fell_silent_makes_way_as_well(policy: str) -> None:
    reports = tuple(Report(float(i), float(i), 1.0 / (i + 1), float(i)) for i in range(12))
    fast = job("a", reports=reports, grant=GRANT, last=GRANT, since_s=0.0, heard_s=11.0)
    slow = job("b", reports=tuple(replace(one, loss=1.0 - one.iteration / 1000) for one in reports), last=GRANT)
    assert granted(policy, [fast, slow], 3000.0, patience_s=900.0)[0] == ["s/b"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_is_asked_again_when_a_job_would_fall_silent(policy: str) -> None:
    running = job("a", grant=GRANT, last=GRANT, since_s=0.0)
    names, wake_s = granted(policy, [running, job("b", since_s=0.0)], 800.0, patience_s=900.0)
    assert names == ["s/a"]
    assert wake_s is not None
    assert 900.0 < wake_s < 901.0
    assert granted(policy, [running, job("b", since_s=0.0)], wake_s, patience_s=900.0)[0] == ["s/b"]
