from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest

from beamer.gpu.even_placement import EvenPlacer
from beamer.gpu.model import Allocation, Cluster, Job, Node, Report, Request, Speed, Stage
from beamer.gpu.policies.optimus import Optimus
from tests.support.jobs import known_job

SHAPES = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (4, 4), (8, 4))


def job(key: str, terms: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 0.0), at_s: float = 0.0, **request: Any) -> Job:
    """Return a job whose step takes t0/w + t1 + t2 w/p + t3 w + t4 p seconds, known from some shapes."""
    asked = Request(**{"iterations": 1000, "max_gpus": 16, "servers": True, "worker_cpus": 1.0, "server_cpus": 1.0} | request)
    t0, t1, t2, t3, t4 = terms
    speeds = tuple(Speed(w, 1, p, asked.batch_size, t0 / w + t1 + t2 * w / p + t3 * w + t4 * p) for w, p in SHAPES)
    return known_job(key, asked, at_s, Stage("s", "r"), speeds=speeds)


def decided(policy: Optimus, cluster: Cluster, *jobs: Job) -> Allocation:
    return policy.allocate(policy.initial(), cluster, jobs, 0.0, Random(0))[1]


def sizes(allocation: Allocation) -> dict[str, tuple[int, int]]:
    return {key: (grant.size, sum(count for _, count in grant.servers)) for key, grant in allocation.items()}


WIDE = Cluster(tuple(Node(f"n{i}", 8, 32.0) for i in range(4)))


def test_a_job_grows_until_nothing_is_gained() -> None:
    # w + 16/w is least at w = 4, and servers cost without helping
    assert sizes(decided(Optimus(), WIDE, job("j", (16.0, 0.0, 0.0, 1.0, 0.1)))) == {"j": (4, 1)}


def test_servers_are_added_where_they_are_what_is_short() -> None:
    workers, servers = sizes(decided(Optimus(), WIDE, job("j", (0.1, 0.0, 4.0, 0.0, 0.01), max_gpus=4)))["j"]
    assert servers > workers
    bounded = decided(Optimus(servers_per_gpu=1.0), WIDE, job("j", (0.1, 0.0, 4.0, 0.0, 0.01), max_gpus=4))
    assert sizes(bounded)["j"][1] == 4


@pytest.mark.parametrize(("server_cpus", "t2"), [(0.0, 4.0), (0.0, 32.0), (0.5, 4.0)])
def test_servers_are_bounded_by_the_gpus_that_there_are(server_cpus: float, t2: float) -> None:
    endless = job("j", (16.0, 0.0, t2, 0.0, 0.0), max_gpus=1000, server_cpus=server_cpus)
    assert sizes(decided(Optimus(), Cluster((Node("a", 4, 64.0),)), endless))["j"] == (4, 8)


def test_servers_that_cost_nothing_are_bounded_by_the_gpus_that_a_job_has() -> None:
    cluster = Cluster((Node("a", 4, 64.0),))
    given = sizes(decided(Optimus(), cluster, *(job(f"j{i}", (1.0, 0.0, 4.0, 0.0, 0.0), server_cpus=0.0) for i in range(4))))
    assert set(given.values()) == {(1, 2)}


def test_the_job_with_more_left_to_gain_gets_more() -> None:
    few = Cluster((Node("a", 8, 32.0),))
    long, short = job("long", iterations=10_000), job("short", iterations=100)
    given = sizes(decided(Optimus(), few, short, long))
    assert given["long"][0] == 7
    assert given["short"][0] == 1


def test_gain_counts_by_what_it_takes_of_the_scarcer_resource() -> None:
    # as fast alike, but a worker of the one takes four times the cores, which are what is short
    cluster = Cluster((Node("a", 16, 24.0),))
    given = sizes(decided(Optimus(), cluster, job("wide", worker_cpus=4.0), job("slim", worker_cpus=1.0)))
    assert given["slim"][0] > given["wide"][0]


def test_jobs_start_in_order_of_arrival_where_not_all_fit() -> None:
    cluster = Cluster((Node("a", 2, 32.0),))
    assert set(decided(Optimus(), cluster, job("a"), job("b"), job("c", iterations=10**6))) == {"a", "b"}


def reporting(made: Job, done: int, left: float) -> Job:
    """Return a job that has reported a loss that is as good as converged, or far from it."""
    reports = tuple(Report(float(k), float(k), 1.0 / (left * k + 1.0), float(k)) for k in range(0, done + 1, 10))
    return replace(made, reports=reports)


def test_what_is_left_is_predicted_from_the_loss() -> None:
    policy = Optimus(threshold=0.002)
    slow, fast = (reporting(job("j", iterations=100_000, epoch=10), 500, rate) for rate in (0.001, 1.0))
    assert policy.remaining(fast) == 10.0  # converged, but it runs on
    expected = next(k for k in range(10**5) if 1 / (0.001 * (500 + k) + 1) - 1 / (0.001 * (510 + k) + 1) <= 0.002)
    assert policy.remaining(slow) == pytest.approx(expected, rel=0.05)
    assert replace(policy, threshold=0.0).remaining(slow) == slow.remaining
    assert policy.remaining(replace(slow, request=replace(slow.request, iterations=600))) == 100
    assert policy.remaining(replace(slow, reports=slow.reports[:2])) == 99_990
    few = Cluster((Node("a", 8, 32.0),))
    given = sizes(decided(policy, few, replace(fast, key="fast"), replace(slow, key="slow")))
    assert given["slow"][0] > given["fast"][0]


def test_without_servers_only_workers_are_added() -> None:
    made = replace(job("j", servers=False), speeds=tuple(Speed(w, 1, 0, 1, 1.0 / w + 0.25 * w) for w in (1, 2, 4, 8)))
    assert sizes(decided(Optimus(), WIDE, made)) == {"j": (2, 0)}


def test_without_measurements_speed_is_taken_as_linear() -> None:
    assert sizes(decided(Optimus(), WIDE, replace(job("j", max_gpus=4, servers=False), speeds=()))) == {"j": (4, 0)}
    workers, servers = sizes(decided(Optimus(), WIDE, replace(job("j", max_gpus=4), speeds=())))["j"]
    assert workers == 4
    assert servers > 1


def test_asynchronous_jobs_are_judged_by_their_own_form() -> None:
    # A step of all workers takes (t0 + t1 w/p + t2 w + t3 p) / w, which has its floor at t2.
    made = job("j", asynchronous=True, max_gpus=4)
    speeds = tuple(Speed(w, 1, p, 1, (1.0 + 2.0 * w / p) / w) for w, p in SHAPES)
    workers, servers = sizes(decided(Optimus(), WIDE, replace(made, speeds=speeds)))["j"]
    assert workers == 4
    assert servers > 4


def test_a_split_is_even_on_the_fewest_nodes_that_hold_it() -> None:
    placer = EvenPlacer(Cluster(tuple(Node(f"n{i}", 4, 8.0) for i in range(4))))
    request = job("j", worker_cpus=1.0, server_cpus=1.0).request
    grant = placer.place(request, 6, 6)
    assert grant
    assert [count for _, count in grant.gpus] == [3, 3]
    assert grant.servers == grant.gpus
    assert placer.free_gpus == 10
    again = placer.place(request, 4, 4)
    assert again
    assert [count for _, count in again.gpus] == [4]  # on a node with the most free cores
    assert not set(dict(again.gpus)) & set(dict(grant.gpus))


def test_an_uneven_place_is_better_than_none() -> None:
    placer = EvenPlacer(Cluster((Node("a", 1), Node("b", 4))))
    grant = placer.place(Request(1, gpus=5), 5, 0)
    assert grant
    assert grant.gpus == (("a", 1), ("b", 4))
    assert placer.place(Request(1), 1, 0) is None


def test_nothing_is_taken_for_what_cannot_be_placed() -> None:
    placer = EvenPlacer(Cluster((Node("gpu", 2, 2.0), Node("cpu", 0, 1.5))))
    request = Request(1, gpus=2, servers=True, worker_cpus=1.0, server_cpus=1.0)
    assert placer.place(request, 2, 2) is None
    assert (placer.free_gpus, placer.free_cpus) == (2, 3.5)
    assert placer.place(request, 2, 1)


@pytest.mark.parametrize("count", [1, 3, 5, 7, 12])
def test_any_number_of_workers_finds_its_place(count: int) -> None:
    for seed in range(30):
        rng = Random(seed)
        placer = EvenPlacer(Cluster(tuple(Node(f"n{i}", rng.randrange(5)) for i in range(8))))
        free = placer.free_gpus
        grant = placer.place(Request(1, gpus=count), count, 0)
        assert (grant is not None) == (free >= count)
        assert placer.free_gpus == free - (count if grant else 0)


def test_a_decision_does_not_look_at_every_node_for_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tuple(Node(f"n{i}", 4, 16.0) for i in range(4000)))
    jobs = [replace(job(f"j{i}", max_gpus=4), speeds=()) for i in range(300)]
    looks = 0
    key = EvenPlacer._worker_key

    def counted(self: EvenPlacer, i: int) -> Any:
        nonlocal looks
        looks += 1
        return key(self, i)

    monkeypatch.setattr(EvenPlacer, "_worker_key", counted)
    assert len(decided(Optimus(patience_s=inf), cluster, *jobs)) == 300
    assert 300 <= looks < 300 * 40


def test_a_job_without_servers_grows_by_what_it_measured_nodes_and_accumulation_included() -> None:
    asked: dict[str, Any] = {"servers": False, "worker_cpus": 0.0, "server_cpus": 0.0, "batch_size": 64}
    shapes = ((1, 1), (2, 1), (4, 1), (8, 2), (16, 4))

    def measured(far_s: float, most: int) -> Job:
        parts = {n: -(-64 // (n * most)) for n, _ in shapes}
        speeds = tuple(
            Speed(n, k, 0, 64, 0.01 * parts[n] + 0.01 * 64 / n + far_s * (k > 1), sub_steps=parts[n]) for n, k in shapes
        )
        return replace(job("j", **asked, max_local_batch_size=most, accumulates=True), speeds=speeds)

    on = Cluster(tuple(Node(f"n{i}", 4) for i in range(4)))
    assert sizes(decided(Optimus(), on, measured(0.01, 64)))["j"][0] > 8
    assert sizes(decided(Optimus(), on, measured(1.0, 64))) == {"j": (4, 0)}
    assert sizes(decided(Optimus(), on, measured(1.0, 4))) == {"j": (4, 0)}


def test_a_job_that_has_diverged_starts_last_and_does_not_grow() -> None:
    losses = (2.0, 1.0, 7e14, 8e14)
    reports = tuple(Report(float(k), float(k), loss, float(k)) for k, loss in enumerate(losses))
    diverged, other = replace(job("diverged"), reports=reports), job("other", at_s=1.0)
    assert sizes(decided(Optimus(), Cluster((Node("a", 1, 2.0),)), diverged, other)) == {"other": (1, 1)}
    given = sizes(decided(Optimus(), WIDE, diverged, other))
    assert given["diverged"] == (1, 1)
    assert given["other"] > (1, 1)
