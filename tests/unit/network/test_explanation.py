"""Why a job has its place: what is read of a decision."""

import math
from random import Random

import pytest
from hypothesis import given, settings

from beamer.network.decide import decide
from beamer.network.explanation import Basis, Explanation, explain
from beamer.network.job import JobSpec
from beamer.network.policies import network_policy
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StageView, StudyView
from beamer.studies.model import Worker
from beamer.testing.fabrics import star
from beamer.testing.situations import Situation, situations

FABRIC = star(4)
RATE = 20_000_000


def job(key: str, *hosts: int, remaining: int = 10, sync_bytes: int = 1_000_000, started_s: float = 0.0) -> JobView:
    workers = tuple(Worker(rank, f"h{host}") for rank, host in enumerate(hosts))
    return JobView(key, JobSpec(key.partition("/")[2], workers, remaining, sync_bytes), remaining, 0, started_s)


def explained(key: str, *stages: StageView, policy: str = "beamer", started_s: float = 0.0) -> Explanation | None:
    snapshot = Snapshot.of(FABRIC, (StudyView("s", 1.0, stages),))
    chosen = network_policy(policy)
    _, plan, _ = decide(chosen, 8)(chosen.initial(), snapshot, 5.0, Random(0))
    return explain(FABRIC, Basis(snapshot, plan, 5.0), key, started_s)


def test_a_job_is_told_its_place_its_stage_and_who_goes_first_on_the_link_that_it_needs_longest() -> None:
    jobs = (job("s/slow", 1, 2, remaining=30), job("s/fast", 1, 2), job("s/apart", 3, 4, remaining=5))
    why = explained("s/fast", StageView("rung0", jobs, 0.0))
    assert why is not None
    assert (why.place, why.jobs, why.stage, why.stage_jobs, why.slowest) == (2, 3, "rung0", 3, "s/slow")
    assert why.remaining_steps == 10
    assert why.left_s == pytest.approx(10 * why.step_s)
    link = why.bottleneck
    assert link is not None
    assert {link.src, link.dst} in ({"h1", "s1"}, {"h2", "s1"})
    assert link.left_s == pytest.approx(link.left_bytes * 8 / RATE)
    assert (link.jobs_ahead, link.jobs_beside) == (1, 0)
    assert link.ahead_s == pytest.approx(3 * link.left_s), "the slow one has three times as many steps to go"
    first = explained("s/slow", StageView("rung0", jobs, 0.0))
    assert first is not None
    assert first.bottleneck is not None
    assert (first.place, first.bottleneck.jobs_ahead, first.bottleneck.ahead_s) == (1, 0, 0.0)


def test_without_an_order_all_share_one_group_and_nobody_goes_first() -> None:
    why = explained("s/b", StageView("r", (job("s/a", 1, 2), job("s/b", 1, 2)), 0.0), policy="fair")
    assert why is not None
    assert (why.tier, why.tiers, why.tier_jobs) == (1, 1, 2)
    assert why.bottleneck is not None
    assert (why.bottleneck.jobs_ahead, why.bottleneck.jobs_beside) == (0, 1)


def test_a_job_of_one_host_has_no_bottleneck_and_one_without_a_stage_no_stage() -> None:
    why = explained("s/a", StageView("trial:a", (job("s/a", 1, 1),), math.inf, barrier=False))
    assert why is not None
    assert (why.bottleneck, why.stage, why.place) == (None, None, 1)


def test_another_attempt_and_another_job_are_not_explained() -> None:
    stage = StageView("r", (job("s/a", 1, 2, started_s=3.0),), 0.0)
    assert explained("s/a", stage, started_s=3.0) is not None
    assert explained("s/a", stage, started_s=4.0) is None
    assert explained("s/b", stage) is None


@settings(deadline=None, max_examples=40)
@given(situations())
def test_whatever_runs_every_job_has_a_place_of_its_own_under_every_policy(situation: Situation) -> None:
    snapshot = situation.snapshot()
    for name in ("beamer", "fair"):
        policy = network_policy(name)
        _, plan, _ = decide(policy, 8)(policy.initial(), snapshot, 1e9, Random(0))
        places = []
        for (key, started_s), loads in zip(snapshot.jobs.run, snapshot.jobs.loads.tolist(), strict=True):
            why = explain(situation.fabric, Basis(snapshot, plan, 1e9), key, started_s)
            assert why is not None
            places.append(why.place)
            assert (why.bottleneck is not None) == loads
        assert sorted(places) == list(range(1, len(places) + 1))
