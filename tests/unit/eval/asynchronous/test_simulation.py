"""Simulated searches without barriers: who runs where and when, and what a policy is told of it."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from beamer.decision.policy import Stateless
from beamer.network.allocation import Classes
from beamer.network.job import JobSpec
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot
from beamer.sim import Assumptions
from beamer.studies.model import Worker
from beamer.testing.fabrics import star
from beamer.units import frame_bytes
from beamer.workloads.scenario import StagePlan, StudyPlan
from eval.asynchronous.searches import Asha, AsynchronousSearch, IndependentTrials, LossCurves
from eval.asynchronous.simulation import AsynchronousPlan, AsynchronousResult, AsynchronousScenario, simulate

LIVE = Assumptions(acknowledgements=False, coflows_known=False)
SECOND = 2_441_000  # bytes that take a pair of workers about a second by ring, at 20 Mbit/s
HALVING = Asha(trials=4, eta=2, iterations=1, halvings=1)


def slot(hosts: str, seconds: float = 1.0) -> JobSpec:
    workers = tuple(Worker(i, f"h{host}") for i, host in enumerate(hosts))
    return JobSpec("slot", workers, 1, round(seconds * SECOND))


def scenario(search: AsynchronousSearch, slots: Sequence[JobSpec], studies: tuple[StudyPlan, ...] = ()) -> AsynchronousScenario:
    plan = AsynchronousPlan("search", search, tuple(slots), LossCurves("0"))
    return AsynchronousScenario("small", star(4), 0, 8, studies, asynchronous=(plan,))


def run(work: AsynchronousScenario, policy: str | NetworkPolicy[Any] = "fair") -> AsynchronousResult:
    return simulate(work, policy, LIVE)


class Recorder(NetworkPolicy[Stateless]):
    """All jobs in one tier; keeps what it was told."""

    name = "recorder"
    State = Stateless

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[str, ...], list[int]]] = []

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Take note of the jobs and their remaining iterations."""
        self.seen.append((snapshot.jobs.key, snapshot.remaining.tolist()))
        return state, (Tier(snapshot.jobs.key),) if snapshot.jobs.key else (), None


def test_every_trial_runs_and_the_promoted_ones_complete() -> None:
    result = run(scenario(HALVING, [slot("12")]))
    (search,) = result.searches
    trials = [job.key.rpartition("/")[2] for job in result.jobs]
    assert set(trials) == {"t0", "t1", "t2", "t3"}
    assert len(search.completions) >= 2
    assert search.first_s == search.completions[0].at_s
    assert search.best is not None
    assert search.best.loss == min(done.loss for done in search.completions)
    assert search.search_s == search.end_s == max(done.at_s for done in search.completions)


def test_hosts_carry_what_the_trials_synchronise() -> None:
    work = scenario(IndependentTrials(trials=5, iterations=3), [slot("12"), slot("34", 2.0)])
    carried = run(work).link_bytes
    (plan,) = work.asynchronous
    per_step = {host: frame_bytes(spec.sync_bytes, work.fabric.mtu) for host, spec in zip("13", plan.slots, strict=True)}
    steps = {host: carried[f"h{host}-s1"] / size for host, size in per_step.items()}
    assert sum(steps.values()) == pytest.approx(5 * 3, rel=1e-3)


def test_a_trial_that_is_promoted_at_once_goes_on_in_its_attempt() -> None:
    """In one slot, the second trial to arrive is promoted if it is the better one; otherwise the first starts another."""
    losses = LossCurves("0")
    result = run(scenario(replace(HALVING, trials=2), [slot("12")]))
    better = min((0, 1), key=lambda trial: losses.loss(trial, 1))
    expected = ["search/rung0/t0", "search/rung0/t1"] + (["search/rung1/t0"] if better == 0 else [])
    assert [job.key for job in result.jobs] == expected


def test_policies_are_told_what_trials_have_left_until_they_complete() -> None:
    recorder = Recorder()
    run(scenario(replace(HALVING, trials=2), [slot("12", 3.0)]), recorder)
    assert recorder.seen[0] == (("search/t0",), [2])
    assert [1] in [left for _, left in recorder.seen]
    assert all(0 < value <= 2 for _, left in recorder.seen for value in left)


def test_enough_completed_trials_end_the_search() -> None:
    whole = run(scenario(replace(HALVING, trials=8), [slot("12"), slot("34")])).searches[0]
    early = run(scenario(replace(HALVING, trials=8, completed=1), [slot("12"), slot("34")])).searches[0]
    assert len(early.completions) == 1 < len(whole.completions)
    assert early.end_s == early.first_s == whole.first_s < whole.end_s


def test_a_search_begins_when_it_arrives_and_one_that_follows_nothing_waits_for_none() -> None:
    work = scenario(HALVING, [slot("12")])
    late = replace(work, asynchronous=(replace(work.asynchronous[0], arrival_s=5.0),))
    assert run(late).searches[0].start_s == 5.0
    assert run(late).searches[0].search_s == pytest.approx(run(work).searches[0].search_s)


def test_slots_on_other_hosts_do_not_disturb_each_other() -> None:
    one = run(scenario(IndependentTrials(trials=1, iterations=4), [slot("12")])).searches[0]
    two = run(scenario(IndependentTrials(trials=2, iterations=4), [slot("12"), slot("34")])).searches[0]
    assert two.search_s == pytest.approx(one.search_s)


@pytest.mark.parametrize("policy", ["fair", "beamer"])
def test_it_runs_beside_stages(policy: str) -> None:
    beside = StudyPlan("stages", 1.0, 0.0, (StagePlan("rung0", (replace(slot("12"), name="job", iterations=5),)),))
    result = run(scenario(HALVING, [slot("12"), slot("23")], (beside,)), policy)
    assert [stage.study for stage in result.stages] == ["stages"]
    assert result.searches[0].completions


def test_a_search_has_its_first_trial_sooner_and_stages_beside_it_pay_nothing() -> None:
    """Trials in slots that share all of their links: the one that has come farthest is waited for."""
    search = Asha(trials=27, eta=3, iterations=1, halvings=2)
    beside = StudyPlan("stages", 1.0, 0.0, (StagePlan("rung0", (replace(slot("12"), name="job", iterations=5),)),))
    work = scenario(search, [slot("12")] * 4, (beside,))
    runs = {name: simulate(work, name, LIVE, Classes(queues=8)) for name in ("fair", "fifo", "beamer")}
    first_s = {name: result.searches[0].first_s for name, result in runs.items()}
    assert first_s["beamer"] < min(0.8 * first_s["fair"], first_s["fifo"])
    assert runs["beamer"].mean_sct_s < runs["fair"].mean_sct_s
