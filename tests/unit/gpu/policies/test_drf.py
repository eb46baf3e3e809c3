from random import Random
from typing import Any

from beamer.gpu.model import Cluster, Job, Node, Request, Stage
from beamer.gpu.policies.drf import Drf
from tests.support.jobs import known_job


def job(key: str, **request: Any) -> Job:
    return known_job(key, Request(**{"iterations": 1000, "max_gpus": 100} | request), 0.0, Stage("s", "r"))


def sizes(cluster: Cluster, *jobs: Job) -> dict[str, int]:
    policy = Drf()
    return {key: grant.size for key, grant in policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))[1].items()}


def test_dominant_shares_are_equal() -> None:
    # GPUs are what `a` takes most of, cores what `b` does: 2/3 of either resource each
    cluster = Cluster((Node("n", 9, 18.0),))
    given = sizes(cluster, job("a", worker_cpus=1.0), job("b", worker_cpus=4.0))
    assert given == {"a": 6, "b": 3}


def test_equal_jobs_get_equally_many() -> None:
    assert sizes(Cluster((Node("n", 8), Node("m", 4))), *(job(f"j{i}") for i in range(4))) == {f"j{i}": 3 for i in range(4)}


def test_nobody_gets_more_than_it_can_use_and_the_others_get_the_rest() -> None:
    assert sizes(Cluster((Node("n", 8),)), job("a", max_gpus=2), job("b")) == {"a": 2, "b": 6}


def test_every_worker_has_its_server() -> None:
    policy = Drf()
    cluster = Cluster((Node("n", 8, 6.0),))
    made = job("a", servers=True, worker_cpus=1.0, server_cpus=1.0)
    grant = policy.allocate(policy.initial(), cluster, [made], 0.0, Random(0))[1]["a"]
    assert grant.gpus == grant.servers == (("n", 3),)


def test_a_job_that_does_not_fit_holds_nobody_up() -> None:
    assert sizes(Cluster((Node("n", 4),)), job("a", gpus=8), job("b")) == {"b": 4}
