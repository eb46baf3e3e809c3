"""Every kind of search, told through the client as its tuner tells it: nothing is refused, every class follows its trial."""

import logging
import random
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from beamer.client import RUN_VARIABLE, Client, Rung, StudyHandle, TrialHandle
from beamer.studies.model import StageStatus, StudyStatus, TrialStatus, split_key
from controller.runtime import Runtime
from tests.support.served_controller import PATIENCE_S, Served, served
from topologies.single import build

FABRIC = build(hosts=8)
HOSTS = [host.name for host in FABRIC.hosts]


class Tuning:
    """A search as its tuner sees it: what it has told the controller, and what it expects of every trial."""

    def __init__(self, beamer: Served, client: Client, study: StudyHandle) -> None:
        self.beamer = beamer
        self.client = client
        self.study = study
        self.expected: dict[str, TrialStatus] = {}
        self._trials: dict[str, TrialHandle] = {}
        self._done: dict[str, int] = {}

    def trial(self, name: str, budget: int | None = None) -> TrialHandle:
        """Register a trial."""
        self._trials[name] = self.study.trial(name, budget)
        self.expected[name] = TrialStatus.WAITING
        self._done[name] = 0
        return self._trials[name]

    def start(self, name: str, first: int = 0, workers: int = 2, sync_bytes: int | None = 1_000_000) -> None:
        """Let a trial run on some hosts, wherever it ran before."""
        self._trials[name].start([HOSTS[(first + i) % len(HOSTS)] for i in range(workers)], sync_bytes)
        self.expected[name] = TrialStatus.RUNNING

    def train(self, name: str, step: int) -> None:
        """Let a trial report every step up to one."""
        for done in range(self._done[name] + 1, step + 1):
            self._trials[name].progress(done, loss=loss(name, done))
        self._done[name] = max(self._done[name], step)

    def pause(self, name: str) -> None:
        self._trials[name].pause()
        self.expected[name] = TrialStatus.PAUSED

    def end(self, name: str, status: TrialStatus) -> None:
        tell = {
            TrialStatus.FINISHED: TrialHandle.finish,
            TrialStatus.KILLED: TrialHandle.kill,
            TrialStatus.FAILED: TrialHandle.fail,
        }
        tell[status](self._trials[name])
        self.expected[name] = status

    def check(self) -> None:
        """Check that the controller knows of every trial what the tuner told, and has classes for those that run alone."""
        assert self.client.flush(PATIENCE_S)
        trials = self.beamer.ask(lambda runtime: dict(runtime.tracker.studies[self.study.name].trials))
        assert {name: trial.status for name, trial in trials.items()} == self.expected
        assert {name: trial.done for name, trial in trials.items()} == self._done
        running = {f"{self.study.name}/{name}" for name, status in self.expected.items() if status is TrialStatus.RUNNING}
        assert self.beamer.until(lambda runtime: is_decided(runtime) and runtime.plan.jobs.keys() == running)

    def check_order(self, first: Collection[str], then: Collection[str]) -> None:
        """Check that the classes of some trials come to be more urgent than those of others."""

        def is_kept(runtime: Runtime) -> bool:
            klass = {split_key(key)[1]: job.klass for key, job in runtime.plan.jobs.items()}
            return all(klass[one] < klass[other] for one in first for other in then)

        assert self.beamer.until(is_kept)

    def stages(self) -> dict[str, StageStatus]:
        stages = self.beamer.ask(lambda runtime: dict(runtime.tracker.studies[self.study.name].stages))
        return {name: stage.status for name, stage in stages.items()}

    def over(self) -> None:
        """End the search and check that nothing of it is left."""
        self.study.end()
        for name, status in self.expected.items():
            if not status.is_finished:
                self.expected[name] = TrialStatus.KILLED
        self.check()
        study = self.beamer.ask(lambda runtime: runtime.tracker.studies[self.study.name])
        assert study.status is StudyStatus.ENDED
        assert set(self.stages().values()) <= {StageStatus.DONE}
        assert study.search_s is not None


def is_decided(runtime: Runtime) -> bool:
    """Return whether no decision is due: one that is made while a trial ends leaves it out of the plan, and is made again."""
    planner = runtime._planner
    return not planner._busy.locked() and planner._deciding._due is None


def loss(name: str, step: int) -> float:
    return random.Random(name).uniform(1.0, 2.0) / step


Begin = Callable[..., Tuning]


@pytest.fixture
def begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[Begin]:
    """Return what begins a search; at its end nothing has been refused, nobody was warned."""
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    with served(FABRIC, tmp_path / "journal.db", "beamer") as beamer, Client(beamer.url, timeout_s=PATIENCE_S) as client:

        def start(rungs: tuple[Rung, ...] = (), barriers: bool = True) -> Tuning:
            return Tuning(beamer, client, client.study("search", rungs=rungs, barriers=barriers))

        yield start
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    logged = capfd.readouterr().out
    assert "switch connected" in logged, "nothing was read"
    assert [line for line in logged.splitlines() if "[warning" in line or "[error" in line] == []


def test_synchronous_halving(begin: Begin) -> None:
    rungs = (Rung("rung0", 4, 4), Rung("rung1", 2, 8), Rung("rung2", 1, 16))
    tuning = begin(rungs)
    _halving(tuning, rungs, [f"t{i}" for i in range(4)])
    tuning.over()


def test_a_stage_goes_on_without_a_trial_that_its_search_keeps_for_later(begin: Begin) -> None:
    tuning = begin()
    with tuning.study.stage("rung0") as stage:
        for i, name in enumerate(("quick", "slow")):
            tuning.trial(name)
            stage.add(name, 4)
            tuning.start(name, first=2 * i)
    tuning.train("quick", 4)
    tuning.check()
    assert tuning.stages() == {"rung0": StageStatus.SEALED}
    stage.remove("slow")
    tuning.check()
    assert tuning.stages() == {"rung0": StageStatus.DONE}
    tuning.over()


def _halving(tuning: Tuning, rungs: tuple[Rung, ...], names: list[str]) -> None:
    """Run trials through rungs: all pause at the end of a rung, the best go on, the others are killed."""
    for name in names:
        tuning.trial(name, budget=rungs[-1].step)
    for rung in rungs:
        with tuning.study.stage(rung.name) as stage:
            for name in names:
                stage.add(name, rung.step)
            for i, name in enumerate(names):
                tuning.start(name, first=2 * i)
        tuning.check()
        assert tuning.stages()[rung.name] is StageStatus.SEALED
        for name in names:
            tuning.train(name, rung.step)
            tuning.pause(name)
            tuning.check()
        assert stage.wait(PATIENCE_S)
        ranked = sorted(names, key=lambda name: loss(name, rung.step))
        keep = ranked[: max(len(names) // 2, 1)]
        for name in set(names) - set(keep):
            tuning.end(name, TrialStatus.KILLED)
        names = keep
        tuning.check()
    tuning.end(names[0], TrialStatus.FINISHED)
    tuning.check()


def test_hyperband(begin: Begin) -> None:
    brackets = (
        (Rung("b0-rung0", 4, 2), Rung("b0-rung1", 2, 4)),
        (Rung("b1-rung0", 2, 4), Rung("b1-rung1", 1, 8)),
    )
    tuning = begin(tuple(rung for bracket in brackets for rung in bracket))
    for number, bracket in enumerate(brackets):
        _halving(tuning, bracket, [f"b{number}-t{i}" for i in range(bracket[0].trials)])
    tuning.over()


def test_asynchronous_halving(begin: Begin) -> None:
    rungs = (Rung("rung0", 0, 2), Rung("rung1", 0, 4), Rung("rung2", 0, 8))
    tuning = begin(rungs, barriers=False)
    trials: dict[str, TrialHandle] = {}
    reached: list[list[str]] = [[] for _ in rungs]
    promoted: set[tuple[str, int]] = set()
    fresh = iter(f"t{i}" for i in range(9))
    free = list(range(0, len(HOSTS), 2))
    runs: dict[str, tuple[int, int]] = {}  # rung and first host, by trial
    while True:
        while free:
            nxt = _promotable(reached, promoted) or next(((name, 0) for name in fresh), None)
            if nxt is None:
                break
            name, rung = nxt
            if name not in trials:
                trials[name] = tuning.trial(name, budget=rungs[-1].step)
            trials[name].milestone(rungs[rung].step)
            runs[name] = rung, free.pop()
            tuning.start(name, first=runs[name][1])
        tuning.check()
        promoted_run = {name for name, (rung, _) in runs.items() if rung}
        tuning.check_order(promoted_run, runs.keys() - promoted_run)
        if not runs:
            break
        name = min(runs, key=lambda running: loss(running, 1))
        rung, host = runs.pop(name)
        free.append(host)
        tuning.train(name, rungs[rung].step)
        reached[rung].append(name)
        if rung + 1 == len(rungs):
            tuning.end(name, TrialStatus.FINISHED)
        else:
            tuning.pause(name)
        tuning.check()
    assert reached[-1], "none came to the top"
    top = tuning.beamer.ask(lambda runtime: runtime.tracker.trials[f"search/{reached[-1][0]}"])
    assert [target.step for target in top.targets] == [2, 4, 8]
    assert all(target.time_s is not None for target in top.targets)
    tuning.over()


def _promotable(reached: list[list[str]], promoted: set[tuple[str, int]]) -> tuple[str, int] | None:
    for rung in reversed(range(len(reached) - 1)):
        best = sorted(reached[rung], key=lambda name: loss(name, 1))[: len(reached[rung]) // 2]
        for name in best:
            if (name, rung) not in promoted:
                promoted.add((name, rung))
                return name, rung + 1
    return None


def test_population_based_training_with_moved_and_resized_trials(begin: Begin) -> None:
    tuning = begin()
    names = [f"t{i}" for i in range(4)]
    for i, name in enumerate(names):
        tuning.trial(name, budget=12)
        tuning.start(name, first=2 * i)
    for generation in range(3):
        step = 4 * (generation + 1)
        with tuning.study.stage(f"generation{generation}") as stage:
            for name in names:
                stage.add(name, step)
        for name in names:
            tuning.train(name, step)
            tuning.check()
        assert stage.wait(PATIENCE_S)
        # The worst goes on from the best one's weights, elsewhere; the best is given more hosts, and sends more.
        tuning.start(names[-1], first=generation)
        tuning.start(names[0], first=generation, workers=2 + generation, sync_bytes=2_000_000 * (generation + 1))
        tuning.start(names[1], first=1, workers=3, sync_bytes=None)
        tuning.check()
    attempts = tuning.beamer.ask(lambda runtime: len(runtime.tracker.trials["search/t0"].attempts))
    assert attempts == 4
    for name in names:
        tuning.end(name, TrialStatus.FINISHED)
    tuning.check()
    tuning.over()


def test_median_stopping(begin: Begin) -> None:
    tuning = begin(barriers=False)
    names = [f"t{i}" for i in range(4)]
    for i, name in enumerate(names):
        tuning.trial(name, budget=9)
        tuning.start(name, first=2 * i)
    for step in (3, 6):
        for name in names:
            tuning.train(name, step)
        tuning.check()
        median = sorted(loss(name, step) for name in names)[len(names) // 2]
        for name in [name for name in names if loss(name, step) > median]:
            tuning.end(name, TrialStatus.KILLED)
            names.remove(name)
        tuning.check()
    for name in names:
        tuning.train(name, 9)
        tuning.end(name, TrialStatus.FINISHED)
        tuning.check()
    assert TrialStatus.KILLED in tuning.expected.values()
    tuning.over()


def test_random_search(begin: Begin) -> None:
    tuning = begin(barriers=False)
    for i in range(6):
        name = f"t{i}"
        tuning.trial(name, budget=3 if i % 2 else None)
        tuning.start(name, first=i)
        tuning.train(name, 3)
        tuning.check()
        tuning.end(name, TrialStatus.FAILED if i == 3 else TrialStatus.FINISHED)
        tuning.check()
    tuning.trial("never-started")
    tuning.over()
