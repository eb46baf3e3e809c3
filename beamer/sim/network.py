"""Runs a scenario on a simulated network: the tracker, the decision and the scenario are those of the live system."""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import numpy as np

from beamer.decision.core import DecisionCore
from beamer.errors import InputError
from beamer.network.allocation import Allocator, Classes, check_pair
from beamer.network.allocation.base import Arrangement
from beamer.network.decide import check_order
from beamer.network.fluid.flows import Routes
from beamer.network.fluid.network import FluidEvent, FluidNetwork
from beamer.network.job import JobSpec
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import NetworkPolicy, Order, network_policy
from beamer.network.snapshot import Snapshot
from beamer.network.views import StudyView
from beamer.sim.results import JobResult, RunResult, StageResult
from beamer.sim.searches import ReactingSearch, SearchResult, SimulatedSearch, SynchronousSearch
from beamer.studies.events import AttemptStarted, Event
from beamer.studies.tracker import Tracker
from beamer.workloads.scenario import Scenario, dead


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of the simulator about the system around the network.

    acknowledgements: whether those of TCP load links, too. progress_s: how long reports of progress are collected before they
    trigger a decision. decision_delay_s: from an event until the plan is in force. minimum_share: of every link, guaranteed to
    each class. coflows_known: whether policies see the coflows in flight, which no live system can; None: if the allocator is
    an ideal one. survivors_known: whether they know which trials each later rung will hold.
    """

    acknowledgements: bool = True
    progress_s: float = 0.5
    decision_delay_s: float = 0.0
    minimum_share: float = 0.0
    coflows_known: bool | None = None
    survivors_known: bool = False

    def __post_init__(self) -> None:
        if not self.progress_s > 0:
            raise InputError("progress_s", self.progress_s, "seconds above 0")
        if not self.decision_delay_s >= 0:
            raise InputError("decision_delay_s", self.decision_delay_s, "seconds of at least 0")


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
    if allocator is not None and assumed.minimum_share:
        raise InputError("minimum_share", assumed.minimum_share, "0, as the allocator that is given has its own")
    chosen = allocator or Classes(queues=scenario.queues, minimum_share=assumed.minimum_share)
    ordered = network_policy(policy) if isinstance(policy, str) else policy
    check_pair(ordered, chosen)
    return _Simulation(scenario, ordered, rng or Random(scenario.seed), assumed, chosen).run_to_end()


@dataclass(frozen=True)
class _Running:
    """A trial that runs, for a search."""

    search: SimulatedSearch
    key: str
    spec: JobSpec


@dataclass(frozen=True)
class _Served:
    """How a job is served."""

    key: str
    group: int
    cap_bps: float


class _Simulation:
    def __init__(
        self, scenario: Scenario, policy: NetworkPolicy[Any], rng: Random, assumptions: Assumptions, allocator: Allocator
    ) -> None:
        self._scenario = scenario
        self._policy = policy
        self._assumptions = assumptions
        self._allocator = allocator
        self._ledger = NetworkLedger(scenario.fabric)
        self._tracker = Tracker(self._ledger)
        self._routes = Routes(scenario.fabric, assumptions.acknowledgements, allocator.caps)
        self._network = FluidNetwork(np.array([float(link.rate_bps) for link in scenario.fabric.links]), allocator)
        known = assumptions.coflows_known
        self._by_coflow = policy.by_coflow and (allocator.sees_coflows if known is None else known)
        self._core: DecisionCore[Any, Snapshot, Order] = DecisionCore(
            policy, policy.order, check_order, None, lambda generation: rng, live=False
        )
        self._order: Order = ()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._seq = 0
        self._number: dict[str, int] = {}
        self._running: dict[int, _Running] = {}
        self._snapshot: Snapshot | None = None  # of the jobs that run now; None when it has to be made anew
        self._members = np.zeros(0, np.int64)
        self._beyond = np.zeros(0, np.int64)  # iterations of each of them that lie beyond its present target
        self._searches: list[tuple[SimulatedSearch, str | None]] = [
            (SynchronousSearch(plan, self, scenario.start_up_s), plan.after) for plan in scenario.studies
        ]
        self._searches += [(ReactingSearch(plan, self, scenario.start_up_s), None) for plan in scenario.asynchronous]
        self._unfinished = len(self._searches)
        self._decision_due = False
        self._decided_s = 0.0
        self._quiet_until_s = 0.0
        self._remaining = np.zeros(0, np.int64)  # iterations of every job, at the last decision
        self._woken_s = 0.0
        self._plan_changes = 0
        self._group: dict[str, int] = {}  # as installed, like the next two
        self._cap_bps: dict[str, float] = {}
        self._rank: dict[str, int] = {}

    def run_to_end(self) -> SimResult:
        for search, after in self._searches:
            if after is None:
                self._after(search.arrival_s, search.begin)
        failures = self._scenario.failures
        for at_s in sorted({f.at_s for f in failures} | {f.until_s for f in failures if f.until_s is not None}):
            self._after(at_s, self._reroute)
        while self._unfinished:
            until = self._due[0][0] if self._due else math.inf
            happened = self._network.run(min(until, self._progress_at()), self._by_coflow)
            self._finish([job for kind, job in happened if kind is FluidEvent.FINISHED])
            if happened and self._by_coflow:
                self._decision_due = True
            while self._due and self._due[0][0] <= self.now_s:
                heapq.heappop(self._due)[2]()
            if self._decision_due or (self.now_s >= self._progress_at() and self._progressed()):
                self._decide()
        return self._result()

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return self._network.now_s

    @property
    def tracker(self) -> Tracker:
        """What is known."""
        return self._tracker

    def record(self, event: Event) -> None:
        """Take in what has happened."""
        if self._tracker.check(event):
            self._tracker.apply(event)
        if isinstance(event, AttemptStarted):  # its connections are new, and have no class yet
            self._group.pop(event.trial, None)
            self._cap_bps.pop(event.trial, None)
            self._rank.pop(event.trial, None)

    def run(self, search: SimulatedSearch, work: Sequence[tuple[str, JobSpec]], after_s: float) -> None:
        """Let trials begin so many seconds from now to run as many iterations as their jobs say."""
        placed = [(spec, self._plane(key)) for key, spec in work]
        first = self._network.add(self._routes.block(placed, [self._ledger.footprints.of(*job) for job in placed]))
        for number, (key, spec) in enumerate(work, first):
            self._number[key] = number
            self._running[number] = _Running(search, key, spec)
        self._network.start(range(first, first + len(work)), after_s)
        self._changed()

    def stop(self, keys: Sequence[str]) -> None:
        """Stop trials where they are."""
        numbers = [self._number[key] for key in keys]
        self._network.kill(numbers)
        for number in numbers:
            del self._running[number]
        self._changed()

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._seq += 1
        heapq.heappush(self._due, (self.now_s + seconds, self._seq, act))

    def _plane(self, key: str) -> int:
        attempt = self._tracker.trials[key].attempt
        assert attempt is not None
        return self._scenario.fabric.plane_of(attempt.seq)

    def _finish(self, numbers: Sequence[int]) -> None:
        """Let searches react to trials that have run all of their iterations, and begin those that follow them."""
        arrived: dict[SimulatedSearch, list[str]] = {}
        for number in numbers:
            job = self._running.pop(number)
            arrived.setdefault(job.search, []).append(job.key)
        for search, keys in arrived.items():
            self._changed()
            search.arrived(keys)
            if search.is_over:
                self._unfinished -= 1
                for other, after in self._searches:
                    if after == search.name:
                        self._after(other.arrival_s, other.begin)

    def _reroute(self) -> None:
        """Route the flows of running and later jobs around the cables that are dead now."""
        self._routes.lose(dead(self._scenario.failures, self.now_s))
        flow: list[int] = []
        paths: list[tuple[int, ...]] = []
        for number, job in self._running.items():
            flow += self._network.flows_of(number)
            paths += self._routes.of_job(job.spec, self._plane(job.key), number)
        self._network.reroute(flow, paths, [self._routes.number(path) for path in paths])
        self._changed()

    def _changed(self) -> None:
        """Note that the set of running jobs has changed."""
        self._snapshot = None
        self._decision_due = True

    def _progress_at(self) -> float:
        if self._by_coflow or not self._running:
            return math.inf
        return max(self._decided_s + self._assumptions.progress_s, self._quiet_until_s)

    def _progressed(self) -> bool:
        """Return whether an iteration has ended since the last decision; if not, none will before the next event."""
        remaining = self._network.remaining
        if len(remaining) == len(self._remaining) and np.array_equal(remaining, self._remaining):
            self._quiet_until_s = self._network.next_s()
            return False
        return True

    def _views(self) -> Sequence[StudyView]:
        """Return what runs, with the survivors of the scenario's rungs where policies are told them."""
        views = self._ledger.views(self._tracker)
        return [self._told(view) for view in views] if self._assumptions.survivors_known else views

    def _told(self, view: StudyView) -> StudyView:
        stages = next((study.stages for study in self._scenario.studies if study.name == view.name), ())
        names = {stage.name: frozenset(job.name for job in stage.jobs) for stage in stages}
        return replace(view, later=tuple(replace(rung, survivors=names.get(rung.name, frozenset())) for rung in view.later))

    def _current(self) -> Snapshot:
        """Return what a policy may know now."""
        if self._snapshot is None:
            self._snapshot = Snapshot.of(self._scenario.fabric, self._views(), self._ledger.footprints)
            self._members = np.array([self._number[key] for key in self._snapshot.jobs.key], np.int64)
            to_target = np.array([self._running[number].spec.iterations for number in self._members.tolist()], np.int64)
            self._beyond = self._snapshot.remaining - to_target
        still = self._snapshot
        left = self._network.remaining[self._members] + self._beyond
        coflows = self._network.coflows(self._members, still.jobs) if self._by_coflow else still.coflows
        klass = np.array([self._group.get(key, -1) for key in still.jobs.key], np.int64)
        caps = {key: int(cap_bps) for key, cap_bps in self._cap_bps.items() if cap_bps < math.inf}
        return replace(still, remaining=left, klass=klass, coflows=coflows, cap_bps=caps)

    def _decide(self) -> None:
        now = self.now_s
        self._decision_due = False
        self._decided_s = now
        self._quiet_until_s = 0.0
        self._remaining = self._network.remaining
        snapshot = self._current()
        proposal = self._core.propose(lambda: snapshot, self._order, now, generation=0)  # one stream of draws in a run
        self._core.adopt(proposal)
        self._order = proposal.content
        if proposal.wake_s is not None and proposal.wake_s > now:
            self._wake_at(proposal.wake_s)
        arrangement = self._allocator.arrange(self._order, snapshot)
        keys = snapshot.jobs.key
        cap_bps = np.full(len(keys), np.inf) if arrangement.cap_bps is None else arrangement.cap_bps
        served = zip(arrangement.order.tolist(), arrangement.group.tolist(), cap_bps.tolist(), strict=True)
        chosen = [_Served(keys[i], group, cap) for i, group, cap in served]
        if self._assumptions.decision_delay_s:
            self._serve()
            self._after(self._assumptions.decision_delay_s, partial(self._install, chosen))
        else:
            self._install(chosen)

    def _wake_at(self, at_s: float) -> None:
        if self._woken_s <= self.now_s or at_s < self._woken_s:
            self._woken_s = at_s
            self._after(at_s - self.now_s, self._wake)

    def _wake(self) -> None:
        self._decision_due = True

    def _install(self, chosen: list["_Served"]) -> None:
        group = {job.key: job.group for job in chosen}
        cap_bps = {job.key: job.cap_bps for job in chosen}
        if (group, cap_bps) != (self._group, self._cap_bps):
            self._plan_changes += 1
            self._group, self._cap_bps = group, cap_bps
        self._rank = {job.key: rank for rank, job in enumerate(chosen)}
        self._serve()

    def _serve(self) -> None:
        """Serve the running jobs as last decided; jobs without a decision come last, in the lowest class."""
        lowest = self._allocator.lowest(self._group.values())
        keys = {number: job.key for number, job in self._running.items()}
        last = len(self._rank)
        order = sorted(keys, key=lambda number: (self._rank.get(keys[number], last), number))
        group = [self._group.get(keys[number], lowest) for number in order]
        cap_bps = [self._cap_bps.get(keys[number], math.inf) for number in order] if self._allocator.caps else None
        self._network.arrange(
            Arrangement(
                np.array(order, np.int64), np.array(group, np.int64), None if cap_bps is None else np.array(cap_bps, np.float64)
            )
        )

    def _result(self) -> SimResult:
        # Every stage is done here, so that the records' ends are set.
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
        carried = self._network.carried_bits().tolist()
        names = [f"{link.src}-{link.dst}" for link in self._scenario.fabric.links]
        possible = [link.rate_bps * self.now_s for link in self._scenario.fabric.links]
        return SimResult(
            policy=self._policy.name,
            stages=stages,
            jobs=jobs,
            utilisation={name: bits / most if most else 0.0 for name, bits, most in zip(names, carried, possible, strict=True)},
            link_bytes={name: bits / 8 for name, bits in zip(names, carried, strict=True)},
            plan_changes=self._plan_changes,
            searches=tuple(search.result() for search, _ in self._searches if isinstance(search, ReactingSearch)),
        )
