import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beamer.clock import SteadyClock
from beamer.decision.policy import Stateless
from beamer.errors import InputError, NotFoundError, PlatformError
from beamer.gpu.policy import GpuPolicy
from beamer.network.connection import Connection
from beamer.network.events import ConnectionsSeen, Planned
from beamer.network.fabric import Fabric
from beamer.network.plan_modes import PlanMode
from beamer.network.policies import NetworkPolicy, Order, network_policy
from beamer.network.policies.beamer import BeamerState
from beamer.network.policy import Tier
from beamer.network.protocol import Applied, Assignment, Connections
from beamer.network.snapshot import Snapshot
from beamer.studies.events import (
    AttemptStarted,
    EncodedEvent,
    Event,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
)
from beamer.studies.journal.store import Journal
from beamer.studies.model import Process, Profile, TrialStatus, Worker
from controller.liveness.watch import WatchOptions
from controller.settings import ControllerSettings
from tests.support.served_controller import SwitchesInMemory, made_runtime
from topologies.dumbbell import build

FABRIC = build(hosts_per_side=2)
HOSTS = [host.name for host in FABRIC.hosts]
IP = {host.name: host.ip for host in FABRIC.hosts}
AGENT = {host.name: host.agent for host in FABRIC.hosts}


class Clock:
    """The wall clock, and what passes, in one."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Desk:
    """A runtime on a journal file, with switches in memory and assignments caught on their way out."""

    def __init__(
        self, path: Path, policy: NetworkPolicy[Any] | None = None, queues: int = 8, fabric: Fabric = FABRIC,
        clock_s: float = 1000.0, watch: WatchOptions | None = None, mode: PlanMode | None = None, snapshot_events: int = 0,
        gpus: GpuPolicy[Any] | None = None,
    ) -> None:  # fmt: skip
        self.journal_url = f"sqlite:///{path / 'journal.db'}"
        self.clock = Clock(clock_s)
        self.sent: list[tuple[str, Assignment]] = []
        self.switches = SwitchesInMemory([s.name for s in fabric.switches])
        policy, watch = policy or network_policy("fifo"), watch or WatchOptions()
        settings = ControllerSettings(fabric, policy, queues, mode, gpus, watch=watch, snapshot_events=snapshot_events)
        self.runtime = made_runtime(settings, Journal(self.journal_url), self.switches, SteadyClock(self.clock, self.clock))
        self.recorded: list[Event] = []
        put = self.runtime.batches.put
        self.runtime.batches.put = lambda event: (put(event), self.recorded.append(event))[0]  # type: ignore[method-assign]
        self.runtime.agents.send = lambda agent, assignment: self.sent.append((agent, assignment))  # type: ignore[method-assign]

    def record(self, *events: Event) -> None:
        for event in events:
            assert self.runtime.record(event)

    def apply_all(self) -> None:
        for agent in self.runtime.installation.agents:
            assignment = self.runtime.agent_joined(agent)
            self.runtime.on_agent_message(agent, Applied(generation=assignment.generation, changes=0))

    def journaled(self) -> list[Event]:
        journal = Journal(self.journal_url, writes=False)
        try:
            return list(journal.replay())
        finally:
            journal.close()


def run(play: Coroutine[Any, Any, None]) -> None:
    asyncio.run(play)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def trial(name: str, a: str = HOSTS[0], b: str = HOSTS[2]) -> tuple[Event, ...]:
    key, workers = f"mnist/{name}", (Worker(0, a), Worker(1, b))
    return (
        TrialRegistered(1000.0, "mnist", name),
        TargetSet(1000.0, key, 10, "rung0"),
        AttemptStarted(1000.0, key, "one", workers, Profile(1_000_000)),
    )


def attached(key: str, rank: int, pid: int) -> WorkerAttached:
    return WorkerAttached(1000.0, key, rank, Process(pid))


def connection(key: str, port: int = 5000) -> Connection:
    return Connection(key, 0, IP[HOSTS[0]], port, IP[HOSTS[2]], 6000)


REGISTERED: tuple[Event, ...] = (
    StudyRegistered(1000.0, "mnist"),
    StageRegistered(1000.0, "mnist", "rung0"),
    *trial("a"),
    *trial("b"),
)


def test_jobs_reach_switches_and_agents_in_their_classes(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED)
        desk.record(attached("mnist/b", 0, 42))
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/b"),)))
        await until(lambda: bool(desk.switches.installed[-1][1]))
        [rules] = desk.switches.installed[-1][1]
        there = IP[HOSTS[0]], 5000, IP[HOSTS[2]], 6000
        back = IP[HOSTS[2]], 6000, IP[HOSTS[0]], 5000
        assert (rules.key, rules.seq, rules.klass) == ("mnist/b", 2, 1)
        assert rules.connections == {there, back}
        assert [agent for agent, _ in desk.sent] == [AGENT[HOSTS[0]]]
        [worker] = desk.sent[-1][1].workers
        assert (worker.job, worker.process.pid, worker.klass) == ("mnist/b", 42, 1)
        assert desk.sent[-1][1].generation == desk.switches.installed[-1][0]
        await desk.runtime.stop()

    run(play())


def test_agents_mark_what_every_switch_knows(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED, attached("mnist/b", 0, 42))
        await until(lambda: bool(desk.sent))
        desk.switches.acknowledging = False
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/b"),)))
        await until(lambda: bool(desk.switches.installed[-1][1]))
        desk.record(attached("mnist/a", 0, 43))  # asks nothing of switches and has to wait as well
        await until(lambda: desk.runtime.installation.generation > desk.switches.installed[-1][0])
        await until(lambda: desk.runtime._delivery._durable == desk.runtime.installation.generation)
        assert len(desk.sent) == 1
        assert not desk.runtime.agent_joined(AGENT[HOSTS[0]]).connections, "not even if the agent comes back in the meantime"
        desk.switches.acknowledge()
        [(agent, assignment)] = desk.sent[1:]
        assert (agent, assignment.generation) == (AGENT[HOSTS[0]], desk.runtime.installation.generation)
        [known] = assignment.connections
        assert (known.job, known.local_ip, known.local_port) == ("mnist/b", IP[HOSTS[0]], 5000)
        assert {worker.process.pid for worker in assignment.workers} == {42, 43}
        await desk.runtime.stop()

    run(play())


def test_agents_follow_switches_that_lag_behind(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED, attached("mnist/b", 0, 42))
        await until(lambda: bool(desk.sent))
        desk.switches.acknowledging = False
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/b"),)))
        await until(lambda: bool(desk.switches.installed[-1][1]))
        first = desk.switches.installed[-1][0]
        both = connection("mnist/b"), connection("mnist/b", 5001)
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], both))
        await until(lambda: desk.switches.installed[-1][0] > first)
        desk.switches.acknowledge(first)
        assert [(a.generation, len(a.connections)) for _, a in desk.sent[1:]] == [(first, 1)]
        await desk.runtime.stop()

    run(play())


@pytest.mark.parametrize("lost", [False, True])
def test_agents_wait_long_for_a_silent_switch_and_not_for_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    monkeypatch.setattr("controller.network.delivery.SWITCH_WAIT_S", 3600.0 if lost else 0.02)

    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED, attached("mnist/b", 0, 42))
        await until(lambda: bool(desk.sent))
        desk.switches.acknowledging = False
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/b"),)))
        await until(lambda: bool(desk.switches.installed[-1][1]))
        if lost:
            assert len(desk.sent) == 1
            for name in desk.switches.names:
                desk.switches.lose(name)
        await until(lambda: len(desk.sent) == 2)
        assert desk.sent[-1][1].connections
        await desk.runtime.stop()

    run(play())


def test_a_decision_is_installed_when_the_journal_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamer.studies.journal.batches.RETRY_S", 0.02)
    append, full = Journal.append_encoded, [True]

    def append_if_there_is_room(journal: Journal, events: Sequence[EncodedEvent]) -> None:
        if any(kind == "Planned" for kind, _ in events) and full:
            full.pop()
            raise PlatformError("the journal is full", "make room")
        append(journal, events)

    monkeypatch.setattr(Journal, "append_encoded", append_if_there_is_room)

    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.apply_all()
        desk.record(*REGISTERED, attached("mnist/b", 0, 42))
        await until(lambda: bool(desk.sent))
        assert not full
        assert set(desk.runtime.plan.jobs) == {"mnist/a", "mnist/b"}
        desk.apply_all()
        assert len(desk.runtime.installation.plan_ms) == len(REGISTERED), "the events that caused it are timed all the same"
        await desk.runtime.stop()

    run(play())


def test_every_port_of_the_fabric_is_somebodys(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        assigned = {agent: desk.runtime.agent_joined(agent) for agent in desk.runtime.installation.agents}
        owned = {(p.interface, p.rate_bps) for a in assigned.values() for p in a.ports if p.classify == "mark"}
        assert {(link.interface, link.rate_bps) for link in FABRIC.links if link.src in FABRIC.host} == owned
        dscp = sorted(p.interface for a in assigned.values() for p in a.ports if p.classify == "dscp")
        managed = [link.interface for link in FABRIC.links if link.src in FABRIC.switch and FABRIC.switch[link.src].agent]
        assert sorted(managed) == dscp
        assert all(set(IP.values()) == set(a.addresses) for a in assigned.values())
        await desk.runtime.stop()

    run(play())


def test_only_agents_whose_work_changed_are_sent_something(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED, attached("mnist/a", 0, 7), attached("mnist/b", 1, 8))
        await until(lambda: len(desk.sent) == 2)
        desk.apply_all()
        desk.sent.clear()
        before = desk.runtime.installation.generation
        desk.record(TrialEnded(1001.0, "mnist/a", TrialStatus.FINISHED))
        await until(lambda: len(desk.sent) == 1)
        # The other job goes on in the class that it has, so its host is sent nothing.
        assert [(agent, assignment.workers) for agent, assignment in desk.sent] == [(AGENT[HOSTS[0]], ())]
        assert desk.runtime.installation.generation == before + 1
        untouched = {AGENT[host] for host in HOSTS[1:]}
        assert {desk.runtime.installation.agents[a] for a in untouched} == {before + 1}
        await desk.runtime.stop()

    run(play())


def test_repeats_and_bad_events_change_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        desk.record(*REGISTERED)
        for event in trial("a"):
            assert not desk.runtime.record(event)
        with pytest.raises(InputError, match="did you mean 'h1'"):
            desk.runtime.record(replace(trial("a", a="h11")[2], attempt="two"))
        with pytest.raises(NotFoundError):
            desk.runtime.record(Progressed(1.0, "mnist/z", 1))
        await desk.runtime.stop()
        assert desk.journaled() == list(REGISTERED)

    run(play())


def test_restart_brings_back_the_same_plan_and_generation(tmp_path: Path) -> None:
    async def play() -> None:
        first = Desk(tmp_path, network_policy("beamer"))
        await first.runtime.start()
        first.record(*REGISTERED, attached("mnist/a", 0, 7))
        first.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/a"), connection("mnist/b", 5001))))
        await until(lambda: len(first.switches.installed[-1][1]) == 2)
        handed_out = first.switches.installed[-1]
        assigned = first.runtime.agent_joined(AGENT[HOSTS[0]])
        plan = first.runtime.plan
        await first.runtime.stop()
        journaled = first.journaled()

        second = Desk(tmp_path, network_policy("beamer"))
        await second.runtime.start()
        assert {entry[0] for entry in second.switches.installed} == {handed_out[0]}
        assert second.switches.installed[-1] == handed_out
        assert second.runtime.agent_joined(AGENT[HOSTS[0]]) == assigned
        assert second.runtime.plan == plan
        await second.runtime.stop()
        assert second.journaled() == journaled

    run(play())


def test_a_snapshot_leads_to_the_same_plan_and_state(tmp_path: Path) -> None:
    async def play() -> None:
        first = Desk(tmp_path, network_policy("beamer"), snapshot_events=20)
        await first.runtime.start()
        first.record(*REGISTERED, attached("mnist/a", 0, 7))
        first.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/a"), connection("mnist/b", 5001))))
        for step in range(1, 30):
            first.record(Progressed(1000.0 + step, "mnist/a", step, 1.0 / step))
        await until(lambda: len(first.switches.installed[-1][1]) == 2)
        reader = Journal(first.journal_url, writes=False)
        await until(lambda: reader.snapshot() is not None)
        for step in range(30, 34):
            first.record(Progressed(1000.0 + step, "mnist/a", step, 1.0 / step))
        await first.runtime.stop()
        made = reader.snapshot()
        assert made is not None
        assert made.link.number >= 20
        assert len(list(reader.replay())) + made.link.number == len(first.recorded)
        reader.close()

        second = Desk(tmp_path, network_policy("beamer"))
        assert second.runtime.tracker == first.runtime.tracker
        await second.runtime.start()
        assert second.runtime.plan == first.runtime.plan
        assert second.switches.installed[-1][1] == first.switches.installed[-1][1]
        await second.runtime.stop()

    run(play())


def test_another_policy_after_a_restart_goes_on_counting_generations(tmp_path: Path) -> None:
    async def play() -> None:
        first = Desk(tmp_path)
        await first.runtime.start()
        first.record(*REGISTERED)
        first.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/b"),)))
        await until(lambda: bool(first.switches.installed[-1][1]))
        generation = first.runtime.installation.generation
        await first.runtime.stop()

        second = Desk(tmp_path, network_policy("fair"), queues=1)
        await second.runtime.start()
        assert second.runtime.installation.generation == generation + 1
        assert {job.klass for job in second.runtime.plan.jobs.values()} == {0}
        assert second.runtime.plan.queues == 1
        await second.runtime.stop()

    run(play())


def test_latency_is_taken_when_the_last_agent_answers(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED, attached("mnist/a", 0, 7))
        await until(lambda: len(desk.sent) == 1)
        desk.apply_all()
        desk.clock.now = 1000.5
        taken = len(desk.runtime.installation.plan_ms)
        desk.record(TrialEnded(1000.0, "mnist/a", TrialStatus.KILLED))
        await until(lambda: len(desk.sent) == 2)
        assert len(desk.runtime.installation.plan_ms) == taken
        assert not desk.runtime.installation.everywhere
        agent, assignment = desk.sent[-1]
        desk.runtime.on_agent_message(agent, Applied(generation=assignment.generation, changes=0, error="no such device"))
        assert not desk.runtime.installation.everywhere
        desk.runtime.on_agent_message(agent, Applied(generation=assignment.generation, changes=1))
        assert desk.runtime.installation.everywhere
        assert desk.runtime.installation.plan_ms[taken:] == (500.0,)
        await desk.runtime.stop()

    run(play())


class Scripted(NetworkPolicy[Stateless]):
    """Counts its calls, fails or asks to be woken on demand, and turns the order round at every call."""

    name = "scripted"
    State = Stateless

    def __init__(self) -> None:
        self.calls = 0
        self.failing = False
        self.wake_in_s: float | None = None

    def order(
        self, state: Stateless, snapshot: Snapshot, now: float, rng: random.Random
    ) -> tuple[Stateless, Order, float | None]:
        self.calls += 1
        if self.failing:
            raise ZeroDivisionError
        keys = snapshot.jobs.key[:: -1 if self.calls % 2 else 1]
        return state, tuple(Tier((key,)) for key in keys), None if self.wake_in_s is None else now + self.wake_in_s


def test_a_burst_of_events_is_one_decision(tmp_path: Path) -> None:
    async def play() -> None:
        policy = Scripted()
        desk = Desk(tmp_path, policy)
        await desk.runtime.start()
        before = policy.calls
        desk.record(*REGISTERED, StageSealed(1000.0, "mnist", "rung0"))
        desk.record(*(Progressed(1000.0, "mnist/a", i) for i in range(1, 5)))
        await until(lambda: bool(desk.runtime.plan.jobs))
        await asyncio.sleep(0.02)
        assert policy.calls == before + 1
        await desk.runtime.stop()

    run(play())


def test_progress_alone_wakes_the_policy_late_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        policy = Scripted()
        desk = Desk(tmp_path, policy)
        await desk.runtime.start()
        desk.record(*REGISTERED)
        await until(lambda: bool(desk.runtime.plan.jobs))
        before = policy.calls
        monkeypatch.setattr("controller.runtime.PROGRESS_S", 3600.0)
        desk.record(Progressed(1000.0, "mnist/a", 1), Progressed(1000.0, "mnist/b", 1))
        await asyncio.sleep(0.05)
        assert policy.calls == before
        monkeypatch.setattr("controller.runtime.PROGRESS_S", 0.02)
        desk.record(Progressed(1000.0, "mnist/a", 2), Progressed(1000.0, "mnist/b", 2))
        await until(lambda: policy.calls > before)
        await asyncio.sleep(0.05)
        assert policy.calls == before + 1
        await desk.runtime.stop()

    run(play())


def test_policy_is_woken_when_it_asked_to_be(tmp_path: Path) -> None:
    async def play() -> None:
        policy = Scripted()
        policy.wake_in_s = 0.01
        desk = Desk(tmp_path, policy)
        await desk.runtime.start()
        await until(lambda: policy.calls >= 4)
        await desk.runtime.stop()
        calls = policy.calls
        await asyncio.sleep(0.05)
        assert policy.calls == calls

    run(play())


def test_a_failing_policy_leaves_the_plan_but_lets_ended_jobs_go(tmp_path: Path) -> None:
    async def play() -> None:
        policy = Scripted()
        desk = Desk(tmp_path, policy)
        await desk.runtime.start()
        desk.record(*REGISTERED)
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/a"), connection("mnist/b", 5001))))
        await until(lambda: len(desk.switches.installed[-1][1]) == 2)
        plan, policy.failing = desk.runtime.plan, True
        desk.record(TrialEnded(1001.0, "mnist/a", TrialStatus.FINISHED))
        await until(lambda: len(desk.switches.installed[-1][1]) == 1)
        assert desk.runtime.plan == plan
        await desk.runtime.stop()

    run(play())


def test_a_state_that_the_policy_cannot_read_leaves_the_plan_until_it_decides(tmp_path: Path) -> None:
    class Silent(Scripted):
        name = "beamer"

    async def play() -> None:
        first = Desk(tmp_path, network_policy("beamer"))
        await first.runtime.start()
        first.record(*REGISTERED)
        await until(lambda: bool(first.runtime.plan.jobs))
        plan, generation = first.runtime.plan, first.runtime.installation.generation
        await first.runtime.stop()
        journal = Journal(first.journal_url)
        journal.append(Planned(1001.0, "beamer", generation + 1, {"order": "of another version"}, plan.queues, dict(plan.jobs)))
        journal.close()

        policy = Silent()
        policy.State = BeamerState  # type: ignore[misc, assignment]  # what it reads
        policy.failing = True
        second = Desk(tmp_path, policy)
        await second.runtime.start()
        assert second.runtime.plan == plan
        await second.runtime.stop()

    run(play())


def test_reports_about_unknown_jobs_are_left_out(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED)
        seen = (
            Connection("mnist/gone", 0, "1.1.1.1", 1, "1.1.1.2", 2),
            connection("mnist/a"),
        )
        message = Connections(connections=seen, unmatched_bytes={"mnist/a": 1448, "mnist/gone": 1})
        desk.runtime.on_agent_message(AGENT[HOSTS[0]], message)
        assert desk.runtime.network.connections[AGENT[HOSTS[0]]] == (connection("mnist/a"),)
        assert desk.runtime.unmatched.by_trial() == {"mnist/a": 1448}
        desk.record(TrialEnded(1000.0, "mnist/a", TrialStatus.FINISHED))
        assert desk.runtime.unmatched.by_trial() == {"mnist/a": 1448}
        desk.record(StudyRegistered(1000.0, "mnist", run="2"))
        assert desk.runtime.unmatched.by_trial() == {}
        await desk.runtime.stop()

    run(play())


def test_every_decision_is_a_generation_of_its_own_but_only_changes_go_out(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.apply_all()
        started = len(desk.switches.installed)
        desk.record(*REGISTERED[:5])
        await until(lambda: len(desk.runtime.plan.jobs) == 1)
        desk.record(*REGISTERED[5:])
        await until(lambda: len(desk.runtime.plan.jobs) == 2)
        assert desk.runtime.installation.generation == 3
        assert desk.runtime.installation.everywhere
        assert (len(desk.switches.installed), desk.sent) == (started, [])
        assert desk.runtime.installation.plan_ms == ()
        await desk.runtime.stop()

    run(play())


def test_a_host_that_the_fabric_has_lost_ends_the_attempts_on_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def play() -> None:
        first = Desk(tmp_path)
        await first.runtime.start()
        first.record(*REGISTERED, *trial("c", HOSTS[0], HOSTS[1]), attached("mnist/a", 1, 7))
        lost = Connection("mnist/a", 1, IP[HOSTS[2]], 6000, IP[HOSTS[0]], 5000)
        first.record(ConnectionsSeen(1000.0, AGENT[HOSTS[2]], (lost,)))
        await until(lambda: len(first.runtime.plan.jobs) == 3)
        await first.runtime.stop()

        second = Desk(tmp_path, fabric=without(FABRIC, HOSTS[2]))
        tracker = second.runtime.tracker
        assert {key: trial.status for key, trial in tracker.trials.items()} == {
            "mnist/a": TrialStatus.LOST,
            "mnist/b": TrialStatus.LOST,
            "mnist/c": TrialStatus.RUNNING,
        }
        logged = capfd.readouterr().out
        assert [f"mnist/{name}" in logged for name in "abc"] == [True, True, False]
        assert HOSTS[2] in logged
        await second.runtime.start()
        await until(lambda: second.runtime.plan.jobs.keys() == {"mnist/c"})
        with pytest.raises(InputError, match="workers"):
            second.runtime.record(attached("mnist/a", 0, 8))
        assert tracker.trials["mnist/a"].status is TrialStatus.LOST
        await second.runtime.stop()

    run(play())


def without(fabric: Fabric, host: str) -> Fabric:
    content: Any = fabric.to_dict()
    content["hosts"] = [entry for entry in content["hosts"] if entry["name"] != host]
    content["links"] = [entry for entry in content["links"] if host not in (entry["src"], entry["dst"])]
    return Fabric.from_dict(content)


def test_time_goes_on_where_the_clock_was_set_back(tmp_path: Path) -> None:
    async def play() -> None:
        first = Desk(tmp_path, clock_s=5000.0)
        first.record(*(replace(event, at_s=first.runtime.clock()) for event in REGISTERED))
        await first.runtime.stop()

        second = Desk(tmp_path, clock_s=1400.0)
        await second.runtime.start()
        stage = second.runtime.tracker.stage("mnist", "rung0")
        second.clock.now += 3.0
        for event in (
            *(TrialEnded(0.0, f"mnist/{name}", TrialStatus.FINISHED) for name in "ab"),
            StageSealed(0.0, "mnist", "rung0"),
        ):
            second.record(replace(event, at_s=second.runtime.clock()))
        assert stage.sct_s == 3.0
        assert second.runtime.tracker.study("mnist").makespan_s == 3.0
        await second.runtime.stop()

    run(play())


def test_nothing_has_fallen_silent_where_the_clock_was_set_back(tmp_path: Path) -> None:
    async def play() -> None:
        first = Desk(tmp_path, clock_s=5000.0)
        first.record(*(replace(event, at_s=first.runtime.clock()) for event in REGISTERED))
        await first.runtime.stop()
        second = Desk(tmp_path, clock_s=1400.0)
        await second.runtime.start()
        await asyncio.sleep(0.05)
        assert len(second.runtime.tracker.running) == 2
        await second.runtime.stop()

    run(play())


def test_more_queues_than_a_port_can_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="queues: got 9"):
        Desk(tmp_path, queues=9)
