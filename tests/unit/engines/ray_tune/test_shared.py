"""A search of Tune on nodes that it shares: exactly the GPUs that were granted, no process that waits for long, whose it is."""

from collections.abc import Callable, Mapping

import pytest

from beamer.engines.ray_tune.engine import HOLD_S
from beamer.engines.ray_tune.search import TuneSearch
from beamer.gpu.decider import Decider, Take, next_generation
from beamer.gpu.devices import Devices
from beamer.gpu.events import Allocated, RanksSeen
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Grant, Node, Request
from beamer.gpu.remote import OWN_RUN
from beamer.studies.events import Event, StudyRegistered, TrialEnded
from beamer.studies.model import Process, Rung, TrialStatus
from beamer.studies.tracker import Tracker
from tests.support.fake_tune import STEP_S, FakeTrial, FakeTune

NODES = (Node("h1", 2), Node("h2", 1))
RUNGS = (Rung("r0", 2, 2), Rung("r1", 1, 4))


class Granting(Decider):
    """Grants what a test says."""

    def __init__(self) -> None:
        self.devices: dict[str, Devices] = {}
        self.ledger = GpuLedger()

    def made(self, tracker: Tracker, ledger: GpuLedger) -> Decider:
        self.ledger = ledger
        return self

    @property
    def is_due(self) -> bool:
        return True

    def decide(self, now: float, take: Take) -> float | None:
        devices = {key: held for key, held in self.devices.items() if self.ledger.job(key) and self.wants(key)}
        if devices != {key: self.ledger.devices[key] for key in self.ledger.granted}:
            take(
                Allocated(
                    now, "test", next_generation(self.ledger), None, {key: grant(d) for key, d in devices.items()}, devices
                )
            )
        return None

    def wants(self, key: str) -> bool:
        job = self.ledger.job(key)
        return job is not None and (not job.reports or job.done < job.request.iterations)

    def revoke(self, now: float, take: Take) -> None:
        take(Allocated(now, "test", next_generation(self.ledger), None, {}, {}))


def grant(devices: Devices) -> Grant:
    return Grant(tuple((name, sum(node == name for node, _ in devices)) for name in dict.fromkeys(node for node, _ in devices)))


class KnownProcesses(FakeTune):
    """Trials whose processes are known: a number for each launch, where they run on one node."""

    def processes(self, trial: str) -> Mapping[str, Process] | None:
        one = self.trials[trial]
        is_there = one.placement and one.ready_s is not None and one.status == "RUNNING"
        return {one.placement.devices[0][0]: Process(100 + one.launches)} if is_there and one.placement else {}


class GrantedSearch:
    """A search whose GPUs a test grants."""

    def __init__(self, trials: str = "a", rungs: tuple[Rung, ...] = (), run: str = "run") -> None:
        self.journal: list[Event] = []
        self.granting, self.tune = Granting(), KnownProcesses(NODES)
        self.search = TuneSearch("s", self.granting.made, self.tune, rungs, write=self.journal.append, run=run)
        self.tune.on_loop, self.tune.on_result = self.turn, self.result
        for name in trials:
            self.tune.trials[name] = FakeTrial(lambda iteration: 1.0 / iteration)
            self.search.engine.add(name)
            self.search.submit(name, Request(50, max_gpus=2), 0.0)

    def turn(self) -> None:
        self.search.step(self.tune.now)
        self.search.engine.apply(self.tune.now)

    def result(self, trial, result):  # type: ignore[no-untyped-def]
        self.search.engine.record(trial, result, self.tune.now)
        self.search.step(self.tune.now)
        return self.search.engine.decide(trial)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(50):
            if holds():
                return
            self.tune.advance()
        raise AssertionError(self.tune.trials)


@pytest.mark.parametrize(("run", "launches"), [("run", 2), (OWN_RUN, 1)], ids=["shared", "alone"])
def test_another_gpu_of_the_same_node_needs_another_process(run: str, launches: int) -> None:
    one = GrantedSearch(run=run)
    one.granting.devices = {"s/a": (("h1", 0),)}
    one.until(lambda: one.tune.trials["a"].iteration >= 3)
    one.granting.devices = {"s/a": (("h1", 1),)}
    one.until(lambda: one.tune.trials["a"].iteration >= 9)
    assert one.tune.trials["a"].launches == launches
    assert one.tune.trials["a"].placement
    if run != OWN_RUN:
        assert one.tune.trials["a"].placement.devices == (("h1", 1),)
    assert next(event.run for event in one.journal if isinstance(event, StudyRegistered)) == run


@pytest.mark.parametrize(("run", "least_s", "most_s"), [("run", HOLD_S, HOLD_S + 3 * STEP_S), (OWN_RUN, 20.0, 20.0)])
def test_a_process_that_waits_for_a_verdict_leaves_after_a_while(run: str, least_s: float, most_s: float) -> None:
    one = GrantedSearch("ab", RUNGS, run)
    one.granting.devices = {"s/a": (("h1", 0),)}
    one.until(lambda: one.tune.trials["a"].iteration == RUNGS[0].step and one.tune.trials["a"].held)
    since = one.tune.now
    while one.tune.trials["a"].ready_s is not None and one.tune.now < since + 20.0:
        one.tune.advance()
    assert least_s <= one.tune.now - since <= most_s


def test_the_processes_of_a_trial_are_reported_and_that_they_are_gone() -> None:
    one = GrantedSearch("ab")
    one.granting.devices = {"s/a": (("h1", 0),)}
    one.until(lambda: one.tune.trials["a"].iteration >= 3)
    one.granting.devices = {"s/b": (("h1", 0),)}
    one.until(lambda: one.tune.trials["b"].iteration >= 3)
    seen = [(event.trial, dict(event.processes)) for event in one.journal if isinstance(event, RanksSeen)]
    assert seen == [("s/a", {"h1": Process(101)}), ("s/a", {}), ("s/b", {"h1": Process(101)})]


def test_a_search_that_is_ended_elsewhere_has_its_trials_stopped() -> None:
    one = GrantedSearch("ab")
    one.granting.devices = {"s/a": (("h1", 0),)}
    one.until(lambda: one.tune.trials["a"].iteration >= 2)
    one.search.kill(one.tune.now)
    one.until(lambda: all(trial.status == "TERMINATED" for trial in one.tune.trials.values()))
    ends = {event.trial: event.status for event in one.journal if isinstance(event, TrialEnded)}
    assert ends == {"s/a": TrialStatus.KILLED, "s/b": TrialStatus.KILLED}


def test_what_ran_before_has_no_gpus_when_an_experiment_begins_again() -> None:
    one = GrantedSearch()
    one.granting.devices = {"s/a": (("h1", 0),)}
    one.until(lambda: one.tune.trials["a"].iteration >= 2)
    again = TuneSearch("s", one.granting.made, one.tune, past=tuple(one.journal), run="run")
    assert again.ledger.granted
    again.revoke(one.tune.now)
    assert not again.ledger.granted
