"""A simulated cluster: jobs of known speed and convergence on virtual GPUs, in virtual time that its owner advances.

Rates are constant between reports, which a job makes when it first starts and once per epoch. A change of GPUs takes effect at
once and costs the job the seconds of `Costs`; it continues from where it was, or, after its node has failed, from its last
report. A job that has finished saves what it has come to, and continues from there if it is started with a farther target.
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from beamer.errors import EngineError
from beamer.gpu.engine import Engine, Observed, Placement, RunState, check_placement
from beamer.gpu.model import Costs, Grant, Node, Report, Request, Speed


@dataclass(frozen=True)
class Outcome:
    """How good a job's model is at some iteration; as in `Report`."""

    loss: float
    accuracy: float | None = None
    gradient_sqr: float = 0.0
    gradient_var: float = 0.0


class SimulatedProfile(ABC):
    """How a simulated job behaves."""

    @abstractmethod
    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return how long a step of `batch_size` samples takes on `grant`, and how much of that it synchronises, seconds."""

    @abstractmethod
    def outcome(self, iteration: float) -> Outcome:
        """Return what it has learned after so many iterations."""

    def efficiency(self, batch_size: int, iteration: float) -> float:
        """Return the progress per sample at `batch_size`, relative to that at the requested one."""
        return 1.0


@dataclass(frozen=True)
class SimulatedJob:
    """A job of a simulated cluster."""

    request: Request
    profile: SimulatedProfile
    costs: Costs = field(default=Costs())


@dataclass
class _Run:
    job: SimulatedJob
    target: int  # iterations after which it ends
    state: RunState = RunState.PARKED
    placement: Placement | None = None
    iteration: float = 0.0  # at since_s
    since_s: float = 0.0  # from when on it computes
    charged_s: float = 0.0  # until when the cost of its last change is counted
    rate: float = 0.0  # iterations per second
    service_s: float = 0.0
    reported: float = 0.0  # iterations
    version: int = 0
    started: bool = False
    speeds: list[Speed] = field(default_factory=list)


class SimulatedCluster(Engine):
    """An engine in virtual time.

    jobs: by key, all that will ever be started. nodes: that are up at first. target: the iteration after which a job that is
    started is to end; None: that of its request.
    busy_s, lost_s: GPU-seconds spent computing, and on changes and on what failures undid, by job.
    started_s: when each first ran.
    """

    def __init__(
        self, nodes: Sequence[Node], jobs: Mapping[str, SimulatedJob], target: Callable[[str], int] | None = None
    ) -> None:
        self.now = 0.0
        self.jobs = dict(jobs)
        self._target = target
        self._checkpoints: dict[str, _Run] = {}
        self.busy_s: dict[str, float] = {}
        self.lost_s: dict[str, float] = {}
        self.started_s: dict[str, float] = {}
        self._nodes = {node.name: node for node in nodes}
        self._runs: dict[str, _Run] = {}
        self._observed: dict[str, Observed] = {}
        self._due: list[tuple[float, int, str, int]] = []
        self._order = count()

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up."""
        return tuple(self._nodes.values())

    def next_s(self) -> float:
        """Return when the next report or end comes, infinity if none does."""
        while self._due and self._outdated(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else math.inf

    def _outdated(self, due: tuple[float, int, str, int]) -> bool:
        _, _, key, version = due
        return key not in self._runs or self._runs[key].version != version

    def advance(self, now: float) -> None:
        """Let time pass until `now`, at most until `next_s`."""
        self.now = now
        while self.next_s() <= now:
            _, _, key, _ = heapq.heappop(self._due)
            self._reach_report(key)

    def lose(self, name: str) -> None:
        """Take a node away; its jobs go back to their last reports."""
        del self._nodes[name]
        for key, run in self._runs.items():
            if not run.state.has_processes or not run.placement:
                continue
            if name in run.placement.servers or any(node == name for node, _ in run.placement.devices):
                if run.state is RunState.RUNNING:
                    self._settle(key)
                self.lost_s[key] = self.lost_s.get(key, 0.0) + len(run.placement.devices) * (
                    (run.iteration - run.reported) / run.rate if run.rate else 0.0
                )
                run.iteration = run.reported
                self._leave(key, RunState.PARKED)

    def join(self, node: Node) -> None:
        """Bring a node up."""
        self._nodes[node.name] = node

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Run a job; for the cost of a restart if it ran before, or of resuming if it is suspended on these GPUs."""
        check_placement(f"{job}: start", placement, self._nodes)
        run = self._runs.get(job)
        if run is None:
            if job not in self.jobs:
                raise EngineError(f"{job}: start: there is no such job")
            run = self._runs[job] = self._launched(job)
        if run.state is RunState.SUSPENDED:
            self.resume(job) if run.placement == placement else self.resize(job, placement)
        elif run.state is RunState.PARKED:
            self._run_on(job, placement, run.job.costs.restart_s if run.started else 0.0)

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        """Stop a job's progress; what it takes is charged when the job is resumed."""
        run = self._known(job, "suspend")
        if run.state is RunState.RUNNING:
            self._settle(job)
            self._leave(job, RunState.SUSPENDED)

    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        """Continue after what suspending and resuming take."""
        run = self._known(job, "resume")
        if run.state is RunState.PARKED:
            raise EngineError(f"{job}: resume: it is parked and its memory gone; start it")
        if run.state is RunState.SUSPENDED and run.placement:
            self._run_on(job, run.placement, run.job.costs.suspend_s + run.job.costs.resume_s)

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Continue elsewhere after what a restart takes."""
        run = self._known(job, "resize")
        if placement is not None:
            check_placement(f"{job}: resize", placement, self._nodes)
        if run.state.is_finished or (placement == run.placement and run.state is RunState.RUNNING):
            return
        if run.state is RunState.RUNNING:
            self._settle(job)
        if placement is None:
            self._leave(job, RunState.PARKED)
        else:
            self._run_on(job, placement, run.job.costs.restart_s)

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """End a job; it is not known any more."""
        if job not in self._runs:
            return
        if self._runs[job].state is RunState.RUNNING:
            self._settle(job)
        if self._runs[job].state is RunState.FINISHED:
            self._checkpoints[job] = self._runs[job]
        del self._runs[job], self._observed[job]

    def report(self) -> Mapping[str, Observed]:
        """Return what each job that was started and not stopped does."""
        observed = dict(self._observed)
        for key, one in observed.items():
            if one.reports or one.speeds or one.costs:
                kept = one.reports[-1:] if one.state.is_finished else ()
                self._observed[key] = replace(one, reports=kept, speeds=(), costs=None)
        return observed

    def _launched(self, job: str) -> _Run:
        target = self._target(job) if self._target else self.jobs[job].request.iterations
        run = _Run(self.jobs[job], target)
        if saved := self._checkpoints.get(job):
            run.iteration = run.reported = saved.iteration
            run.service_s, run.started = saved.service_s, True
            self._observed[job] = Observed(RunState.PARKED, target=target)
        return run

    def _known(self, job: str, call: str) -> _Run:
        if job not in self._runs:
            raise EngineError(f"{job}: {call}: no such job has been started")
        return self._runs[job]

    def _run_on(self, key: str, placement: Placement, cost_s: float) -> None:
        run = self._runs[key]
        run.placement = placement
        run.state = RunState.RUNNING
        run.since_s = self.now + cost_s
        run.charged_s = self.now
        first = not run.started
        run.started = True
        self.started_s.setdefault(key, self.now)
        if first:
            self._observed[key] = Observed(run.state, placement, (self._report(run),), (), run.job.costs, target=run.target)
        else:
            self._observed[key] = replace(self._observed[key], state=run.state, placement=placement)
        self._schedule(key)

    def _schedule(self, key: str) -> None:
        run = self._runs[key]
        assert run.placement
        request = run.job.request
        grant = grant_of(run.placement)
        batch = run.placement.batch_size or request.batch_size
        run.version += 1
        run.rate = 0.0
        if grant.size < request.least:
            return
        step_s, sync_s = run.job.profile.step_s(grant, batch)
        run.rate = batch / request.batch_size * run.job.profile.efficiency(batch, run.iteration) / step_s
        run.speeds = [Speed(grant.size, grant.nodes, len(run.placement.servers), batch, step_s, sync_s)]
        if run.rate > 0:
            at_s = run.since_s + (_next_report(run) - run.iteration) / run.rate
            heapq.heappush(self._due, (at_s, next(self._order), key, run.version))

    def _report(self, run: _Run) -> Report:
        outcome = run.job.profile.outcome(run.iteration)
        return Report(
            self.now,
            run.iteration,
            outcome.loss,
            run.service_s,
            outcome.accuracy,
            outcome.gradient_sqr,
            outcome.gradient_var,
        )

    def _settle(self, key: str) -> None:
        """Count what a running job has done until now, and what its last change has cost until now."""
        run = self._runs[key]
        assert run.placement
        gpus = len(run.placement.devices)
        changing_s = max(min(self.now, run.since_s) - run.charged_s, 0.0)
        self.lost_s[key] = self.lost_s.get(key, 0.0) + changing_s * gpus
        run.charged_s = max(run.charged_s, self.now)
        seconds = max(self.now - run.since_s, 0.0)
        if run.rate:
            run.iteration = min(run.iteration + seconds * run.rate, _next_report(run))
            run.service_s += seconds
            self.busy_s[key] = self.busy_s.get(key, 0.0) + seconds * gpus
        run.since_s = max(run.since_s, self.now)

    def _leave(self, key: str, state: RunState) -> None:
        run = self._runs[key]
        run.version += 1
        run.state = state
        if state is RunState.PARKED:
            run.placement = None
        self._observed[key] = replace(self._observed[key], state=state, placement=run.placement)

    def _reach_report(self, key: str) -> None:
        run = self._runs[key]
        self._settle(key)
        run.iteration = run.reported = _next_report(run)
        finished = run.iteration >= run.target
        state = RunState.FINISHED if finished else RunState.RUNNING
        last = self._observed[key]
        placement = None if finished else run.placement
        self._observed[key] = Observed(
            state, placement, (*last.reports, self._report(run)), (*last.speeds, *run.speeds), last.costs, target=run.target
        )
        run.state = state
        if not finished:
            self._schedule(key)


def _next_report(run: _Run) -> float:
    return min(run.reported + run.job.request.epoch, float(run.target))


def grant_of(placement: Placement) -> Grant:
    """Return what a placement holds, by node."""
    gpus: dict[str, int] = {}
    servers: dict[str, int] = {}
    for node, _ in placement.devices:
        gpus[node] = gpus.get(node, 0) + 1
    for node in placement.servers:
        servers[node] = servers.get(node, 0) + 1
    return Grant.of(gpus, servers, placement.batch_size)
