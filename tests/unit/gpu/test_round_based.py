"""What slaq, optimus, drf and tetris have in common: what they may never do, and what happens between rounds."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from beamer.gpu.model import Allocation, Cluster, Grant, Job, Node, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.policies import GpuPolicy, gpu_policy
from tests.support.jobs import known_job

NAMES = ("slaq", "optimus", "drf", "tetris")
ROUNDS = ("slaq", "optimus", "drf")


def job(key: str, submitted_s: float = 0.0, **request: Any) -> Job:
    return known_job(key, Request(**{"iterations": 1000, "epoch": 10} | request), submitted_s, Stage("s", "r"))


def some_job(key: str, rng: Random) -> Job:
    least = rng.choice((1, 1, 1, 2, 4))
    gpus = least + rng.randrange(4)
    servers = rng.random() < 0.5
    cpus = rng.choice((0.0, 0.3, 1.0, 2.5))
    made = job(
        key, min_gpus=least, gpus=gpus, max_gpus=gpus + rng.randrange(8), gang=rng.random() < 0.7, servers=servers,
        asynchronous=rng.random() < 0.3, worker_cpus=cpus, server_cpus=rng.choice((0.0, cpus, 1.7)),
    )  # fmt: skip
    garbage = (float("nan"), float("inf"), 0.0, -3.0)
    reports = tuple(
        Report(10.0 * k, 10.0 * k, rng.choice(garbage) if rng.random() < 0.1 else 2.0 / (1 + k) + rng.random() / 10, 10.0 * k)
        for k in range(rng.choice((0, 0, 1, 2, 3, 10, 200)))
    )
    speeds = tuple(Speed(n, 1, p, 1, 0.1 + 1.0 / n + 0.1 * n / p) for n in range(1, rng.randrange(1, 5)) for p in (1, 2))
    return replace(made, reports=reports, speeds=speeds)


def some_cluster(rng: Random) -> Cluster:
    return Cluster(
        tuple(Node(f"n{i}", rng.choice((0, 0, 1, 4, 8)), rng.choice((0.0, 4.0, 9.3))) for i in range(rng.randrange(12)))
    )


def applied(jobs: list[Job], allocation: Allocation, now: float) -> list[Job]:
    return [
        job
        if job.grant == allocation.get(job.key)
        else replace(
            job, grant=allocation.get(job.key), last=job.grant or job.last, since_s=now,
            service_s=job.service_at(now), gpu_s=job.gpu_seconds_at(now),
        )
        for job in jobs
    ]  # fmt: skip


def check(cluster: Cluster, jobs: list[Job], allocation: Allocation) -> None:
    check_allocation(cluster, jobs, allocation)
    by_key = {job.key: job for job in jobs}
    for key, grant in allocation.items():
        request = by_key[key].request
        assert request.least <= grant.size <= request.most
        assert bool(grant.servers) == request.servers


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_given_twice_whatever_happens(name: str, seed: int) -> None:
    rng = Random(seed)
    policy: GpuPolicy[Any] = gpu_policy(name)
    cluster, jobs, state, now = (
        some_cluster(rng),
        [some_job(f"j{i}", rng) for i in range(rng.randrange(30))],
        policy.initial(),
        0.0,
    )
    for turn in range(8):
        state, allocation, wake_at = policy.allocate(state, cluster, jobs, now, Random(0))
        check(cluster, jobs, allocation)
        assert wake_at is None or wake_at > now
        jobs = applied(jobs, allocation, now)
        if jobs and rng.random() < 0.3:
            jobs.pop(rng.randrange(len(jobs)))
        if rng.random() < 0.3:
            jobs.append(replace(some_job(f"new{turn}", rng), submitted_s=now + 1))
        if rng.random() < 0.3 and cluster.nodes:
            cluster = Cluster(cluster.nodes[:-1])  # whatever ran there is granted a node that is gone
        now += rng.choice((1.0, 30.0, 700.0))


@pytest.mark.parametrize("name", NAMES)
def test_equal_arguments_give_equal_results(name: str) -> None:
    rng = Random(3)
    cluster = Cluster(tuple(Node(f"n{i}", 4, 8.0) for i in range(6)))
    jobs = [some_job(f"j{i}", rng) for i in range(20)]
    policy: GpuPolicy[Any] = gpu_policy(name)
    first = policy.allocate(policy.initial(), cluster, jobs, 5.0, Random(0))
    assert first[1]
    assert first == policy.allocate(policy.initial(), cluster, jobs, 5.0, Random(1))
    kept = policy.allocate(first[0], cluster, applied(jobs, first[1], 5.0), 5.0, Random(0))
    assert kept[1] == first[1]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_decide(name: str) -> None:
    policy: GpuPolicy[Any] = gpu_policy(name)
    nodes = Cluster((Node("a", 2, 4.0),))
    assert policy.allocate(policy.initial(), nodes, [], 0.0, Random(0))[1:] == ({}, None)
    assert policy.allocate(policy.initial(), Cluster(()), [job("j")], 0.0, Random(0))[1] == {}
    assert policy.allocate(policy.initial(), Cluster((Node("a", 0, 4.0),)), [job("j")], 0.0, Random(0))[1] == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_jobs_for_each_gpu(name: str) -> None:
    policy: GpuPolicy[Any] = gpu_policy(name)
    cluster = Cluster((Node("a", 2), Node("b", 2)))
    jobs = [job(f"j{i}", max_gpus=4) for i in range(4000)]
    _, allocation, _ = policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))
    check(cluster, jobs, allocation)
    assert sum(grant.size for grant in allocation.values()) == 4


@pytest.mark.parametrize("name", NAMES)
def test_a_job_on_a_lost_node_runs_elsewhere_and_the_others_stay(name: str) -> None:
    policy: GpuPolicy[Any] = gpu_policy(name)
    cluster = Cluster((Node("a", 2), Node("b", 2), Node("c", 2)))
    jobs = [job("x", gpus=2), job("y", gpus=2)]
    state, before, _ = policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))
    lost = before["x"].gpus[0][0]
    left = Cluster(tuple(node for node in cluster.nodes if node.name != lost))
    for now in (1.0, 1000.0):
        _, after, _ = policy.allocate(state, left, applied(jobs, before, 0.0), now, Random(0))
        assert after["y"] == before["y"]
        assert after["x"].size == 2


@pytest.mark.parametrize("name", NAMES)
def test_servers_go_to_nodes_without_gpus_where_those_with_gpus_lack_cores(name: str) -> None:
    policy: GpuPolicy[Any] = gpu_policy(name)
    cluster = Cluster((Node("gpu", 2, 2.0), Node("cpu", 0, 4.0)))
    jobs = [job("j", gpus=2, servers=True, worker_cpus=1.0, server_cpus=1.0)]
    _, allocation, _ = policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))
    assert allocation["j"].gpus == (("gpu", 2),)
    assert {node for node, _ in allocation["j"].servers} == {"cpu"}


@pytest.mark.parametrize("name", ROUNDS)
def test_between_rounds_running_jobs_keep_and_waiting_ones_start_where_there_is_room(name: str) -> None:
    policy: GpuPolicy[Any] = gpu_policy(name)
    cluster = Cluster((Node("a", 4), Node("b", 4)))
    jobs = [job("x", max_gpus=4)]
    state, first, wake_at = policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))
    assert first["x"].size == 4
    assert wake_at is not None
    assert wake_at == policy.rounds[0]  # type: ignore[attr-defined]
    jobs = [*applied(jobs, first, 0.0), job("y", submitted_s=1.0, max_gpus=4)]
    state, second, _ = policy.allocate(state, cluster, jobs, 1.0, Random(0))
    assert second == {"x": first["x"], "y": Grant((("b" if first["x"].gpus[0][0] == "a" else "a", 1),))}
    _, third, _ = policy.allocate(state, cluster, applied(jobs, second, 1.0), wake_at, Random(0))
    assert third["x"] == first["x"]
    assert third["y"].size == 4


@pytest.mark.parametrize("name", ["optimus", "drf"])
def test_a_job_without_room_calls_the_next_round_forward_if_others_can_spare_some(name: str) -> None:
    policy: GpuPolicy[Any] = gpu_policy(name)
    cluster = Cluster((Node("a", 4),))
    for most in (1, 4):
        jobs = [job(f"x{i}", max_gpus=most) for i in range(4 // most)]
        state, first, _ = policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))
        jobs = [*applied(jobs, first, 0.0), job("y", submitted_s=1.0)]
        state, second, wake_at = policy.allocate(state, cluster, jobs, 1.0, Random(0))
        assert second == first
        assert wake_at == (policy.patience_s if most == 4 else policy.interval_s)  # type: ignore[attr-defined]
        assert wake_at is not None
        _, third, _ = policy.allocate(state, cluster, jobs, wake_at, Random(0))
        assert ("y" in third) == (most == 4 or name == "drf")


def test_waiting_for_the_interval_is_a_choice() -> None:
    policy: GpuPolicy[Any] = gpu_policy("optimus", patience_s=float("inf"))
    cluster = Cluster((Node("a", 4),))
    jobs = [job("x", max_gpus=4)]
    state, first, _ = policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))
    jobs = [*applied(jobs, first, 0.0), job("y", submitted_s=1.0)]
    assert policy.allocate(state, cluster, jobs, 1.0, Random(0))[2] == 600.0


def test_drf_gives_everybody_a_turn() -> None:
    policy: GpuPolicy[Any] = gpu_policy("drf")
    cluster = Cluster((Node("a", 2), Node("b", 2)))
    jobs = [job(f"small{i}") for i in range(10)] + [job("large", gpus=4)]
    state, now, ran = policy.initial(), 0.0, set()
    for _ in range(8):
        state, allocation, wake_at = policy.allocate(state, cluster, jobs, now, Random(0))
        ran |= set(allocation)
        jobs, now = applied(jobs, allocation, now), wake_at or now
    assert ran == {job.key for job in jobs}
