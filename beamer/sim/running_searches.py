"""The searches of a simulated scenario: what each does when its trials reach their targets."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from beamer.network.job import JobSpec, profile
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.model import TrialStatus, trial_key
from beamer.studies.tracker import Tracker
from beamer.workloads.asynchronous import Arrivals, AsynchronousPlan
from beamer.workloads.scenario import StudyPlan


class TrialRunner(Protocol):
    """What runs the trials of a search."""

    @property
    def now_s(self) -> float:
        """The simulated time."""
        ...

    @property
    def tracker(self) -> Tracker:
        """What is known; for reading."""
        ...

    def record(self, event: Event) -> None:
        """Take in what has happened."""
        ...

    def run(self, search: "SimulatedSearch", work: Sequence[tuple[str, JobSpec]], after_s: float) -> None:
        """Let trials begin so many seconds from now to run as many iterations as their jobs say."""
        ...

    def stop(self, keys: Sequence[str]) -> None:
        """Stop trials where they are."""
        ...


class SimulatedSearch(ABC):
    """One search. name: of its study. is_over: whether it has ended."""

    def __init__(self, name: str, arrival_s: float, runner: TrialRunner, start_up_s: float) -> None:
        self.name = name
        self.arrival_s = arrival_s
        self.is_over = False
        self._runner = runner
        self._start_up_s = start_up_s

    @abstractmethod
    def begin(self) -> None:
        """Register the study and start its first trials."""

    @abstractmethod
    def arrived(self, keys: Sequence[str]) -> None:
        """React to trials that have reached their targets, all at this time."""

    def _record(self, event: Event) -> None:
        self._runner.record(event)

    @property
    def _now_s(self) -> float:
        return self._runner.now_s

    def _progressed(self, key: str, loss: float | None = None) -> int:
        """Record that a trial has reached its target; return the step."""
        target = self._runner.tracker.trials[key].target
        assert target is not None
        self._record(Progressed(self._now_s, key, target.step, loss))
        return target.step


class SynchronousSearch(SimulatedSearch):
    """Stages one after another, each with the trials that its plan names. after: name of the study that it follows."""

    def __init__(self, plan: StudyPlan, runner: TrialRunner, start_up_s: float) -> None:
        super().__init__(plan.name, plan.arrival_s, runner, start_up_s)
        self._plan = plan
        self._index = 0
        self._running: set[str] = set()

    def begin(self) -> None:
        """Register the study and begin its first stage."""
        self._record(StudyRegistered(self._now_s, self.name, weight=self._plan.weight, rungs=self._plan.rungs))
        self._begin_stage()

    def _begin_stage(self) -> None:
        """Register a stage, and start an attempt of each of its trials, which has the stage's name."""
        now_s, stage = self._now_s, self._plan.stages[self._index]
        self._record(StageRegistered(now_s, self.name, stage.name))
        work = [(trial_key(self.name, spec.name), spec) for spec in stage.jobs]
        for key, spec in work:
            self._record(TrialRegistered(now_s, self.name, spec.name))
            done = self._runner.tracker.trials[key].done
            self._record(TargetSet(now_s, key, done + spec.iterations, stage.name))
            self._record(AttemptStarted(now_s, key, stage.name, spec.workers, profile(spec)))
        self._record(StageSealed(now_s, self.name, stage.name))
        self._running = {key for key, _ in work}
        self._runner.run(self, work, self._start_up_s)

    def arrived(self, keys: Sequence[str]) -> None:
        """End the attempts, and the stage if enough of its trials have arrived: stop the others, begin what follows."""
        plan = self._plan.stages[self._index]
        for key in keys:
            self._progressed(key)
            self._record(AttemptEnded(self._now_s, key, plan.name))
        self._running -= set(keys)
        if len(plan.jobs) - len(self._running) < (plan.finish or len(plan.jobs)):
            return
        stopped = self._running
        self._runner.stop([key for spec in plan.jobs if (key := trial_key(self.name, spec.name)) in stopped])
        is_last = self._index + 1 == len(self._plan.stages)
        surviving = {spec.name for stage in self._plan.stages[self._index + 1 :] for spec in stage.jobs}
        for spec in plan.jobs:
            key = trial_key(self.name, spec.name)
            if spec.name not in surviving:
                status = TrialStatus.FINISHED if is_last and key not in stopped else TrialStatus.KILLED
                self._record(TrialEnded(self._now_s, key, status))
            elif key in stopped:
                self._record(AttemptEnded(self._now_s, key, plan.name))
                self._record(TargetDropped(self._now_s, key, plan.name))
        self._index += 1
        self.is_over = is_last
        if not is_last:
            self._begin_stage()


@dataclass(frozen=True)
class Completion:
    """A trial that has completed the top rung of its search, at a simulated time, with the loss that it reported there."""

    trial: str
    at_s: float
    loss: float


@dataclass(frozen=True)
class SearchResult:
    """A search without barriers, in seconds after the scenario's start. completions: of its top rung, in order of time."""

    study: str
    start_s: float
    end_s: float
    completions: tuple[Completion, ...]

    @property
    def search_s(self) -> float:
        """Seconds from its start to its end."""
        return self.end_s - self.start_s

    @property
    def first_s(self) -> float:
        """Seconds until the first trial had completed the top rung; infinite if none has."""
        return self.completions[0].at_s - self.start_s if self.completions else math.inf

    @property
    def best(self) -> Completion | None:
        """The trial of least loss among those that have completed the top rung."""
        return min(self.completions, key=lambda completion: completion.loss, default=None)

    @property
    def best_s(self) -> float:
        """Seconds until the best trial had completed the top rung; infinite if none has."""
        return math.inf if self.best is None else self.best.at_s - self.start_s

    def within_s(self, loss: float) -> float:
        """Return the seconds until a trial had completed the top rung with this loss or less; infinite if none has."""
        return next((done.at_s - self.start_s for done in self.completions if done.loss <= loss), math.inf)


class ReactingSearch(SimulatedSearch):
    """A search without barriers: a free slot runs what the plan's search says next.

    A trial that goes on in its own slot continues its attempt; one that was paused starts another, on its new slot's hosts.
    """

    def __init__(self, plan: AsynchronousPlan, runner: TrialRunner, start_up_s: float) -> None:
        super().__init__(plan.name, plan.arrival_s, runner, start_up_s)
        self._plan = plan
        self._known = Arrivals.of(len(plan.search.steps))
        self._free = list(range(len(plan.slots)))
        self._slot: dict[int, int] = {}  # the slot of each trial that runs
        self._rung: dict[int, int] = {}  # the rung that each trial runs to or has arrived at
        self._completions: list[Completion] = []

    def result(self) -> SearchResult:
        """Return what has become of it, once it is over."""
        study = self._runner.tracker.studies[self.name]
        return SearchResult(self.name, study.registered_s, study.ended_s or 0.0, tuple(self._completions))

    def begin(self) -> None:
        """Register the study and fill its slots."""
        search = self._plan.search
        self._record(
            StudyRegistered(self._now_s, self.name, weight=self._plan.weight, rungs=search.rungs, barriers=False)
        )  # fmt: skip
        self._fill({})

    def arrived(self, keys: Sequence[str]) -> None:
        """Take in the losses, then fill the slots that became free."""
        search, held = self._plan.search, {}
        for trial in (int(key.rpartition("t")[2]) for key in keys):
            rung, slot = self._rung[trial], self._slot.pop(trial)
            loss = self._plan.losses.loss(trial, search.steps[rung])
            self._known.losses[rung][trial] = loss
            self._progressed(self._key(trial), loss)
            held[trial] = slot
            self._free.append(slot)
            status = search.verdict(self._known, trial, rung)
            if status is TrialStatus.FINISHED:
                self._completions.append(Completion(f"t{trial}", self._now_s, loss))
            if status is not None:
                self._known.ended.add(trial)
                self._record(TrialEnded(self._now_s, self._key(trial), status))
        if search.completed is not None and len(self._completions) >= search.completed:
            self._end()
            return
        self._fill(held)
        if not self._slot:
            self._end()

    def _key(self, trial: int) -> str:
        return trial_key(self.name, f"t{trial}")

    def _fill(self, held: dict[int, int]) -> None:
        """Run what comes next in the free slots. held: the slot of each trial that has just arrived, its attempt not ended."""
        chosen: list[tuple[int, int]] = []
        while len(chosen) < len(self._free) and (following := self._plan.search.next(self._known)) is not None:
            trial, rung = following
            self._known.entered[rung].add(trial)
            self._rung[trial] = rung
            chosen.append(following)
        staying = {trial: held[trial] for trial, _ in chosen if trial in held}
        for slot in staying.values():
            self._free.remove(slot)
        for trial in held.keys() - staying.keys() - self._known.ended:
            self._record(AttemptEnded(self._now_s, self._key(trial), self._attempt(trial)))
        for trial, rung in chosen:
            self._start(trial, rung, staying.get(trial))

    def _attempt(self, trial: int) -> str:
        attempt = self._runner.tracker.trials[self._key(trial)].attempt
        assert attempt is not None
        return attempt.name

    def _start(self, trial: int, rung: int, slot: int | None) -> None:
        """Run a trial to a rung in the slot where it is, or in a free one."""
        now_s, key, steps = self._now_s, self._key(trial), self._plan.search.steps
        self._slot[trial] = self._free.pop(0) if slot is None else slot
        done = steps[rung - 1] if rung else 0
        spec = replace(self._plan.slots[self._slot[trial]], name=f"t{trial}", iterations=steps[rung] - done)
        if not rung:
            self._record(TrialRegistered(now_s, self.name, spec.name, steps[-1]))
        self._record(TargetSet(now_s, key, steps[rung]))
        if slot is None:
            self._record(AttemptStarted(now_s, key, f"rung{rung}", spec.workers, profile(spec)))
        self._runner.run(self, [(key, spec)], self._start_up_s if slot is None else 0.0)

    def _end(self) -> None:
        """End the search, and with it the trials that it has paused or still runs."""
        self._runner.stop([self._key(trial) for trial in self._slot])
        for trial in sorted(self._known.entered[0] - self._known.ended):
            self._record(TrialEnded(self._now_s, self._key(trial), TrialStatus.KILLED))
        self._record(StudyEnded(self._now_s, self.name))
        self.is_over = True
