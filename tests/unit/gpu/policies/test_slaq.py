from dataclasses import replace
from math import nan
from random import Random
from typing import Any

from beamer.gpu.model import Cluster, Job, Node, Report, Request, Speed, Stage
from beamer.gpu.policies.slaq import Slaq
from tests.support.jobs import known_job


def job(key: str, half_life: float = 0.0, scale: float = 1.0, **request: Any) -> Job:
    """Return a job whose loss has halved every so many of the 100 iterations that it has done; 0: it has reported nothing."""
    asked = Request(**{"iterations": 100_000, "max_gpus": 8} | request)
    reports = tuple(
        Report(float(k), float(k), scale * (0.5 ** (k / half_life) + 0.1), float(k)) for k in range(0, 101, 5) if half_life
    )
    speeds = tuple(Speed(n, 1, 0, 1, 2.0 / n) for n in (1, 2, 4))
    return known_job(key, asked, 0.0, Stage("s", "r"), reports=reports, speeds=speeds)


def sizes(gpus: int, *jobs: Job, policy: Slaq = Slaq()) -> dict[str, int]:  # noqa: B008  # frozen
    allocation = policy.allocate(policy.initial(), Cluster((Node("n", gpus),)), jobs, 0.0, Random(0))[1]
    return {key: grant.size for key, grant in allocation.items()}


def test_the_job_that_still_improves_gets_more_than_the_one_that_has() -> None:
    given = sizes(8, job("done", half_life=5.0), job("going", half_life=60.0))
    assert given == {"done": 1, "going": 7}


def test_losses_of_another_scale_weigh_the_same() -> None:
    # the same curve a thousand times as high drops a thousand times as far, normalised as far
    given = sizes(8, job("low", half_life=60.0), job("high", half_life=60.0, scale=1000.0))
    assert given == {"low": 4, "high": 4}


def test_a_job_without_a_curve_is_worth_a_try_and_order_decides_who_starts() -> None:
    assert sizes(8, job("new"), job("done", half_life=5.0))["new"] > 4
    assert sizes(2, job("a"), job("b"), job("c")) == {"a": 1, "b": 1}


def test_nothing_is_predicted_beyond_the_end_of_a_job() -> None:
    ending = job("ending", half_life=60.0)
    ending = replace(ending, request=replace(ending.request, iterations=101))
    assert sizes(8, ending, job("going", half_life=60.0)) == {"ending": 1, "going": 7}


def test_a_job_that_has_diverged_starts_last_and_does_not_grow() -> None:
    diverged = job("diverged", half_life=60.0)
    last = diverged.reports[-1]
    beyond = (replace(last, iteration=101.0, loss=7e14), replace(last, iteration=102.0, loss=nan))
    diverged = replace(diverged, reports=(*diverged.reports, *beyond))
    assert sizes(1, diverged, job("done", half_life=5.0)) == {"done": 1}
    assert sizes(8, diverged, job("going", half_life=60.0)) == {"diverged": 1, "going": 7}
