"""Pollux' policy on small clusters."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from pydantic import TypeAdapter

from beamer.gpu.model import Allocation, Cluster, Costs, Grant, Job, Node, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.policies.pollux import SPEEDUP_WITHOUT_GPUS, JobRestarts, Pollux, PolluxState, _without_shared_nodes
from tests.support.jobs import known_job


def cluster(nodes: int, gpus: int = 4) -> Cluster:
    return Cluster(tuple(Node(f"n{number}", gpus) for number in range(nodes)))


def job(number: int, sync_s: float | None = None, noise: float = 0.0, **request: Any) -> Job:
    """A job that computes for 1 s on one GPU. sync_s: what a node costs it, measured; None: not measured at all."""
    asked = Request(**{"iterations": 1000, "max_gpus": 16, "batch_size": 64, "max_batch_size": 1024, **request})
    reports = (Report(1.0, 1.0, 1.0, 1.0, None, 1.0, noise),) if noise else ()
    speeds: tuple[Speed, ...] = ()
    if sync_s is not None:
        shapes = ((1, 1), (2, 1), (4, 1), (8, 2), (16, 4))
        speeds = tuple(Speed(n, k, 0, b, b / 64 / n + sync_s * (n > 1)) for n, k in shapes for b in (64, 128))
    return known_job(f"study/{number}", asked, float(number), Stage("study", "0"), reports, speeds, costs=Costs(restart_s=30.0))


def held(base: Job, node: str, gpus: int) -> Job:
    return replace(base, grant=Grant(((node, gpus),)), last=Grant(((node, gpus),)))


def decide(
    jobs: list[Job], on: Cluster, policy: Pollux | None = None, state: PolluxState | None = None, now: float = 1000.0
) -> tuple[PolluxState, Allocation]:
    policy = policy or Pollux()
    state, allocation, _ = policy.allocate(state or policy.initial(), on, jobs, now, Random(0))
    check_allocation(on, jobs, allocation)
    return state, allocation


def sizes(allocation: Allocation) -> dict[str, int]:
    return {key.split("/")[1]: grant.size for key, grant in allocation.items()}


def used(jobs: list[Job], most: int = 16) -> PolluxState:
    return PolluxState(tuple(JobRestarts(job.key, most, 0) for job in jobs))


def test_jobs_may_double_what_they_had() -> None:
    policy, on, state, now = Pollux(), cluster(4), PolluxState(), job(0, sync_s=0.01, noise=100.0)
    seen = []
    for tick in range(5):
        state, allocation = decide([now], on, policy, state, 60.0 * tick)
        seen.append(allocation[now.key].size)
        now = replace(now, grant=allocation[now.key], last=allocation[now.key])
    assert seen == [1, 2, 4, 8, 16]


def test_gpus_go_where_they_speed_learning_up() -> None:
    jobs = [job(0, sync_s=2.0, max_batch_size=0), job(1, sync_s=0.01, max_batch_size=0)]
    assert sizes(decide(jobs, cluster(1), state=used(jobs))[1]) == {"0": 1, "1": 3}
    even = [job(0, sync_s=0.01, noise=100.0), job(1, sync_s=0.01, noise=100.0)]
    assert sizes(decide(even, cluster(1), state=used(even))[1]) == {"0": 2, "1": 2}


def test_a_small_exponent_is_fairer() -> None:
    jobs = [job(0, sync_s=0.3, noise=1.0), *(job(number, sync_s=0.001, noise=1000.0) for number in range(1, 4))]
    held_by = [sizes(decide(jobs, cluster(2), Pollux(p=p), used(jobs))[1]) for p in (1.0, -4.0)]
    least = [min(held.get(str(number), 0) for number in range(4)) for held in held_by]
    assert least[0] < least[1]


def test_jobs_on_several_nodes_share_none() -> None:
    grants = {
        "study/0": Grant((("n0", 2), ("n1", 2))),
        "study/1": Grant((("n1", 1), ("n2", 3))),
        "study/2": Grant((("n2", 1),)),
        "study/3": Grant((("n0", 1), ("n1", 1))),
    }
    jobs = [job(0), replace(job(1), grant=None), job(2), job(3, gpus=2)]
    assert _without_shared_nodes(jobs, grants) == {
        "study/0": grants["study/0"],
        "study/1": Grant((("n2", 3),)),
        "study/2": grants["study/2"],
    }
    staying = [job(0), replace(job(1), grant=grants["study/1"]), job(2), job(3, gpus=2)]
    assert _without_shared_nodes(staying, grants)["study/1"] == grants["study/1"]
    assert _without_shared_nodes(staying, grants)["study/0"].nodes == 1


def test_a_job_that_is_cut_to_a_node_gets_no_servers_beyond_those_it_had() -> None:
    jobs = [job(0), job(1)]
    apart = Grant((("n1", 1), ("n2", 2)), (("c", 2), ("n1", 1)))
    grants = {"study/0": Grant((("n0", 2), ("n1", 1))), "study/1": apart}
    assert _without_shared_nodes(jobs, grants)["study/1"] == Grant((("n2", 2),), (("c", 2),))
    beside = replace(apart, servers=apart.gpus)
    assert _without_shared_nodes(jobs, grants | {"study/1": beside})["study/1"] == Grant((("n2", 2),), (("n2", 2),))


def test_noisy_gradients_are_given_large_batches() -> None:
    calm, noisy = (
        decide([held(job(0, sync_s=0.2, noise=noise), "n0", 4)], cluster(1), state=used([job(0)]))[1]["study/0"]
        for noise in (0.01, 100.0)
    )
    assert calm.batch_size in range(65)
    assert 256 < noisy.batch_size <= 1024


def test_a_batch_is_left_alone_where_little_is_gained() -> None:
    first = replace(held(job(0, sync_s=0.2, noise=100.0), "n0", 4), costs=Costs())
    best = decide([first], cluster(1), state=used([first]))[1]["study/0"].batch_size
    near = replace(first, grant=Grant((("n0", 4),), batch_size=best - 5))
    assert decide([near], cluster(1), state=used([near]))[1]["study/0"] == near.grant
    assert decide([near], cluster(1), Pollux(batch_change_gain=0.0), used([near]))[1]["study/0"].batch_size == best


def test_a_restart_must_pay() -> None:
    first = held(job(0, sync_s=0.8, noise=100.0), "n0", 2)
    moved = {
        restarts: sizes(decide([first], cluster(1), state=PolluxState((JobRestarts(first.key, 4, restarts),)), now=1000.0)[1])[
            "0"
        ]
        for restarts in (0, 30)
    }
    assert moved[30] == 2
    assert moved[0] > 2


def test_restarts_are_counted() -> None:
    first = held(job(0, sync_s=0.01, noise=100.0), "n0", 1)
    state, allocation = decide([first], cluster(1), state=PolluxState((JobRestarts(first.key, 1, 2),)))
    assert sizes(allocation) == {"0": 2}
    assert state.used == (JobRestarts(first.key, 2, 3),)


def test_everything_stays_between_two_decisions() -> None:
    jobs = [held(job(0), "n0", 1), job(1)]
    policy = Pollux()
    state = PolluxState((JobRestarts("study/0", 1, 0),), 1010.0)
    assert policy.allocate(state, cluster(1), jobs, 1009.0, Random(0)) == (state, {"study/0": jobs[0].grant}, 1010.0)
    after, allocation, wake = policy.allocate(state, cluster(1), jobs, 1010.0, Random(0))
    assert set(allocation) == {"study/0", "study/1"}
    assert (after.next_s, wake) == (1020.0, 1020.0)


def test_a_lost_node_takes_its_jobs_along_until_the_next_decision() -> None:
    jobs = [held(job(0), "n0", 1), held(job(1), "n1", 1)]
    state = PolluxState((), 1010.0)
    left = Cluster((Node("n1", 4),))
    assert sizes(Pollux().allocate(state, left, jobs, 1000.0, Random(0))[1]) == {"1": 1}
    assert {node for grant in decide(jobs, left, state=state, now=1010.0)[1].values() for node, _ in grant.gpus} == {"n1"}


def test_jobs_that_do_not_fit_for_a_moment_are_not_forgotten() -> None:
    large, small = held(job(0, gpus=4, max_gpus=8), "n0", 4), held(job(1, max_gpus=1), "n1", 1)
    state = PolluxState((JobRestarts(large.key, 4, 3), JobRestarts(small.key, 2, 1), JobRestarts("study/ended", 8, 0)))
    for left in (Cluster(()), Cluster((Node("n1", 2),))):
        after, allocation = decide([large, small], left, state=state)
        assert large.key not in allocation
        assert after.used == state.used[:2]


@pytest.mark.parametrize(("gpus", "count"), [(0, 3), (4, 0), (0, 0), (2, 2000)])
def test_odd_situations(gpus: int, count: int) -> None:
    _, allocation = decide([job(number) for number in range(count)], cluster(1, gpus))
    assert sum(grant.size for grant in allocation.values()) == min(gpus, count)


def test_least_and_most_hold() -> None:
    jobs = [job(0, gpus=6, max_gpus=6), job(1, gpus=2, min_gpus=2, max_gpus=3), job(2, gpus=9, max_gpus=9)]
    state, allocation = decide(jobs, cluster(2), Pollux(apart=False))
    assert sizes(allocation) == {"0": 6, "1": 2}
    assert TypeAdapter(PolluxState).validate_json(TypeAdapter(PolluxState).dump_json(state)) == state


def test_nothing_counts_as_little_but_something() -> None:
    for p in (-2.0, -1.0, 0.0, 1.0):
        jobs = [job(number, sync_s=0.01, noise=100.0) for number in range(3)]
        assert sizes(decide(jobs, cluster(1), Pollux(p=p), used(jobs))[1]).keys() >= ({"0", "1", "2"} if p <= 0 else set())
    assert 0 < SPEEDUP_WITHOUT_GPUS < 0.01


def test_decisions_come_on_the_clock() -> None:
    assert [decide([job(0)], cluster(1), now=now)[0].next_s for now in (0.0, 59.0, 60.0, 107.0)] == [60.0, 60.0, 120.0, 120.0]


def test_a_job_that_grows_is_placed_where_the_fewest_nodes_hold_it() -> None:
    jobs = [held(job(0, sync_s=0.01, noise=1e4), "n0", 2), held(job(1, max_gpus=2, gpus=2, min_gpus=2), "n0", 2)]
    _, allocation = decide(jobs, cluster(2), state=used(jobs, 2))
    assert allocation["study/0"].gpus == (("n1", 4),)
    assert allocation["study/1"].gpus == (("n0", 2),)


@pytest.mark.parametrize(("batch_s", "changes"), [(None, False), (0.0, True)])
def test_a_batch_size_that_is_changed_for_free_is_changed_for_any_gain(batch_s: float | None, changes: bool) -> None:
    base = held(job(0, sync_s=0.01, noise=100.0, max_gpus=4), "n0", 4)
    best = decide([replace(base, grant=None, last=None)], cluster(1), state=used([base]))[1]["study/0"]
    assert best.size == 4
    near = replace(best, batch_size=round(best.batch_size * 1.1))
    now = replace(base, grant=near, last=near, costs=Costs(restart_s=30.0, batch_s=batch_s))
    after = decide([now], cluster(1), state=used([now]))[1]["study/0"]
    assert (after.batch_size == best.batch_size) is changes
