"""The network level in simulated time: jobs of running trials on a fluid network, served as the live decision would have them.

Whoever runs the trials owns the tracker and says when they start and stop; both simulators, of the network alone and of both
levels, stand on this one.
"""

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from beamer.decision.core import DecisionCore
from beamer.errors import InputError
from beamer.joint.links import iteration_s
from beamer.joint.parts import NO_PARTS, JointParts
from beamer.joint.phases import Cycle, start_delay_s
from beamer.joint.planes import least_used_plane
from beamer.network.allocation import Allocator, is_asked
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
from beamer.sim.running_columns import ColumnsByStudy, RunningColumns, RunningTrial
from beamer.sim.service_order import ServiceOrder
from beamer.studies.model import split_key
from beamer.studies.records import AttemptRecord
from beamer.studies.tracker import Tracker


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of the simulator about the system around the network."""

    acknowledgements: bool = True
    """Whether the acknowledgements of TCP load links, too."""
    progress_s: float = 0.5
    """Seconds for which reports of progress are collected before they trigger a decision."""
    unregistered_share: float = 0.0
    """The share of every link that traffic takes which nobody has registered; no policy is told."""
    coflows_known: bool | None = None
    """Whether policies see the coflows in flight, which no live system can; None: if the allocator is an ideal one."""

    def __post_init__(self) -> None:
        if not self.progress_s > 0:
            raise InputError("progress_s", self.progress_s, "seconds above 0")
        if not 0 <= self.unregistered_share < 1:
            raise InputError("unregistered_share", self.unregistered_share, "a share of at least 0, below 1")


def _cycle(spec: JobSpec, footprint: Footprint, starts_s: float) -> Cycle:
    return Cycle(starts_s, iteration_s(spec, footprint), footprint.gamma_s)


class NetworkLevel:
    """Simulated time, and the jobs that run in it.

    tracker: with `ledger` among its ledgers; trials have an attempt there before they run. rng: what the policy draws from.
    parts: of both levels together, `planes` and `phases` concern this one.
    """

    def __init__(
        self,
        tracker: Tracker,
        ledger: NetworkLedger,
        policy: NetworkPolicy[Any],
        rng: Random,
        assumptions: Assumptions,
        allocator: Allocator,
        parts: JointParts = NO_PARTS,
    ) -> None:
        self._tracker = tracker
        self._ledger = ledger
        self._fabric = ledger.fabric
        self._assumptions = assumptions
        self._allocator = allocator
        self._parts = parts
        self._plane_of: dict[str, int] = {}  # the plane of each running trial, where planes are chosen
        # These trials run their last iteration here; the values are the iterations that they would have had after it.
        self._leaving: dict[str, int] = {}
        self._routes = Routes(self._fabric, assumptions.acknowledgements, allocator.caps)
        registered = 1 - assumptions.unregistered_share
        self._network = FluidNetwork(np.array([registered * link.rate_bps for link in self._fabric.links]), allocator)
        known = assumptions.coflows_known
        self._is_asked = is_asked(policy, allocator)
        sees_coflows = allocator.sees_coflows if known is None else known
        self._by_coflow = self._is_asked and policy.by_coflow and sees_coflows
        self._core: DecisionCore[Any, Snapshot, Order] = DecisionCore(
            policy, policy.order, check_order, None, lambda generation: rng, live=False
        )
        self._order: Order = ()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._seq = 0
        self._number: dict[str, int] = {}  # number in the network of each trial that runs or ran
        self._running: dict[int, RunningTrial] = {}
        self._study = np.zeros(0, np.int64)  # study of each job, by position among all that are known
        self._by_study = ColumnsByStudy(tracker, ledger)
        self._columns: RunningColumns | None = None  # columns of the jobs that run now; None when they have to be made anew
        self._decision_due = False
        self._decided_s = 0.0
        self._quiet_until_s = 0.0
        self._remaining = np.zeros(0, np.int64)  # iterations left of every job, at the last decision
        self._woken_s = 0.0
        self._served = ServiceOrder(allocator)

    @property
    def plan_changes(self) -> int:
        """Plans that differed from the one before."""
        return self._served.plan_changes

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
            self._running[number] = RunningTrial(key, spec, self._tracker.trials[key].done if done is None else done, steps)
        place = {name: position for position, name in enumerate(self._tracker.studies)}
        self._study = np.concatenate((self._study, np.array([place[split_key(key)[0]] for key, _ in work], np.int64)))
        self._by_study.forget(key for key, _ in work)
        self._served.add(len(work))
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
        if key in self._number:
            self._served.forget(self._number[key])

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
        now = self._running_columns()
        columns, jobs = now.snapshot, now.snapshot.jobs
        here = self._network.remaining[now.number]
        if self._leaving:
            here = here + np.array([self._leaving.get(key, 0) for key in jobs.key], np.int64)
        left = np.rint(here * now.steps).astype(np.int64) + now.beyond
        coflows = self._network.coflows(now.number, jobs) if self._by_coflow else columns.coflows
        caps: dict[str, int] = {}
        if self._allocator.caps:
            caps_bps = zip(jobs.key, self._served.caps_bps(now.number), strict=True)
            caps = {key: int(cap_bps) for key, cap_bps in caps_bps if cap_bps < math.inf}
        return replace(columns, remaining=left, klass=self._served.classes(now.number), coflows=coflows, cap_bps=caps)

    def _running_columns(self) -> RunningColumns:
        if self._columns is None:
            self._columns = self._by_study.joined(self._running, self._number, self._plane_of)
        return self._columns

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
            return 0.0  # Trials that start together are not delayed, whatever they share.
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
        self._columns = None
        self._decision_due = True

    def _progress_at(self) -> float:
        if self._by_coflow or not self._is_asked or not self._running:
            return math.inf
        return max(self._decided_s + self._assumptions.progress_s, self._quiet_until_s)

    def _progressed(self) -> bool:
        """Return whether an iteration has ended since the last decision; if not, none will before the next event."""
        remaining = self._network.remaining
        if len(remaining) == len(self._remaining) and np.array_equal(remaining, self._remaining):
            self._quiet_until_s = self._network.next_s()
            return False
        return True

    def _decide(self) -> None:
        now = self.now_s
        self._decision_due = False
        self._decided_s = now
        self._quiet_until_s = 0.0
        self._remaining = self._network.remaining
        if not self._is_asked:
            running = self._running_numbers()
            # The jobs are ordered as in most snapshots: ties end by order.
            by_study = running[np.lexsort((running, self._study[running]))]
            self._install(Arrangement(by_study, np.zeros_like(running)))
            return
        snapshot = self.snapshot()
        number = self._running_columns().number
        proposal = self._core.propose(lambda: snapshot, self._order, now, generation=0)  # A run has one stream of draws.
        self._core.adopt(proposal)
        self._order = proposal.content
        if proposal.wake_s is not None and proposal.wake_s > now and self._running:
            self._wake_at(proposal.wake_s)
        arrangement = self._allocator.arrange(self._order, snapshot)
        self._install(replace(arrangement, order=number[arrangement.order]))

    def _wake_at(self, at_s: float) -> None:
        if self._woken_s <= self.now_s or at_s < self._woken_s:
            self._woken_s = at_s
            self.after(at_s - self.now_s, self._wake)

    def _wake(self) -> None:
        self._decision_due = True

    def _install(self, plan: Arrangement) -> None:
        """Carry a plan out; a trial that has begun to run anew since it was made has new connections, and no class by it."""
        self._served.install(plan)
        self._network.arrange(self._served.of(self._running_numbers()))

    def _running_numbers(self) -> Ints:
        return np.fromiter(self._running, np.int64, len(self._running))
