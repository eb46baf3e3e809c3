"""The network level in simulated time: jobs of running trials on a fluid network, served as the live decision would have them.

Whoever runs the trials owns the tracker and says when they start and stop; both simulators, of the network alone and of both
levels, stand on this one.
"""

import heapq
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import numpy as np

from beamer.decision.core import DecisionCore
from beamer.errors import InputError
from beamer.joint.links import iteration_s
from beamer.joint.parts import NO_PARTS, JointParts
from beamer.joint.phases import Cycle, start_delay_s
from beamer.joint.planes import least_used_plane
from beamer.network.allocation import Allocator, Classes
from beamer.network.allocation.base import Arrangement
from beamer.network.arrays import Floats, Ints
from beamer.network.decide import check_order
from beamer.network.fluid.flows import Routes
from beamer.network.fluid.network import FluidEvent, FluidNetwork
from beamer.network.footprint import Footprint
from beamer.network.job import JobSpec
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import NetworkPolicy, Order
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StudyView
from beamer.studies.records import AttemptRecord
from beamer.studies.tracker import Tracker


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of the simulator about the system around the network.

    acknowledgements: whether those of TCP load links, too. progress_s: how long reports of progress are collected before they
    trigger a decision. decision_delay_s: from an event until the plan is in force. minimum_share: of every link, guaranteed to
    each class. unregistered_share: of every link, what traffic that nobody has registered takes all the time, which no policy
    is told. coflows_known: whether policies see the coflows in flight, which no live system can; None: if the allocator is an
    ideal one. survivors_known: whether they know which trials each later rung will hold.
    """

    acknowledgements: bool = True
    progress_s: float = 0.5
    decision_delay_s: float = 0.0
    minimum_share: float = 0.0
    unregistered_share: float = 0.0
    coflows_known: bool | None = None
    survivors_known: bool = False

    def __post_init__(self) -> None:
        if not self.progress_s > 0:
            raise InputError("progress_s", self.progress_s, "seconds above 0")
        if not self.decision_delay_s >= 0:
            raise InputError("decision_delay_s", self.decision_delay_s, "seconds of at least 0")
        if not 0 <= self.unregistered_share < 1:
            raise InputError("unregistered_share", self.unregistered_share, "a share of at least 0, below 1")


def chosen_allocator(queues: int, assumptions: Assumptions, allocator: Allocator | None) -> Allocator:
    """Return an allocator, or if none is given so many classes with the share that is assumed. Raises `InputError` for both."""
    if allocator is None:
        return Classes(queues=queues, minimum_share=assumptions.minimum_share)
    if assumptions.minimum_share:
        raise InputError("minimum_share", assumptions.minimum_share, "0, as the allocator that is given has its own")
    return allocator


@dataclass(frozen=True)
class _Running:
    """A trial that runs. done: its steps when it began to. steps: of its own that an iteration of its job counts."""

    key: str
    spec: JobSpec
    done: int
    steps: float


@dataclass(frozen=True, eq=False)
class _Members:
    """The jobs of a study's columns, by position: their numbers; steps: of its trial that an iteration of each counts.

    beyond: steps of each that lie beyond its present target.
    """

    columns: Snapshot
    number: Ints
    steps: Floats
    beyond: Ints


def _running_of(view: StudyView, running: AbstractSet[str]) -> StudyView:
    """Return a study without trials that do not run yet."""
    if all(job.key in running for stage in view.stages for job in stage.jobs):
        return view
    stages = (replace(stage, jobs=tuple(job for job in stage.jobs if job.key in running)) for stage in view.stages)
    return replace(view, stages=tuple(stages))


def _on_planes(view: StudyView, planes: Mapping[str, int]) -> StudyView:
    """Return a study whose trials are on the planes that were chosen for them."""
    stages = (
        replace(stage, jobs=tuple(replace(job, plane=planes.get(job.key, job.plane)) for job in stage.jobs))
        for stage in view.stages
    )
    return replace(view, stages=tuple(stages))


def _cycle(spec: JobSpec, footprint: Footprint, starts_s: float) -> Cycle:
    return Cycle(starts_s, iteration_s(spec, footprint), footprint.gamma_s)


class NetworkLevel:
    """Simulated time, and the jobs that run in it.

    tracker: with `ledger` among its ledgers; trials have an attempt there before they run. rng: what the policy draws from.
    told: adds what policies are told beyond what the ledger knows. parts: of both levels together, `planes`, `phases` and
    `leaving` concern this one. plan_changes: plans that differed from the one before.
    """

    def __init__(
        self,
        tracker: Tracker,
        ledger: NetworkLedger,
        policy: NetworkPolicy[Any],
        rng: Random,
        assumptions: Assumptions,
        allocator: Allocator,
        told: Callable[[Sequence[StudyView]], Sequence[StudyView]] | None = None,
        parts: JointParts = NO_PARTS,
    ) -> None:
        self.plan_changes = 0
        self._tracker = tracker
        self._ledger = ledger
        self._fabric = ledger.fabric
        self._assumptions = assumptions
        self._allocator = allocator
        self._told = told
        self._parts = parts
        self._plane_of: dict[str, int] = {}  # of trials that run, where planes are chosen
        # trials that run their last iteration here, and how many they would have had after it
        self._leaving: dict[str, int] = {}
        self._routes = Routes(self._fabric, assumptions.acknowledgements, allocator.caps)
        registered = 1 - assumptions.unregistered_share
        self._network = FluidNetwork(np.array([registered * link.rate_bps for link in self._fabric.links]), allocator)
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
        self._members = np.zeros(0, np.int64)  # its jobs, like the next two as `_Members` has them
        self._steps = np.zeros(0)
        self._beyond = np.zeros(0, np.int64)
        self._members_by_study: dict[str, _Members] = {}
        self._decision_due = False
        self._decided_s = 0.0
        self._quiet_until_s = 0.0
        self._remaining = np.zeros(0, np.int64)  # iterations of every job, at the last decision
        self._woken_s = 0.0
        self._group: dict[str, int] = {}  # as installed, like the next two
        self._cap_bps: dict[str, float] = {}
        self._rank: dict[str, int] = {}

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return self._network.now_s

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Have something done so many seconds from now."""
        self._seq += 1
        heapq.heappush(self._due, (self.now_s + seconds, self._seq, act))

    def advance(self) -> list[str]:
        """Let time pass until something happens, and return the trials that have run all of their iterations."""
        until = self._due[0][0] if self._due else math.inf
        happened = self._network.run(min(until, self._progress_at()), self._by_coflow)
        if happened and self._by_coflow:
            self._decision_due = True
        finished = [self._running.pop(job).key for kind, job in happened if kind is FluidEvent.FINISHED]
        self._forget_leaving(finished)
        if finished:
            self._changed()
        return finished

    def settle(self) -> None:
        """Do what is due now, then decide anew if anything has changed."""
        self.act()
        self.decide()

    def act(self) -> None:
        """Do what is due now."""
        while self._due and self._due[0][0] <= self.now_s:
            heapq.heappop(self._due)[2]()

    def decide(self) -> None:
        """Decide anew if anything has changed, or jobs have come farther and it is time to look."""
        if self._decision_due or (self.now_s >= self._progress_at() and self._progressed()):
            self._decide()

    def run(self, work: Sequence[tuple[str, JobSpec]], after_s: float, done: int | None = None, steps: float = 1.0) -> None:
        """Let trials begin so many seconds from now to run as many iterations as their jobs say.

        done: how far they have come, where the tracker has not heard it yet. steps: of the trial that an iteration counts.
        """
        if self._parts.planes:
            self._choose_planes(work)
        placed = [(spec, self._plane(key)) for key, spec in work]
        delay_s = self._delay_s(placed, after_s) if self._parts.phases else 0.0
        first = self._network.add(self._routes.block(placed, [self._ledger.footprints.of(*job) for job in placed]))
        for number, (key, spec) in enumerate(work, first):
            self._number[key] = number
            self._running[number] = _Running(key, spec, self._tracker.trials[key].done if done is None else done, steps)
        self._network.start(range(first, first + len(work)), after_s + delay_s)
        self._changed()

    def stop(self, keys: Sequence[str]) -> None:
        """Stop trials where they are."""
        numbers = [self._number[key] for key in keys]
        self._network.kill(numbers)
        for number in numbers:
            del self._running[number]
        self._forget_leaving(keys)
        self._changed()

    def tell_anew(self) -> None:
        """Have the next decision be made on what policies would be told now."""
        self._snapshot = None

    def end_after_iteration(self, key: str) -> None:
        """Let a trial that runs have no iteration after the one that it is in; it still has them to run, elsewhere or later."""
        self._leaving[key] = self._leaving.get(key, 0) + self.remaining(key) - 1
        self._network.end_after_iteration(self._number[key])
        self._changed()

    def remaining(self, key: str) -> int:
        """Return the iterations that a trial has still to run since it began to last."""
        return int(self._network.remaining[self._number[key]])

    def iteration_began_s(self, key: str) -> float:
        """Return when a trial that runs began the iteration that it is in, or will begin its first one."""
        return self._network.iteration_began_s(self._number[key])

    def forget_class(self, key: str) -> None:
        """Note that a trial's connections are new, and have no class yet."""
        self._group.pop(key, None)
        self._cap_bps.pop(key, None)
        self._rank.pop(key, None)

    def reroute(self, dead: Collection[tuple[str, str]]) -> None:
        """Route the flows of running and later jobs around cables that are dead now."""
        self._routes.lose(dead)
        flow: list[int] = []
        paths: list[tuple[int, ...]] = []
        for number, job in self._running.items():
            flow += self._network.flows_of(number)
            paths += self._routes.of_job(job.spec, self._plane(job.key), number)
        self._network.reroute(flow, paths, [self._routes.number(path) for path in paths])
        self._changed()

    def carried_bits(self) -> Floats:
        """Return what each link has carried."""
        return self._network.carried_bits()

    def attempt(self, key: str) -> AttemptRecord:
        """Return the attempt in which a trial runs, or is about to."""
        attempt = self._tracker.trials[key].attempt
        assert attempt is not None
        return attempt

    def snapshot(self) -> Snapshot:
        """Return what a policy may know now."""
        if self._snapshot is None:
            studies = [columns for columns in self._studies() if columns.studies]
            self._snapshot = Snapshot.joined(self._fabric, studies)
            members = [self._members_of(columns) for columns in studies]
            self._members_by_study = {each.columns.studies[0].name: each for each in members}
            self._members = np.concatenate([np.zeros(0, np.int64), *(each.number for each in members)])
            self._steps = np.concatenate([np.zeros(0), *(each.steps for each in members)])
            self._beyond = np.concatenate([np.zeros(0, np.int64), *(each.beyond for each in members)])
        still = self._snapshot
        here = self._network.remaining[self._members]
        if self._leaving:
            here = here + np.array([self._leaving.get(key, 0) for key in still.jobs.key], np.int64)
        left = np.rint(here * self._steps).astype(np.int64) + self._beyond
        coflows = self._network.coflows(self._members, still.jobs) if self._by_coflow else still.coflows
        klass = np.array([self._group.get(key, -1) for key in still.jobs.key], np.int64)
        caps = {key: int(cap_bps) for key, cap_bps in self._cap_bps.items() if cap_bps < math.inf}
        return replace(still, remaining=left, klass=klass, coflows=coflows, cap_bps=caps)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        return not self._running and not self._due

    def _plane(self, key: str) -> int:
        chosen = self._plane_of.get(key)
        return self._fabric.plane_of(self.attempt(key).seq) if chosen is None else chosen

    def _choose_planes(self, work: Sequence[tuple[str, JobSpec]]) -> None:
        """Choose the planes of trials that are about to run, one after another."""
        others = [(job.spec, self._plane(job.key)) for job in self._running.values()]
        for key, spec in work:
            self._plane_of[key] = least_used_plane(self._ledger.footprints, spec, others)
            others.append((spec, self._plane_of[key]))

    def _delay_s(self, placed: Sequence[tuple[JobSpec, int]], after_s: float) -> float:
        """Return by how much trials that would start in so many seconds start later, so that they share links better."""
        if len(placed) != 1:
            return 0.0  # they start together, whatever they share
        spec, plane = placed[0]
        own = self._ledger.footprints.of(spec, plane)
        others = []
        for number, job in self._running.items():
            footprint = self._ledger.footprints.of(job.spec, self._plane(job.key))
            if np.isin(own.link, footprint.link, assume_unique=True).any():
                others.append(_cycle(job.spec, footprint, self._network.iteration_began_s(number)))
        return start_delay_s(_cycle(spec, own, self.now_s + after_s), others)

    def _forget_leaving(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._leaving.pop(key, None)

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

    def _studies(self) -> Sequence[Snapshot]:
        """Return the columns of each study, without trials that have been given hosts on which they do not run yet.

        Those of a study that has not changed are the same object as before.
        """
        running = {job.key for job in self._running.values()}
        if self._told is None and not self._plane_of:
            waiting = {trial.key for trial in self._tracker.running if trial.key not in running}
            begun = self._ledger.running(self._tracker, waiting)
            columns = begun.columns()
            begun.keep()
            return columns
        views: Sequence[StudyView] = [_running_of(view, running) for view in self._ledger.views(self._tracker)]
        if self._told is not None:
            views = self._told(views)
        placed = [_on_planes(view, self._plane_of) for view in views]
        return [Snapshot.of_study(self._fabric, view, self._footprint_of) for view in placed]

    def _footprint_of(self, job: JobView) -> Footprint:
        return self._ledger.footprints.of(job.spec, job.plane)

    def _members_of(self, columns: Snapshot) -> _Members:
        """Return the jobs of a study's columns, as they were unless these have changed."""
        name = columns.studies[0].name
        number = np.array([self._number[key] for key in columns.jobs.key], np.int64)
        known = self._members_by_study.get(name)
        if known is None or known.columns is not columns or not np.array_equal(known.number, number):
            running = [self._running[one] for one in number.tolist()]
            beyond = columns.remaining - np.array([self._to_target(job) for job in running], np.int64)
            return _Members(columns, number, np.array([job.steps for job in running]), beyond)
        return known

    def _to_target(self, job: _Running) -> int:
        """Return the steps that a trial had still to run when it had come as far as its tracker knows now."""
        return round(job.spec.iterations * job.steps) - (self._tracker.trials[job.key].done - job.done)

    def _decide(self) -> None:
        now = self.now_s
        self._decision_due = False
        self._decided_s = now
        self._quiet_until_s = 0.0
        self._remaining = self._network.remaining
        snapshot = self.snapshot()
        proposal = self._core.propose(lambda: snapshot, self._order, now, generation=0)  # one stream of draws in a run
        self._core.adopt(proposal)
        self._order = proposal.content
        if proposal.wake_s is not None and proposal.wake_s > now and self._running:
            self._wake_at(proposal.wake_s)
        arrangement = self._allocator.arrange(self._order, snapshot)
        chosen = [snapshot.jobs.key[i] for i in arrangement.order.tolist()]
        if self._assumptions.decision_delay_s:
            self._serve()
            self.after(self._assumptions.decision_delay_s, partial(self._install, chosen, arrangement))
        else:
            self._install(chosen, arrangement)

    def _wake_at(self, at_s: float) -> None:
        if self._woken_s <= self.now_s or at_s < self._woken_s:
            self._woken_s = at_s
            self.after(at_s - self.now_s, self._wake)

    def _wake(self) -> None:
        self._decision_due = True

    def _install(self, chosen: Sequence[str], arrangement: Arrangement) -> None:
        """Serve the `chosen` trials as an arrangement of theirs says."""
        group = dict(zip(chosen, arrangement.group.tolist(), strict=True))
        cap_bps = {} if arrangement.cap_bps is None else dict(zip(chosen, arrangement.cap_bps.tolist(), strict=True))
        if (group, cap_bps) != (self._group, self._cap_bps):
            self.plan_changes += 1
            self._group, self._cap_bps = group, cap_bps
        self._rank = {key: rank for rank, key in enumerate(chosen)}
        self._serve()

    def _serve(self) -> None:
        """Serve the running jobs as last decided; jobs without a decision come last, in the lowest class."""
        first = dict.fromkeys(self._leaving, -1) if self._parts.leaving else {}
        rank, in_group = (self._rank | first, self._group | dict.fromkeys(first, 0)) if first else (self._rank, self._group)
        number = np.fromiter(self._running, np.int64, len(self._running))
        keys = [job.key for job in self._running.values()]
        last = len(self._rank)
        by_rank = np.lexsort((number, np.array([rank.get(key, last) for key in keys], np.int64)))
        lowest = self._allocator.lowest(self._group.values())
        group = np.array([in_group.get(key, lowest) for key in keys], np.int64)
        cap_bps = np.array([self._cap_bps.get(key, math.inf) for key in keys], np.float64) if self._allocator.caps else None
        self._network.arrange(Arrangement(number[by_rank], group[by_rank], None if cap_bps is None else cap_bps[by_rank]))
