"""Runs a scenario on a simulated network: the tracker, the decision and the scenario are those of the live system."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from beamer.network.allocation import Allocator, Classes, check_pair
from beamer.network.job import JobSpec, profile
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import NetworkPolicy, network_policy
from beamer.sim.network_level import Assumptions, NetworkLevel
from beamer.sim.results import JobResult, RunResult, StageResult
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.model import TrialStatus, trial_key
from beamer.studies.tracker import Tracker
from beamer.workloads.scenario import Scenario, StudyPlan, dead


@dataclass(frozen=True)
class SimResult(RunResult):
    """A simulated run.

    link_bytes: carried by each directed link. plan_changes: plans that differed from the one before.
    """

    link_bytes: Mapping[str, float] = field(default_factory=dict)
    plan_changes: int = 0


def simulate(
    scenario: Scenario,
    policy: str | NetworkPolicy[Any],
    rng: Random | None = None,
    assumptions: Assumptions | None = None,
    allocator: Allocator | None = None,
) -> SimResult:
    """Run `scenario` under a policy, or the one of that name, until its last search has ended. Raises as `ScenarioRun`."""
    return ScenarioRun(scenario, policy, rng, assumptions, allocator).run_to_end()


class ScenarioRun:
    """A run of a scenario, to its end.

    rng: what the policy draws from; the scenario's seed decides if None. allocator: the scenario's classes if None.
    searches: those of the scenario; others may be added before it begins. tracker: what is known.
    Raises `InputError` for an unknown policy and for one that the allocator cannot carry out.
    """

    def __init__(
        self,
        scenario: Scenario,
        policy: str | NetworkPolicy[Any],
        rng: Random | None = None,
        assumptions: Assumptions | None = None,
        allocator: Allocator | None = None,
    ) -> None:
        assumed = assumptions or Assumptions()
        chosen = allocator or Classes(queues=scenario.queues)
        self._policy = network_policy(policy) if isinstance(policy, str) else policy
        check_pair(self._policy, chosen)
        self._scenario = scenario
        ledger = NetworkLedger(scenario.fabric)
        self.tracker = Tracker(ledger)
        self._level = NetworkLevel(self.tracker, ledger, self._policy, rng or Random(scenario.seed), assumed, chosen)
        self._search: dict[str, SimulatedSearch] = {}  # the search of each trial that runs or ran
        self.searches: list[SimulatedSearch] = [_StagedSearch(plan, self, scenario.start_up_s) for plan in scenario.studies]

    def run_to_end(self) -> SimResult:
        """Run until the last search has ended."""
        level = self._level
        self._begin_after(None)
        failures = self._scenario.failures
        for at_s in sorted({f.at_s for f in failures} | {f.until_s for f in failures if f.until_s is not None}):
            level.after(at_s, lambda: level.reroute(dead(failures, level.now_s)))
        while not all(search.is_over for search in self.searches):
            self._finish(level.advance())
            level.settle()
        return self._result()

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return self._level.now_s

    def record(self, event: Event) -> None:
        """Take in what has happened."""
        if self.tracker.check(event):
            self.tracker.apply(event)
        if isinstance(event, AttemptStarted):
            self._level.forget_class(event.trial)

    def run(self, search: "SimulatedSearch", work: Sequence[tuple[str, JobSpec]], after_s: float) -> None:
        """Let trials begin so many seconds from now to run as many iterations as their jobs say."""
        self._search |= {key: search for key, _ in work}
        self._level.run(work, after_s)

    def stop(self, keys: Sequence[str]) -> None:
        """Stop trials where they are."""
        self._level.stop(keys)

    def _begin_after(self, name: str | None) -> None:
        """Have the searches begin that wait for the one of this name, or for none."""
        for search in self.searches:
            if search.after == name:
                self._level.after(search.arrival_s, search.begin)

    def _finish(self, finished: Sequence[str]) -> None:
        """Let searches react to trials that have run all of their iterations, and begin those that follow them."""
        arrived: dict[SimulatedSearch, list[str]] = {}
        for key in finished:
            arrived.setdefault(self._search[key], []).append(key)
        for search, keys in arrived.items():
            search.arrived(keys)
            if search.is_over:
                self._begin_after(search.name)

    def _result(self) -> SimResult:
        # Every stage is done here: the records' ends are set.
        stages = tuple(
            StageResult(study.name, stage.name, stage.registered_s, stage.ended_s or 0.0)
            for study in self.tracker.studies.values()
            for stage in study.stages.values()
        )
        attempts = [
            (attempt, f"{trial.study}/{attempt.name}/{trial.name}")
            for trial in self.tracker.trials.values()
            for attempt in trial.attempts.values()
        ]
        attempts.sort(key=lambda of: of[0].seq)
        jobs = tuple(JobResult(key, attempt.started_s, attempt.ended_s or 0.0) for attempt, key in attempts)
        carried = self._level.carried_bits().tolist()
        names = [f"{link.src}-{link.dst}" for link in self._scenario.fabric.links]
        possible = [link.rate_bps * self.now_s for link in self._scenario.fabric.links]
        return SimResult(
            policy=self._policy.name,
            stages=stages,
            jobs=jobs,
            utilisation={name: bits / most if most else 0.0 for name, bits, most in zip(names, carried, possible, strict=True)},
            link_bytes={name: bits / 8 for name, bits in zip(names, carried, strict=True)},
            plan_changes=self._level.plan_changes,
        )


class SimulatedSearch(ABC):
    """A search: what it does when its trials reach their targets.

    name: of its study. arrival_s: seconds after the scenario's start or, closed-loop, after the end of the search named by
    `after`. is_over: whether it has ended.
    """

    def __init__(self, run: ScenarioRun, name: str, arrival_s: float, after: str | None = None) -> None:
        self.name = name
        self.arrival_s = arrival_s
        self.after = after
        self.is_over = False
        self._run = run

    @abstractmethod
    def begin(self) -> None:
        """Register the study and start its first trials."""

    @abstractmethod
    def arrived(self, keys: Sequence[str]) -> None:
        """React to trials that have reached their targets, all at this time."""

    def _progressed(self, key: str, loss: float | None = None) -> None:
        """Record that a trial has reached its target."""
        target = self._run.tracker.trials[key].target
        assert target is not None
        self._run.record(Progressed(self._run.now_s, key, target.step, loss))


class _StagedSearch(SimulatedSearch):
    """Stages one after another, each with the trials that its plan names."""

    def __init__(self, plan: StudyPlan, run: ScenarioRun, start_up_s: float) -> None:
        super().__init__(run, plan.name, plan.arrival_s, plan.after)
        self._plan = plan
        self._start_up_s = start_up_s
        self._index = 0
        self._running: set[str] = set()

    def begin(self) -> None:
        """Register the study and begin its first stage."""
        self._run.record(StudyRegistered(self._run.now_s, self.name, weight=self._plan.weight, rungs=self._plan.rungs))
        self._begin_stage()

    def _begin_stage(self) -> None:
        """Register a stage, and start an attempt of each of its trials, which has the stage's name."""
        run, now_s, stage = self._run, self._run.now_s, self._plan.stages[self._index]
        run.record(StageRegistered(now_s, self.name, stage.name))
        work = [(trial_key(self.name, spec.name), spec) for spec in stage.jobs]
        for key, spec in work:
            run.record(TrialRegistered(now_s, self.name, spec.name))
            run.record(TargetSet(now_s, key, run.tracker.trials[key].done + spec.iterations, stage.name))
            run.record(AttemptStarted(now_s, key, stage.name, spec.workers, profile(spec)))
        run.record(StageSealed(now_s, self.name, stage.name))
        self._running = {key for key, _ in work}
        run.run(self, work, self._start_up_s)

    def arrived(self, keys: Sequence[str]) -> None:
        """End the attempts, and the stage if enough of its trials have arrived: stop the others, begin what follows."""
        run, now_s, plan = self._run, self._run.now_s, self._plan.stages[self._index]
        for key in keys:
            self._progressed(key)
            run.record(AttemptEnded(now_s, key, plan.name))
        self._running -= set(keys)
        if len(plan.jobs) - len(self._running) < (plan.finish or len(plan.jobs)):
            return
        stopped = self._running
        run.stop([key for spec in plan.jobs if (key := trial_key(self.name, spec.name)) in stopped])
        is_last = self._index + 1 == len(self._plan.stages)
        surviving = {spec.name for stage in self._plan.stages[self._index + 1 :] for spec in stage.jobs}
        for spec in plan.jobs:
            key = trial_key(self.name, spec.name)
            if spec.name not in surviving:
                status = TrialStatus.FINISHED if is_last and key not in stopped else TrialStatus.KILLED
                run.record(TrialEnded(now_s, key, status))
            elif key in stopped:
                run.record(AttemptEnded(now_s, key, plan.name))
                run.record(TargetDropped(now_s, key, plan.name))
        self._index += 1
        self.is_over = is_last
        if not is_last:
            self._begin_stage()
