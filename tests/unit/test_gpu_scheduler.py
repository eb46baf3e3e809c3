"""The GPU scheduler: what it decided is carried out, once, whatever dies in between."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest

from beamer.decision.core import RETRY_S
from beamer.decision.policy import Stateless
from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.errors import EngineError
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.events import Allocated, JobSubmitted, NodesSeen
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Allocation, Cluster, Costs, Grant, Job, Node, Request
from beamer.gpu.policies import gpu_policy
from beamer.gpu.policies.fifo import Fifo
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.scheduler import Scheduler
from beamer.studies.events import Event, JobEnded, StageRegistered, StudyRegistered
from beamer.studies.model import JobStatus, split_key
from beamer.studies.tracker import Tracker
from beamer.testing.gpu_policies import Exponential, devices_are_exclusive

NODES = (Node("n0", 2), Node("n1", 2))


class Crash(Exception):
    """The scheduler's process dies."""


class TrackedJob(SimulatedCluster):
    """An engine that counts starts and loses its caller now and then."""

    def __init__(self, jobs: dict[str, SimulatedJob]) -> None:
        super().__init__(NODES, jobs)
        self.starts: dict[str, int] = {}
        self.crash_in = 10**9

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        before = self.report().get(job)
        super().start(job, placement, timeout_s)
        if before is None or before.state is RunState.PARKED:
            self.starts[job] = self.starts.get(job, 0) + 1
        self._live_on()

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        super().suspend(job, timeout_s)
        self._live_on()

    def _live_on(self) -> None:
        self.crash_in -= 1
        if self.crash_in < 0:
            raise Crash


def jobs(count: int) -> dict[str, SimulatedJob]:
    rng = Random(1)
    return {
        f"s/r/t{i}": SimulatedJob(
            Request(iterations=rng.randint(5, 20), gpus=rng.choice([1, 2]), epoch=2),
            Exponential(rng.random(), 0.1),
            Costs(0.1, 0.1, 1.0),
        )
        for i in range(count)
    }


@pytest.mark.parametrize("name", ["fifo", "hermes", "round-robin"])
@pytest.mark.parametrize("seed", range(5))
def test_after_crashes_no_job_runs_twice_and_none_is_forgotten(name: str, seed: int) -> None:
    rng = Random(seed)
    work = jobs(8)
    engine = TrackedJob(work)
    journal: list[Event] = []
    crash_in = rng.randint(1, 30)

    def write(event: Event) -> None:
        nonlocal crash_in
        crash_in -= 1
        if crash_in or rng.random() < 0.5:  # it dies after the event is durable, or before
            journal.append(event)
        if not crash_in:
            raise Crash

    def restart() -> Scheduler:
        ledger = GpuLedger()
        tracker = Tracker(ledger)
        for event in journal:
            tracker.apply(event)
        policy = gpu_policy(name, **({"quantum_s": 3.0} if name == "round-robin" else {}))
        return Scheduler(tracker, ledger, policy, engine, write, seed)

    crashes = 0
    scheduler = restart()
    wake_s: float | None = None
    for _ in itertools.count():
        try:
            scheduler.take(StudyRegistered(engine.now, "s"))
            scheduler.take(StageRegistered(engine.now, "s", "r"))
            for key, job in work.items():
                scheduler.take(JobSubmitted(engine.now, "s", "r", split_key(key)[2], job.request))
            wake_s = scheduler.step(engine.now)
            devices_are_exclusive(scheduler)
            if not scheduler.ledger.submitted(scheduler.tracker):
                break
        except Crash:
            crashes += 1
            crash_in = rng.randint(1, 30)
            engine.crash_in = rng.randint(1, 12)
            scheduler = restart()
            continue
        engine.advance(min(engine.next_s(), wake_s if wake_s is not None else float("inf")))
    assert crashes > 3
    ended = scheduler.ledger.ended
    assert set(ended) == set(work)
    assert all(job.reports[-1].iteration == work[key].request.iterations for key, job in ended.items())
    assert engine.starts == dict.fromkeys(work, 1)
    generations = [event.generation for event in journal if isinstance(event, Allocated)]
    assert generations == sorted(set(generations))


def test_a_call_that_fails_is_repeated_and_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(SimulatedCluster):
        deaf = True

        def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
            if job.endswith("t0") and self.deaf:
                raise EngineError(f"{job}: its supervisor does not answer")
            super().start(job, placement, timeout_s)

    work = {key: SimulatedJob(Request(iterations=5), Exponential(0.1, 0.1)) for key in ("s/r/t0", "s/r/t1")}
    engine = Stubborn(NODES, work)
    ledger = GpuLedger()
    scheduler = Scheduler(Tracker(ledger), ledger, gpu_policy("fifo"), engine, lambda event: None)
    for event in (StudyRegistered(0.0, "s"), StageRegistered(0.0, "s", "r")):
        scheduler.take(event)
    for key, job in work.items():
        scheduler.take(JobSubmitted(0.0, "s", "r", split_key(key)[2], job.request))
    scheduler.step(0.0)
    assert set(engine.report()) == {"s/r/t1"}
    engine.deaf = False
    scheduler.step(0.1)
    assert set(engine.report()) == {"s/r/t0", "s/r/t1"}
    assert "start s/r/t0: s/r/t0: its supervisor does not answer" in caplog.text


def test_a_restarted_scheduler_goes_on_with_what_its_policy_remembered() -> None:
    engine = SimulatedCluster(NODES, {})
    journal: list[Event] = []
    ledger = GpuLedger()
    scheduler = Scheduler(Tracker(ledger), ledger, gpu_policy("hermes"), engine, journal.append)
    work = jobs(6)
    engine.jobs.update(work)
    for event in (StudyRegistered(0.0, "s"), StageRegistered(0.0, "s", "r")):
        scheduler.take(event)
    for key, job in work.items():
        scheduler.take(JobSubmitted(0.0, "s", "r", split_key(key)[2], job.request))
    scheduler.step(0.0)
    ledger = GpuLedger()
    tracker = Tracker(ledger)
    for past in journal:
        tracker.apply(past)
    count = len(journal)
    Scheduler(tracker, ledger, gpu_policy("hermes"), engine, journal.append).step(0.0)
    assert len(journal) == count


class Failing(Fifo):
    """Decides as `fifo` until it fails: by an exception, or by granting what there is not."""

    failure: ClassVar[str] = ""

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        if self.failure == "exception":
            raise ZeroDivisionError("a defect")
        if self.failure == "impossible":
            return state, {job.key: Grant.of({"n9": 1}) for job in jobs}, None
        return super().allocate(state, cluster, jobs, now, rng)


def begun(policy: GpuPolicy[Any], live: bool = True) -> tuple[Scheduler, SimulatedCluster, list[Event]]:
    """Return a scheduler that has started two jobs."""
    work = {key: SimulatedJob(Request(iterations=50), Exponential(0.1, 0.1)) for key in ("s/r/t0", "s/r/t1", "s/r/t2")}
    engine = SimulatedCluster(NODES, work)
    journal: list[Event] = []
    ledger = GpuLedger()
    scheduler = Scheduler(Tracker(ledger), ledger, policy, engine, journal.append, live=live)
    scheduler.take(StudyRegistered(0.0, "s"))
    scheduler.take(StageRegistered(0.0, "s", "r"))
    for name in ("t0", "t1"):
        scheduler.take(JobSubmitted(0.0, "s", "r", name, work[f"s/r/{name}"].request))
    scheduler.step(0.0)
    assert set(ledger.granted) == {"s/r/t0", "s/r/t1"}
    return scheduler, engine, journal


@pytest.mark.parametrize("failure", ["exception", "impossible"])
def test_a_policy_that_fails_leaves_its_last_decision_in_force(
    failure: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, engine, journal = begun(Failing())
    granted = dict(scheduler.ledger.granted)
    monkeypatch.setattr(Failing, "failure", failure)
    scheduler.take(JobSubmitted(1.0, "s", "r", "t2", Request(iterations=50)))
    assert scheduler.step(1.0) == 1.0 + RETRY_S
    assert scheduler.ledger.granted == granted
    assert {key: one.state for key, one in engine.report().items()} == dict.fromkeys(granted, RunState.RUNNING)
    assert "policy fifo failed, the old decision stays in force" in caplog.text
    scheduler.take(JobEnded(2.0, "s/r/t0", JobStatus.KILLED))
    scheduler.step(2.0)
    assert set(engine.report()) == {"s/r/t1"}, "what has ended is stopped all the same"
    monkeypatch.setattr(Failing, "failure", "")
    scheduler.take(NodesSeen(3.0, (*NODES, Node("n2", 1))))
    scheduler.step(3.0)
    assert set(scheduler.ledger.granted) == {"s/r/t1", "s/r/t2"}
    assert [event.generation for event in journal if isinstance(event, Allocated)] == [1, 2]


def test_a_simulation_shows_a_policys_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, _, _ = begun(Failing(), live=False)
    monkeypatch.setattr(Failing, "failure", "exception")
    scheduler.take(JobSubmitted(1.0, "s", "r", "t2", Request(iterations=50)))
    with pytest.raises(ZeroDivisionError, match="a defect"):
        scheduler.step(1.0)


def test_a_state_that_cannot_be_read_leaves_the_last_decision_in_force(caplog: pytest.LogCaptureFixture) -> None:
    scheduler, engine, journal = begun(gpu_policy("hermes"))
    last = scheduler.ledger.decision
    assert last is not None
    journal.append(replace(last, generation=last.generation + 1, state={"nodes": 7, "written": "by another version"}))
    ledger = GpuLedger()
    tracker = Tracker(ledger)
    for event in journal:
        tracker.apply(event)
    again = Scheduler(tracker, ledger, gpu_policy("hermes"), engine, journal.append)
    assert "policy hermes cannot read what it remembered and starts afresh" in caplog.text
    assert again.ledger.granted == scheduler.ledger.granted
    again.step(1.0)
    assert set(again.ledger.granted) == {"s/r/t0", "s/r/t1"}


def test_a_job_that_runs_and_ends_within_a_step_has_been_served() -> None:
    class Quick(SimulatedCluster):
        def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
            super().start(job, placement, timeout_s)
            self.advance(self.next_s())

    engine = Quick(NODES, {"s/r/t0": SimulatedJob(Request(iterations=5, epoch=5), Exponential(0.1, 0.1))})
    ledger = GpuLedger()
    scheduler = Scheduler(Tracker(ledger), ledger, gpu_policy("fifo"), engine, lambda event: None)
    for event in (StudyRegistered(0.0, "s"), StageRegistered(0.0, "s", "r")):
        scheduler.take(event)
    scheduler.take(JobSubmitted(0.0, "s", "r", "t0", engine.jobs["s/r/t0"].request))
    scheduler.step(0.0)
    assert ledger.ended["s/r/t0"].service_s == engine.now > 0
