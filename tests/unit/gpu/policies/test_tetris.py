from dataclasses import replace
from random import Random
from typing import Any

import pytest

from beamer.gpu.model import Allocation, Cluster, Job, Node, Request, Speed, Stage
from beamer.gpu.policies.tetris import Tetris
from tests.support.jobs import known_job


def job(key: str, step_s: float = 1.0, **request: Any) -> Job:
    asked = Request(**{"iterations": 1000} | request)
    return known_job(key, asked, 0.0, Stage("s", "r"), speeds=(Speed(asked.gpus, 1, asked.gpus * asked.servers, 1, step_s),))


def decided(cluster: Cluster, *jobs: Job, weight: float = 1.0) -> Allocation:
    policy = Tetris(weight)
    return policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))[1]


def test_tasks_go_where_they_suit_what_is_free() -> None:
    cluster = Cluster((Node("cores", 2, 16.0), Node("gpus", 8, 4.0)))
    given = decided(cluster, job("hungry", worker_cpus=8.0), job("plain", gpus=2))
    assert given["hungry"].gpus == (("cores", 1),)
    assert given["plain"].gpus == (("gpus", 2),)


def test_short_jobs_come_first_unless_packing_is_all_that_counts() -> None:
    cluster = Cluster((Node("n", 4, 8.0),))
    short, aligned = job("short", gpus=1, iterations=10), job("aligned", gpus=4, worker_cpus=2.0, iterations=10_000)
    assert list(decided(cluster, aligned, short)) == ["short"]
    assert list(decided(cluster, short, aligned, weight=0.0)) == ["aligned"]


@pytest.mark.parametrize("slow", [2.0, 50.0])
def test_of_a_kind_the_one_with_least_work_left_comes_first(slow: float) -> None:
    cluster = Cluster((Node("n", 1),))
    assert list(decided(cluster, job("a", step_s=slow), job("b"), job("c", step_s=slow))) == ["b"]


def test_what_runs_is_not_preempted_and_sizes_are_those_asked_for() -> None:
    cluster = Cluster((Node("n", 4),))
    long = job("long", iterations=10**6, gpus=3, min_gpus=1, max_gpus=4)
    held = replace(long, grant=decided(cluster, long)["long"])
    assert held.grant
    assert held.grant.size == 3
    given = decided(cluster, held, job("short", gpus=2), job("tiny"))
    assert given["long"] == held.grant
    assert set(given) == {"long", "tiny"}


def test_a_gang_that_no_node_holds_is_spread() -> None:
    given = decided(Cluster((Node("a", 2), Node("b", 3), Node("c", 1))), job("j", gpus=6))
    assert given["j"].gpus == (("a", 2), ("b", 3), ("c", 1))


def test_servers_stay_beside_their_workers_where_there_are_cores() -> None:
    made = job("j", gpus=2, servers=True, worker_cpus=1.0, server_cpus=1.0)
    given = decided(Cluster((Node("gpu", 2, 4.0), Node("cpu", 0, 16.0))), made)
    assert given["j"].servers == (("gpu", 2),)
