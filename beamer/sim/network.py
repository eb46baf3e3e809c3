"""Runs a scenario on a simulated network: the tracker, the decision and the scenario are those of the live system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from beamer.network.allocation import Allocator, check_pair
from beamer.network.job import JobSpec
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import NetworkPolicy, network_policy
from beamer.sim.network_level import Assumptions, NetworkLevel, chosen_allocator
from beamer.sim.results import JobResult, RunResult, StageResult
from beamer.sim.running_searches import ReactingSearch, SearchResult, SimulatedSearch, SynchronousSearch
from beamer.studies.events import AttemptStarted, Event
from beamer.studies.tracker import Tracker
from beamer.workloads.scenario import Scenario, dead


@dataclass(frozen=True)
class SimResult(RunResult):
    """A simulated run.

    link_bytes: carried by each directed link. plan_changes: plans that differed from the one before. searches: those without
    barriers, in the scenario's order.
    """

    link_bytes: Mapping[str, float] = field(default_factory=dict)
    searches: tuple[SearchResult, ...] = ()
    plan_changes: int = 0


def simulate(
    scenario: Scenario,
    policy: str | NetworkPolicy[Any],
    rng: Random | None = None,
    assumptions: Assumptions | None = None,
    allocator: Allocator | None = None,
) -> SimResult:
    """Run `scenario` under a policy, or the one of that name, until its last search has ended.

    rng: what the policy draws from; the scenario's seed decides if None. allocator: the scenario's classes if None. Raises
    `InputError` for an unknown policy and for one that the allocator cannot carry out.
    """
    assumed = assumptions or Assumptions()
    chosen = chosen_allocator(scenario.queues, assumed, allocator)
    ordered = network_policy(policy) if isinstance(policy, str) else policy
    check_pair(ordered, chosen)
    return _Simulation(scenario, ordered, rng or Random(scenario.seed), assumed, chosen).run_to_end()


class _Simulation:
    def __init__(
        self, scenario: Scenario, policy: NetworkPolicy[Any], rng: Random, assumptions: Assumptions, allocator: Allocator
    ) -> None:
        self._scenario = scenario
        self._policy = policy
        self._assumptions = assumptions
        ledger = NetworkLedger(scenario.fabric)
        self._tracker = Tracker(ledger)
        self._level = NetworkLevel(self._tracker, ledger, policy, rng, assumptions, allocator)
        self._search: dict[str, SimulatedSearch] = {}  # the search of each trial that runs or ran
        self._searches: list[tuple[SimulatedSearch, str | None]] = [
            (SynchronousSearch(plan, self, scenario.start_up_s), plan.after) for plan in scenario.studies
        ]
        self._searches += [(ReactingSearch(plan, self, scenario.start_up_s), None) for plan in scenario.asynchronous]
        self._unfinished = len(self._searches)

    def run_to_end(self) -> SimResult:
        level = self._level
        for search, after in self._searches:
            if after is None:
                level.after(search.arrival_s, search.begin)
        failures = self._scenario.failures
        for at_s in sorted({f.at_s for f in failures} | {f.until_s for f in failures if f.until_s is not None}):
            level.after(at_s, lambda: level.reroute(dead(failures, level.now_s)))
        while self._unfinished:
            self._finish(level.advance())
            level.settle()
        return self._result()

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return self._level.now_s

    @property
    def tracker(self) -> Tracker:
        """What is known."""
        return self._tracker

    def record(self, event: Event) -> None:
        """Take in what has happened."""
        if self._tracker.check(event):
            self._tracker.apply(event)
        if isinstance(event, AttemptStarted):
            self._level.forget_class(event.trial)

    def run(self, search: SimulatedSearch, work: Sequence[tuple[str, JobSpec]], after_s: float) -> None:
        """Let trials begin so many seconds from now to run as many iterations as their jobs say."""
        self._search |= {key: search for key, _ in work}
        self._level.run(work, after_s)

    def stop(self, keys: Sequence[str]) -> None:
        """Stop trials where they are."""
        self._level.stop(keys)

    def _finish(self, finished: Sequence[str]) -> None:
        """Let searches react to trials that have run all of their iterations, and begin those that follow them."""
        arrived: dict[SimulatedSearch, list[str]] = {}
        for key in finished:
            arrived.setdefault(self._search[key], []).append(key)
        for search, keys in arrived.items():
            search.arrived(keys)
            if search.is_over:
                self._unfinished -= 1
                for other, after in self._searches:
                    if after == search.name:
                        self._level.after(other.arrival_s, other.begin)

    def _result(self) -> SimResult:
        # Every stage is done here: the records' ends are set.
        stages = tuple(
            StageResult(study.name, stage.name, stage.registered_s, stage.ended_s or 0.0)
            for study in self._tracker.studies.values()
            for stage in study.stages.values()
        )
        attempts = [
            (attempt, f"{trial.study}/{attempt.name}/{trial.name}")
            for trial in self._tracker.trials.values()
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
            searches=tuple(search.result() for search, _ in self._searches if isinstance(search, ReactingSearch)),
        )
