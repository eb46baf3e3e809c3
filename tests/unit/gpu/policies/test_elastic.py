"""Elastic: who is admitted, who grows, and how many jobs are considered for that."""

from random import Random

import pytest

from beamer.decision.policy import Stateless
from beamer.gpu.model import Allocation, Cluster, Costs, Grant, Job, Node, Request, Speed, Stage
from beamer.gpu.policies import elastic
from beamer.gpu.policies.elastic import Elastic
from tests.support.jobs import known_job


def job(number: int, grant: Grant | None = None, restart_s: float = 0.0, scales: float = 1.0, most: int = 8) -> Job:
    """Return a job of 1000 steps of a second that is faster by `scales` with every GPU more."""
    return known_job(
        f"t{number}",
        Request(iterations=1000, gpus=1, max_gpus=most),
        float(number),
        Stage("s", "r"),
        speeds=tuple(Speed(gpus, 1, 0, 1, 1.0 / (1.0 + scales * (gpus - 1))) for gpus in (1, 2, 4, 8)),
        grant=grant,
        last=grant,
        costs=Costs(restart_s=restart_s),
    )


def decided(cluster: Cluster, *jobs: Job) -> Allocation:
    return Elastic().allocate(Stateless(), cluster, jobs, 100.0, Random(0))[1]


def sizes(allocation: Allocation) -> dict[str, int]:
    return {key: grant.size for key, grant in allocation.items()}


ONE = Grant.of({"n0": 1})


def test_a_gpu_goes_to_the_next_job_where_growth_would_not_pay_for_a_restart() -> None:
    cluster = Cluster((Node("n0", 3),))
    eager, modest = job(0, ONE, restart_s=600.0), job(1, ONE, restart_s=100.0, scales=0.5)
    # 500 s saved by 600 s of restart; 333 s by 100 s
    assert sizes(decided(cluster, eager, modest)) == {"t0": 1, "t1": 2}
    assert sizes(decided(cluster, job(0, ONE, restart_s=400.0), modest)) == {"t0": 2, "t1": 1}


def test_growth_by_several_gpus_pays_for_one_restart() -> None:
    # 500 s, then 167 s and 83 s: 750 s by three GPUs more
    assert sizes(decided(Cluster((Node("n0", 4),)), job(0, ONE, restart_s=700.0))) == {"t0": 4}
    assert sizes(decided(Cluster((Node("n0", 3),)), job(0, ONE, restart_s=700.0))) == {"t0": 1}


def test_a_job_whose_growth_is_refused_is_not_considered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    measure = elastic._RemainingTime.seconds

    def counted(left: elastic._RemainingTime, one: Job, gpus: int) -> float:
        nonlocal looks
        looks += 1
        return measure(left, one, gpus)

    monkeypatch.setattr(elastic._RemainingTime, "seconds", counted)
    count = 100
    jobs = [job(number, ONE, restart_s=1e6) for number in range(count)]
    assert set(sizes(decided(Cluster((Node("n0", count + 1),)), *jobs)).values()) == {1}
    assert looks < 10 * count


def test_a_job_on_a_node_that_has_become_too_small_is_admitted_anew() -> None:
    four = job(0, Grant.of({"n0": 4}), restart_s=10.0)
    given = sizes(decided(Cluster((Node("n0", 1), Node("n1", 2))), four, job(1, scales=0.0)))
    assert given == {"t0": 2, "t1": 1}
    assert sizes(decided(Cluster((Node("n0", 1), Node("n1", 1))), four, job(1, scales=0.0))) == {"t0": 1, "t1": 1}
    assert sizes(decided(Cluster((Node("n0", 1), Node("n1", 8))), four)) == {"t0": 8}
