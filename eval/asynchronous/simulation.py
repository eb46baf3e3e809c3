"""Searches without barriers in the simulator, beside the studies of a scenario: drawn from a seed, and run."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from beamer.network.allocation import Allocator
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec, profile
from beamer.network.policies import NetworkPolicy
from beamer.sim import Assumptions, SimResult
from beamer.sim.network import ScenarioRun, SimulatedSearch
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    StudyEnded,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.model import TrialStatus, Worker, trial_key
from beamer.workloads.models import MODELS
from beamer.workloads.placement import scattered
from beamer.workloads.scenario import Scenario
from eval.asynchronous.searches import Arrivals, AsynchronousSearch, LossCurves


@dataclass(frozen=True)
class AsynchronousPlan:
    """One search without barriers."""

    name: str
    """The study's name."""
    search: AsynchronousSearch
    """What it decides by."""
    slots: tuple[JobSpec, ...]
    """A job per slot, which every trial that runs there has, under its own name."""
    losses: LossCurves
    """The trials' losses."""
    weight: float = 1.0
    """Its weight in the objective."""
    arrival_s: float = 0.0
    """Seconds after the scenario's start."""


@dataclass(frozen=True)
class AsynchronousScenario(Scenario):
    """A scenario with searches without barriers beside its studies."""

    asynchronous: tuple[AsynchronousPlan, ...] = ()


@dataclass(frozen=True)
class Draws:
    """What the slots of searches are drawn from: models and numbers of workers, evenly.

    compute_ratio: how many times as long as its synchronisation alone a job computes.
    """

    models: tuple[str, ...]
    workers: tuple[int, ...]
    compute_ratio: float


def asynchronous_searches(
    fabric: Fabric, search: AsynchronousSearch, searches: int, slots: int, draws: Draws, seed: int
) -> tuple[AsynchronousPlan, ...]:
    """Return so many searches without barriers, all of which arrive at once, each with a job on random hosts for each slot.

    All policies are given the same slots and losses; which trials are promoted depends on when they arrive.
    """
    footprints = Footprints(fabric)
    load: Counter[str] = Counter()
    plans: list[AsynchronousPlan] = []
    for i in range(searches):
        rng = Random(f"{seed}/asynchronous{i}")
        model = MODELS[rng.choice(draws.models)]
        rng.random()  # The collective was drawn here before all of them had the same; committed figures rest on what follows.
        processes = rng.choice(draws.workers)
        jobs: list[JobSpec] = []
        for _ in range(slots):
            workers = tuple(Worker(rank, host) for rank, host in enumerate(scattered(fabric, processes, load, rng)))
            spec = JobSpec("slot", workers, 1, model.gradient_bytes)
            jobs.append(replace(spec, compute_s=draws.compute_ratio * footprints.of(spec, 0).gamma_s))
        name = f"asynchronous{i}-{model.name}"
        plans.append(AsynchronousPlan(name, search, tuple(jobs), LossCurves(f"{seed}/{name}")))
    return tuple(plans)


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


@dataclass(frozen=True)
class AsynchronousResult(SimResult):
    """A simulated run. searches: those without barriers, in the scenario's order."""

    searches: tuple[SearchResult, ...] = ()


def simulate(
    scenario: AsynchronousScenario,
    policy: str | NetworkPolicy[Any],
    assumptions: Assumptions,
    allocator: Allocator | None = None,
) -> AsynchronousResult:
    """Run a scenario with all of its searches, as `beamer.sim.simulate`."""
    run = ScenarioRun(scenario, policy, assumptions=assumptions, allocator=allocator)
    reacting = [ReactingSearch(plan, run, scenario.start_up_s) for plan in scenario.asynchronous]
    run.searches += reacting
    return AsynchronousResult(**vars(run.run_to_end()), searches=tuple(search.result() for search in reacting))


class ReactingSearch(SimulatedSearch):
    """A search without barriers: a free slot runs what the plan's search says next.

    A trial that goes on in its own slot continues its attempt; one that was paused starts another, on its new slot's hosts.
    """

    def __init__(self, plan: AsynchronousPlan, run: ScenarioRun, start_up_s: float) -> None:
        super().__init__(run, plan.name, plan.arrival_s)
        self._plan = plan
        self._start_up_s = start_up_s
        self._known = Arrivals.of(len(plan.search.steps))
        self._free = list(range(len(plan.slots)))
        self._slot: dict[int, int] = {}  # the slot of each trial that runs
        self._rung: dict[int, int] = {}  # the rung that each trial runs to or has arrived at
        self._completions: list[Completion] = []

    def result(self) -> SearchResult:
        """Return what has become of it, once it is over."""
        study = self._run.tracker.studies[self.name]
        return SearchResult(self.name, study.registered_s, study.ended_s or 0.0, tuple(self._completions))

    def begin(self) -> None:
        """Register the study and fill its slots."""
        search = self._plan.search
        self._run.record(
            StudyRegistered(self._run.now_s, self.name, weight=self._plan.weight, rungs=search.rungs, barriers=False)
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
                self._completions.append(Completion(f"t{trial}", self._run.now_s, loss))
            if status is not None:
                self._known.ended.add(trial)
                self._run.record(TrialEnded(self._run.now_s, self._key(trial), status))
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
            self._run.record(AttemptEnded(self._run.now_s, self._key(trial), self._attempt(trial)))
        for trial, rung in chosen:
            self._start(trial, rung, staying.get(trial))

    def _attempt(self, trial: int) -> str:
        attempt = self._run.tracker.trials[self._key(trial)].attempt
        assert attempt is not None
        return attempt.name

    def _start(self, trial: int, rung: int, slot: int | None) -> None:
        """Run a trial to a rung in the slot where it is, or in a free one."""
        now_s, key, steps = self._run.now_s, self._key(trial), self._plan.search.steps
        self._slot[trial] = self._free.pop(0) if slot is None else slot
        done = steps[rung - 1] if rung else 0
        spec = replace(self._plan.slots[self._slot[trial]], name=f"t{trial}", iterations=steps[rung] - done)
        if not rung:
            self._run.record(TrialRegistered(now_s, self.name, spec.name, steps[-1]))
        self._run.record(TargetSet(now_s, key, steps[rung]))
        if slot is None:
            self._run.record(AttemptStarted(now_s, key, f"rung{rung}", spec.workers, profile(spec)))
        self._run.run(self, [(key, spec)], self._start_up_s if slot is None else 0.0)

    def _end(self) -> None:
        """End the search, and with it the trials that it has paused or still runs."""
        self._run.stop([self._key(trial) for trial in self._slot])
        for trial in sorted(self._known.entered[0] - self._known.ended):
            self._run.record(TrialEnded(self._run.now_s, self._key(trial), TrialStatus.KILLED))
        self._run.record(StudyEnded(self._run.now_s, self.name))
        self.is_over = True
