"""Decisions beside the loop: others go on meanwhile, and what has ended or moved by then has no part in them."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from beamer.decision.policy import Stateless
from beamer.network.connection import Connection
from beamer.network.events import ConnectionsSeen, PlanChanged, Planned
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprint
from beamer.network.observed_connections import ObservedConnections, by_job
from beamer.network.plan import JobPlan, Plan
from beamer.network.policies import NetworkPolicy, Order
from beamer.network.policy import Tier
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StudyView
from beamer.studies.events import AttemptStarted, Event, StudyRegistered, TrialEnded, TrialRegistered
from beamer.studies.model import Process, Profile, TrialStatus, Worker
from beamer.studies.records import AttemptRecord, TrialRecord
from controller.event_loop import time_slices as slices
from controller.event_loop.time_slices import TimeSlices, at_once
from controller.network.targets import TargetBuilder, Targets
from tests.support.effort import effort, turns
from tests.unit.controller.test_runtime import AGENT, FABRIC, HOSTS, IP, REGISTERED, Desk, run, trial, until

PATIENCE_S = 30.0
FEW, MANY = 40, 160


def no_rates(trial: TrialRecord) -> dict[str, float]:
    return {}


class Slow(NetworkPolicy[Stateless]):
    """Decides when it is told to."""

    name = "slow"
    State = Stateless

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()
        self.may.set()

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        self.asked.set()
        assert self.may.wait(PATIENCE_S), "the loop stands until there is a decision"
        return state, tuple(Tier((key,)) for key in snapshot.jobs.key), None


def while_deciding(path: Path, *events: Event) -> Desk:
    """Return a desk after a decision about the registered jobs during which something happens, and the ones after it."""
    policy = Slow()
    desk = Desk(path, policy)

    async def play() -> None:
        await desk.runtime.start()
        policy.may.clear()
        policy.asked.clear()
        desk.record(*REGISTERED)
        await until(policy.asked.is_set)
        desk.record(*events)
        policy.may.set()
        known = {trial.key for trial in desk.runtime.tracker.running}
        await until(lambda: desk.runtime.plan.jobs.keys() == known)
        await desk.runtime.stop()

    run(play())
    return desk


def decisions(desk: Desk) -> list[set[str]]:
    """Return the jobs that each decision gave a class to, or another one."""
    return [set(event.jobs) for event in desk.journaled() if isinstance(event, (Planned, PlanChanged)) and event.jobs]


def test_events_are_taken_in_while_a_decision_is_made(tmp_path: Path) -> None:
    desk = while_deciding(tmp_path, *trial("c"))
    assert decisions(desk) == [{"mnist/a", "mnist/b"}, {"mnist/c"}]


def test_of_a_study_that_has_not_changed_a_decision_makes_nothing_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision's time grows with the studies that have changed, not with all that run."""
    desk = Desk(tmp_path, Slow())
    of_study, made = Snapshot.of_study, list[str]()

    def counted(fabric: Fabric, study: StudyView, footprint: Callable[[JobView], Footprint]) -> Snapshot:
        made.append(study.name)
        return of_study(fabric, study, footprint)

    async def play() -> None:
        await desk.runtime.start()
        desk.record(*REGISTERED)
        await until(lambda: desk.runtime.plan.jobs.keys() == {"mnist/a", "mnist/b"})
        monkeypatch.setattr(Snapshot, "of_study", counted)
        desk.record(StudyRegistered(1000.0, "other"), TrialRegistered(1000.0, "other", "c"))
        desk.record(AttemptStarted(1000.0, "other/c", "one", (Worker(0, HOSTS[0]), Worker(1, HOSTS[2])), Profile(1_000_000)))
        await until(lambda: "other/c" in desk.runtime.plan.jobs)
        await desk.runtime.stop()

    run(play())
    assert set(made) == {"other"}


def test_a_trial_that_ends_while_a_decision_is_made_has_no_part_in_it(tmp_path: Path) -> None:
    desk = while_deciding(tmp_path, TrialEnded(1000.0, "mnist/a", TrialStatus.FINISHED))
    assert decisions(desk)[0] == {"mnist/b"}


def test_a_trial_that_moves_while_a_decision_is_made_is_decided_on_anew(tmp_path: Path) -> None:
    moved = AttemptStarted(1001.0, "mnist/a", "two", (Worker(0, HOSTS[1]), Worker(1, HOSTS[3])), Profile(1_000_000))
    desk = while_deciding(tmp_path, moved)
    assert [{"mnist/b"}, {"mnist/a"}] == [jobs & {"mnist/a", "mnist/b"} for jobs in decisions(desk)[:2]]


def test_a_study_that_begins_anew_while_a_decision_is_made_has_no_part_in_it(tmp_path: Path) -> None:
    desk = while_deciding(tmp_path, StudyRegistered(1000.0, "mnist", "2"), TrialRegistered(1000.0, "mnist", "z"))
    assert decisions(desk) == []
    assert not desk.runtime.plan.jobs


def attempt(seq: int, attached: int = 2) -> AttemptRecord:
    workers = tuple(Worker(rank, HOSTS[(seq + rank) % len(HOSTS)]) for rank in range(2))
    return AttemptRecord("1", seq, workers, Profile(1000), 0.0, processes={rank: Process(9 + rank) for rank in range(attached)})


class Site:
    """Trials that run, what is seen of them, and a plan for them."""

    def __init__(self, trials: int) -> None:
        self.running = [TrialRecord("s", f"t{seq}", seq, 0.0, attempts={"1": attempt(seq)}) for seq in range(trials)]
        self.seen = ObservedConnections()
        self.plan = Plan(8, {trial.key: JobPlan(trial.seq % 8) for trial in self.running})
        for agent in AGENT.values():
            self.see(agent)
        self.builder = TargetBuilder(FABRIC)

    def see(self, agent: str, port: int = 0) -> None:
        mine = [trial for trial in self.running if self.agent_of(trial) == agent]
        found = [Connection(t.key, 0, IP[HOSTS[0]], 1 + port, IP[HOSTS[1]], 1 + t.seq) for t in mine]
        self.seen.replace(agent, by_job(found, lambda job: True))

    @staticmethod
    def agent_of(trial: TrialRecord) -> str:
        assert trial.attempt is not None
        return AGENT[trial.attempt.workers[0].host]

    def build(self) -> Targets:
        return at_once(self.builder.build(self.running, self.seen, self.plan, no_rates))

    def anew(self) -> Targets:
        return at_once(TargetBuilder(FABRIC).build(self.running, self.seen, self.plan, no_rates))


@pytest.mark.parametrize("seed", range(4))
def test_targets_that_are_kept_up_to_date_are_those_made_anew(seed: int) -> None:
    rng, site = Random(seed), Site(12)
    for _ in range(60):
        present = rng.choice(site.running).attempt
        assert present is not None
        match rng.randrange(6):
            case 0:
                site.see(rng.choice(list(AGENT.values())), rng.randrange(3))
            case 1:
                changed = {key: JobPlan(rng.randrange(8)) for key in rng.choices(sorted(site.plan.jobs), k=3)}
                site.plan = Plan(site.plan.queues, {**site.plan.jobs, **changed})
            case 2:
                present.processes[rng.randrange(2)] = Process(rng.randrange(2, 99))
            case 3:
                present.processes.pop(rng.randrange(2), None)
            case 4:
                site.running.remove(rng.choice(site.running))
                site.running.append(TrialRecord("s", f"t{len(site.plan.jobs)}", 0, 0.0))
                latest = max(t.attempt.seq for t in site.running if t.attempt) + 1
                site.running[-1].attempts["1"] = attempt(latest, rng.randrange(3))
                site.plan = Plan(rng.choice((4, 8)), {**site.plan.jobs, site.running[-1].key: JobPlan(1)})
            case 5:
                dropped = rng.choice(sorted(site.plan.jobs)[1:])
                site.plan = Plan(site.plan.queues, {key: job for key, job in site.plan.jobs.items() if key != dropped})
        before, found = site.build(), site.anew()
        assert before == found
        again = site.build()
        assert all(again.assignments[agent] is kept for agent, kept in before.assignments.items())


def test_targets_of_what_has_not_changed_are_not_made_again() -> None:
    site = Site(MANY)
    everything = effort(site.build)
    site.plan = Plan(8, {**site.plan.jobs, "s/t7": JobPlan(0)})
    assert effort(site.build) < 0.2 * everything


def test_a_turn_does_not_grow_with_the_jobs_whose_targets_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 8)

    def longest(trials: int) -> int:
        async def scene(counting: Callable[[], AbstractContextManager[None]]) -> None:
            site, shared = Site(trials), TimeSlices()
            with counting():
                await shared.do(site.builder.build(site.running, site.seen, site.plan, no_rates))

        # The last turn puts together what was made before it.
        return max(turns(scene)[:-1])

    assert longest(MANY) < 1.5 * longest(FEW)


def test_who_is_planned_and_seen_gets_rules_by_a_renewal_alone(tmp_path: Path) -> None:
    async def play() -> None:
        policy: Any = Slow()
        desk = Desk(tmp_path, policy)
        await desk.runtime.start()
        desk.record(*REGISTERED)
        await until(lambda: len(desk.runtime.plan.jobs) == 2)
        policy.may.clear()  # a decision would wait for ever
        seen = Connection("mnist/b", 0, IP[HOSTS[0]], 5000, IP[HOSTS[2]], 6000)
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (seen,)))
        await until(lambda: bool(desk.switches.installed[-1][1]))
        policy.may.set()
        await desk.runtime.stop()

    run(play())
