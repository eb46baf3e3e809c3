"""The GPU scheduler: what it decided is carried out, once, whatever dies in between."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest

from beamer.decision.core import RETRY_S
from beamer.decision.policy import Stateless
from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.errors import EngineError
from beamer.gpu.decider import PolicyDecider
from beamer.gpu.engine import Engine, Placement, RunState
from beamer.gpu.events import Allocated, GpusRequested, NodesSeen, RunFinished
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Allocation, Cluster, Costs, Grant, Job, Node, Request
from beamer.gpu.policies import gpu_policy
from beamer.gpu.policies.fifo import Fifo
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.scheduler import Scheduler
from beamer.studies.events import Event, StageRegistered, StudyRegistered, TargetSet, TrialEnded, TrialRegistered
from beamer.studies.model import TrialStatus, split_key
from beamer.studies.tracker import Tracker
from beamer.testing.gpu_policies import Exponential

NODES = (Node("n0", 2), Node("n1", 2))


def devices_are_exclusive(scheduler: Scheduler) -> None:
    """Check that no GPU computes for two jobs, as the engine of `scheduler` sees it."""
    users = Counter(
        device
        for seen in scheduler.engine.report().values()
        if seen.placement and seen.state.is_computing
        for device in seen.placement.devices
    )
    assert [device for device, count in users.items() if count > 1] == []


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


def scheduled(
    tracker: Tracker,
    ledger: GpuLedger,
    policy: GpuPolicy[Any],
    engine: Engine,
    write: Callable[[Event], None],
    seed: int = 0,
    live: bool = True,
) -> Scheduler:
    return Scheduler(tracker, ledger, PolicyDecider(tracker, ledger, policy, seed, live), engine, write)


def submit(scheduler: Scheduler, key: str, request: Request) -> None:
    """Have a trial ask for GPUs, with its study if that is its first."""
    now = scheduler.tracker.now_s
    scheduler.take(StudyRegistered(now, "s"))
    scheduler.take(TrialRegistered(now, *split_key(key)))
    scheduler.take(GpusRequested(now, key, request))


def jobs(count: int) -> dict[str, SimulatedJob]:
    rng = Random(1)
    return {
        f"s/t{i}": SimulatedJob(
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
        return scheduled(tracker, ledger, policy, engine, write, seed)

    crashes = 0
    scheduler = restart()
    wake_s: float | None = None
    for _ in itertools.count():
        try:
            for key, job in work.items():
                submit(scheduler, key, job.request)
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

    work = {key: SimulatedJob(Request(iterations=5), Exponential(0.1, 0.1)) for key in ("s/t0", "s/t1")}
    engine = Stubborn(NODES, work)
    ledger = GpuLedger()
    scheduler = scheduled(Tracker(ledger), ledger, gpu_policy("fifo"), engine, lambda event: None)
    for key, job in work.items():
        submit(scheduler, key, job.request)
    scheduler.step(0.0)
    assert set(engine.report()) == {"s/t1"}
    engine.deaf = False
    scheduler.step(0.1)
    assert set(engine.report()) == {"s/t0", "s/t1"}
    assert "start s/t0: s/t0: its supervisor does not answer" in caplog.text


def test_a_restarted_scheduler_goes_on_with_what_its_policy_remembered() -> None:
    engine = SimulatedCluster(NODES, {})
    journal: list[Event] = []
    ledger = GpuLedger()
    scheduler = scheduled(Tracker(ledger), ledger, gpu_policy("hermes"), engine, journal.append)
    work = jobs(6)
    engine.jobs.update(work)
    for key, job in work.items():
        submit(scheduler, key, job.request)
    scheduler.step(0.0)
    ledger = GpuLedger()
    tracker = Tracker(ledger)
    for past in journal:
        tracker.apply(past)
    count = len(journal)
    scheduled(tracker, ledger, gpu_policy("hermes"), engine, journal.append).step(0.0)
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
    work = {key: SimulatedJob(Request(iterations=50), Exponential(0.1, 0.1)) for key in ("s/t0", "s/t1", "s/t2")}
    engine = SimulatedCluster(NODES, work)
    journal: list[Event] = []
    ledger = GpuLedger()
    scheduler = scheduled(Tracker(ledger), ledger, policy, engine, journal.append, live=live)
    for key in ("s/t0", "s/t1"):
        submit(scheduler, key, work[key].request)
    scheduler.step(0.0)
    assert set(ledger.granted) == {"s/t0", "s/t1"}
    return scheduler, engine, journal


@pytest.mark.parametrize("failure", ["exception", "impossible"])
def test_a_policy_that_fails_leaves_its_last_decision_in_force(
    failure: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, engine, journal = begun(Failing())
    granted = dict(scheduler.ledger.granted)
    monkeypatch.setattr(Failing, "failure", failure)
    submit(scheduler, "s/t2", Request(iterations=50))
    assert scheduler.step(1.0) == 1.0 + RETRY_S
    assert scheduler.ledger.granted == granted
    assert {key: one.state for key, one in engine.report().items()} == dict.fromkeys(granted, RunState.RUNNING)
    assert "policy fifo failed, the old decision stays in force" in caplog.text
    scheduler.take(TrialEnded(2.0, "s/t0", TrialStatus.KILLED))
    scheduler.step(2.0)
    assert set(engine.report()) == {"s/t1"}, "what has ended is stopped all the same"
    monkeypatch.setattr(Failing, "failure", "")
    scheduler.take(NodesSeen(3.0, (*NODES, Node("n2", 1))))
    scheduler.step(3.0)
    assert set(scheduler.ledger.granted) == {"s/t1", "s/t2"}
    assert [event.generation for event in journal if isinstance(event, Allocated)] == [1, 2]


def test_a_simulation_shows_a_policys_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, _, _ = begun(Failing(), live=False)
    monkeypatch.setattr(Failing, "failure", "exception")
    submit(scheduler, "s/t2", Request(iterations=50))
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
    again = scheduled(tracker, ledger, gpu_policy("hermes"), engine, journal.append)
    assert "policy hermes cannot read what it remembered and starts afresh" in caplog.text
    assert again.ledger.granted == scheduler.ledger.granted
    again.step(1.0)
    assert set(again.ledger.granted) == {"s/t0", "s/t1"}


def test_a_job_that_runs_and_ends_within_a_step_has_been_served() -> None:
    class Quick(SimulatedCluster):
        def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
            super().start(job, placement, timeout_s)
            self.advance(self.next_s())

    engine = Quick(NODES, {"s/t0": SimulatedJob(Request(iterations=5, epoch=5), Exponential(0.1, 0.1))})
    ledger = GpuLedger()
    scheduler = scheduled(Tracker(ledger), ledger, gpu_policy("fifo"), engine, lambda event: None)
    submit(scheduler, "s/t0", engine.jobs["s/t0"].request)
    scheduler.step(0.0)
    assert ledger.ended["s/t0"].service_s == engine.now > 0


class DeafToStop(SimulatedCluster):
    """A cluster that cannot forget jobs for a while."""

    deaf = True

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        if self.deaf:
            raise EngineError(f"{job}: its supervisor does not answer")
        super().stop(job, timeout_s)


def test_a_run_that_ended_at_a_target_is_not_taken_for_one_to_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """Though the engine still shows it when the trial has been promoted and granted GPUs, to another scheduler, too."""
    journal: list[Event] = []
    ledger = GpuLedger()
    request = Request(iterations=20, epoch=5)
    engine = DeafToStop(
        NODES,
        {"s/t": SimulatedJob(request, Exponential(0.1, 0.1), Costs(restart_s=3.0))},
        lambda key: scheduler.ledger.submitted(scheduler.tracker)[0].request.iterations,
    )
    scheduler = scheduled(Tracker(ledger), ledger, gpu_policy("fifo"), engine, journal.append)
    submit(scheduler, "s/t", request)
    for event in (StageRegistered(0.0, "s", "r0"), TargetSet(0.0, "s/t", 10, "r0")):
        scheduler.take(event)
    scheduler.step(0.0)
    while scheduler.ledger.granted:
        engine.advance(engine.next_s())
        scheduler.step(engine.now)
    rested_s = engine.now
    for event in (StageRegistered(rested_s, "s", "r1"), TargetSet(rested_s, "s/t", 20, "r1")):
        scheduler.take(event)
    for _ in range(2):
        scheduler.step(rested_s)
        assert scheduler.ledger.granted
        assert engine.report()["s/t"].state is RunState.FINISHED
    ledger = GpuLedger()
    tracker = Tracker(ledger)
    for event in journal:
        tracker.apply(event)
    scheduler = scheduled(tracker, ledger, gpu_policy("fifo"), engine, journal.append)
    scheduler.step(rested_s)
    assert not ledger.ended
    engine.deaf = False
    scheduler.step(rested_s)
    while not ledger.ended:
        engine.advance(engine.next_s())
        scheduler.step(engine.now)
    assert [event.step for event in journal if isinstance(event, RunFinished)] == [10, 20]
    job = ledger.ended["s/t"]
    assert [report.iteration for report in job.reports] == [0, 5, 10, 15, 20]
    assert [report.service_s for report in job.reports] == sorted(report.service_s for report in job.reports)
    assert engine.now == rested_s + 3.0 + rested_s, "it continues from its checkpoint"
    trial = tracker.trial("s/t")
    assert (trial.status, len(trial.attempts), [target.reached_s for target in trial.targets]) == (
        TrialStatus.FINISHED, 2, [rested_s, engine.now],
    )  # fmt: skip


def test_a_clock_that_is_set_back_makes_nothing_happen_before_what_is_known() -> None:
    scheduler, engine, journal = begun(gpu_policy("fifo"))
    engine.advance(engine.next_s())
    scheduler.step(3600.0)
    scheduler.step(10.0)
    scheduler.take(TrialEnded(11.0, "s/t0", TrialStatus.KILLED))
    scheduler.step(12.0)
    scheduler.revoke(13.0)
    times = [event.at_s for event in journal]
    assert times == sorted(times)
    assert scheduler.ledger.ended["s/t0"].gpu_s == 3600.0
