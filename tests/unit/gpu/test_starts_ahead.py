"""Which jobs the scheduler has started ahead, on an engine that records it."""

from collections.abc import Mapping

import pytest

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.gpu.decider import PolicyDecider
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.events import GpusRequested
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Costs, Node, Request
from beamer.gpu.policies import gpu_policy
from beamer.gpu.scheduler import AHEAD, AHEAD_EVERY_S, Scheduler
from beamer.studies.events import StudyRegistered, TrialEnded, TrialRegistered
from beamer.studies.model import TrialStatus, split_key
from beamer.studies.tracker import Tracker
from beamer.testing.gpu_policies import Exponential

REQUEST = Request(iterations=1000)


class Preparing(SimulatedCluster):
    """An engine whose jobs are ready as soon as they are started ahead. room: how many more may be."""

    prepares = True

    def __init__(self, jobs: Mapping[str, SimulatedJob], room: int, gpus: int) -> None:
        super().__init__((Node("n", gpus),), dict(jobs))
        self.room = room
        self.ahead: dict[str, Placement] = {}
        self.asked: list[str] = []

    def may_prepare(self, placement: Placement) -> bool:
        return self.room > 0

    def prepare(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        self.room -= 1
        self.ahead[job] = placement
        self.asked.append(job)

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        self.ahead.pop(job, None)
        super().start(job, placement, timeout_s)

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        self.ahead.pop(job, None)
        super().stop(job, timeout_s)

    def report(self) -> Mapping[str, Observed]:
        return {**super().report(), **{key: Observed(RunState.PREPARED, placement) for key, placement in self.ahead.items()}}


def on(index: int) -> Placement:
    return Placement((("n", index),))


def scheduled(
    count: int, room: int, policy: str = "fifo", looks_ahead: bool = True, gpus: int = 1
) -> tuple[Scheduler, Preparing]:
    """Return a scheduler of so many jobs that want the GPUs of an engine, one each."""
    keys = [f"s/t{number}" for number in range(count)]
    engine = Preparing({key: SimulatedJob(REQUEST, Exponential(0.5, 0.1), Costs(0.0, 0.0, 1.0)) for key in keys}, room, gpus)
    ledger = GpuLedger()
    tracker = Tracker(ledger)
    decider = PolicyDecider(tracker, ledger, gpu_policy(policy))
    decider.looks_ahead = looks_ahead
    scheduler = Scheduler(tracker, ledger, decider, engine, lambda event: None)
    scheduler.take(StudyRegistered(0.0, "s"))
    for key in keys:
        scheduler.take(TrialRegistered(0.0, *split_key(key)))
        scheduler.take(GpusRequested(0.0, key, REQUEST))
    return scheduler, engine


def steps(scheduler: Scheduler, engine: Preparing, count: int) -> None:
    for _ in range(count):
        engine.advance(engine.now + AHEAD_EVERY_S)
        scheduler.step(engine.now)


def test_those_that_come_next_are_started_ahead_in_the_policys_order() -> None:
    scheduler, engine = scheduled(5, room=3)
    steps(scheduler, engine, 10)
    assert engine.asked == ["s/t1", "s/t2", "s/t3"]
    assert engine.ahead == dict.fromkeys(engine.asked, on(0))
    engine.room = 1
    scheduler.take(TrialEnded(engine.now, "s/t0", TrialStatus.KILLED))
    steps(scheduler, engine, 3)
    assert engine.report()["s/t1"].state is RunState.RUNNING
    assert engine.asked[3:] == ["s/t4"]


def test_a_job_is_granted_the_gpu_that_it_was_started_for_where_that_is_free() -> None:
    """Two GPUs become free, and the jobs that come next were started for them the other way round."""
    scheduler, engine = scheduled(4, room=2, gpus=2)
    steps(scheduler, engine, 4)
    assert engine.asked == ["s/t2", "s/t3"]
    engine.ahead = {"s/t2": on(1), "s/t3": on(0)}
    for key in ("s/t0", "s/t1"):
        scheduler.take(TrialEnded(engine.now, key, TrialStatus.KILLED))
    steps(scheduler, engine, 2)
    assert {key: one.placement for key, one in engine.report().items()} == {"s/t2": on(1), "s/t3": on(0)}


def test_nothing_is_started_ahead_without_room_or_where_who_comes_next_is_not_known() -> None:
    for scheduler, engine in (scheduled(5, room=0), scheduled(5, room=9, looks_ahead=False)):
        steps(scheduler, engine, 10)
        assert engine.asked == []


def test_no_more_are_started_ahead_than_a_few_for_each_gpu() -> None:
    scheduler, engine = scheduled(AHEAD + 5, room=1000)
    steps(scheduler, engine, 3 * AHEAD)
    assert len(engine.asked) == AHEAD


def test_who_is_granted_a_gpu_waits_for_no_other_that_is_ready() -> None:
    """`round-robin` gives the GPU to the next one, which is ready, and the one before is suspended at once."""
    scheduler, engine = scheduled(2, room=1, policy="round-robin")
    steps(scheduler, engine, 2)
    assert engine.ahead.keys() == {"s/t1"}
    while engine.ahead:
        steps(scheduler, engine, 10)
        assert engine.now < 10_000
    states = {key: one.state for key, one in engine.report().items()}
    assert states == {"s/t0": RunState.SUSPENDED, "s/t1": RunState.RUNNING}


@pytest.mark.parametrize("policy", ["hermes", "convergence", "ones", "optimus", "slaq", "tiresias"])
def test_asking_who_comes_next_changes_no_decision(policy: str) -> None:
    """A search with an engine that never has room decides as one on an engine that starts nothing ahead."""
    found = []
    for looks_ahead in (True, False):
        scheduler, engine = scheduled(4, room=0, policy=policy, looks_ahead=looks_ahead)
        decided = []
        for _ in range(60):
            steps(scheduler, engine, 4)
            decided.append(dict(scheduler.ledger.granted))
        found.append(decided)
    assert found[0] == found[1]
