"""A snapshot of what the GPU level knows, taken anywhere in a search, stands for the journal until then."""

import json
import math
from random import Random

import pytest

from beamer.engines.simulated import Outcome, SimulatedCluster, SimulatedJob
from beamer.gpu.decider import by_policy
from beamer.gpu.driver import SearchDriver
from beamer.gpu.events import ReportRefused, RunFailed
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Costs, Job, Node, Request
from beamer.gpu.policies import gpu_policy
from beamer.gpu.tuners import HalvingTuner
from beamer.studies.events import Event, StudyRegistered
from beamer.studies.model import Profile, Rung
from beamer.studies.tracker import Tracker
from beamer.testing.gpu_policies import Exponential

RUNGS = (Rung("rung0", 6, 5), Rung("rung1", 3, 10), Rung("rung2", 1, 20))


class Diverging(Exponential):
    """Overflows after some iterations."""

    def outcome(self, iteration: float) -> Outcome:
        return Outcome(math.inf) if iteration > 3 else super().outcome(iteration)


def searched(policy: str) -> list[Event]:
    """Return the events of a search in which runs fail, a report is refused and a loss overflows."""
    request = Request(20, 2, min_gpus=1, max_gpus=4, batch_size=32, max_batch_size=64, traffic=Profile(1000, "ring", 0.5))
    jobs = {
        f"s/t{i}": SimulatedJob(request, (Diverging if i == 2 else Exponential)(0.1 * i, 0.05), Costs(0.1, 0.1, 0.5))
        for i in range(6)
    }
    written: list[Event] = []
    driver: SearchDriver

    def target(key: str) -> int:
        job = driver.ledger.job(key)
        assert job
        return job.request.iterations

    engine = SimulatedCluster((Node("n0", 4), Node("n1", 2)), jobs, target)
    driver = SearchDriver(
        by_policy(gpu_policy(policy), live=False), engine, HalvingTuner("s", RUNGS), write=written.append
    )  # fmt: skip
    driver.take(StudyRegistered(0.0, "s", rungs=RUNGS))
    for key, job in jobs.items():
        driver.submit("s", key.removeprefix("s/"), job.request, 0.0)
    wake_s: float | None = 0.0
    for step in range(500):
        wake_s = driver.step(engine.now)
        if step == 9:
            driver.take(RunFailed(engine.now, "s/t1", 1, "it crashed"))
            driver.take(ReportRefused(engine.now, "s/t3", "a number"))
        if driver.tuner.done:
            return written
        engine.advance(min(engine.next_s(), math.inf if wake_s is None else max(wake_s, engine.now)))
    raise AssertionError("the search does not end")


def new() -> Tracker:
    return Tracker(GpuLedger())


def submitted(tracker: Tracker) -> tuple[Job, ...]:
    (ledger,) = tracker.ledgers
    assert isinstance(ledger, GpuLedger)
    return ledger.submitted(tracker)


@pytest.mark.parametrize("policy", ["fifo", "elastic", "hermes", "ones"])
def test_a_snapshot_stands_for_the_journal_until_then(policy: str) -> None:
    events = searched(policy)
    kinds = {type(event).__name__ for event in events}
    assert {"Allocated", "RunFailed", "ReportRefused", "RunFinished", "TrialEnded", "TrialReported"} <= kinds
    whole = new()
    for event in events:
        whole.apply(event)
    for cut in Random(0).sample(range(len(events) + 1), 25):
        before = new()
        for event in events[:cut]:
            before.apply(event)
        restored = new()
        restored.restore(json.loads(json.dumps(before.state())))
        assert restored == before
        assert submitted(restored) == submitted(before)
        for event in events[cut:]:
            assert restored.check(event)
            restored.apply(event)
        assert restored == whole


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cluster": 7}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        GpuLedger().restore(text)
