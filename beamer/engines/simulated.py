"""A simulated cluster: jobs of known speed and convergence on virtual GPUs, in virtual time that its owner advances.

Rates are constant within an epoch. A job reports when it first starts, at its end, and in between after every epoch, or by the
clock: at multiples of `SimulatedJob.report_s`, so that jobs with the same one report at the same time. A change of GPUs takes
effect at once and costs the job the seconds of `Costs`; it continues from where it was, or, after its node has failed, from its
last report. A job that has finished saves what it has come to, and continues from there if it is started with a farther target.
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from beamer.errors import EngineError, InputError
from beamer.gpu.engine import Engine, Observed, Placement, RunState, check_placement
from beamer.gpu.model import Costs, Grant, Node, Report, Request, Speed


@dataclass(frozen=True)
class Outcome:
    """How good a job's model is at some iteration; as in `Report`."""

    loss: float
    accuracy: float | None = None


class SimulatedProfile(ABC):
    """How a simulated job behaves."""

    @abstractmethod
    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return how long a step of `batch_size` samples takes on `grant`, and how much of that it synchronises, seconds.

        Of a job that accumulates gradients: a sub-step with the synchronisation.
        """

    @abstractmethod
    def outcome(self, iteration: float) -> Outcome:
        """Return what it has learned after so many iterations."""

    def efficiency(self, batch_size: int, iteration: float) -> float:
        """Return the progress per sample at `batch_size`, relative to that at the requested one."""
        return 1.0

    def gradient(self, batch_size: int, iteration: float) -> tuple[float, float]:
        """Return the squared norm and the variance of its gradients as measured at `batch_size`, as in `Report`; 0: not."""
        return 0.0, 0.0

    def epoch_end(self, request: Request, iteration: float) -> float:
        """Return the iteration, a later one, up to which its efficiency stays as it is: where the next epoch begins."""
        return (iteration // request.epoch + 1) * request.epoch

    def sub_steps(self, request: Request, gpus: int, batch_size: int) -> int:
        """Return in how many sub-steps so many GPUs take a batch."""
        return request.sub_steps(gpus, batch_size)


@dataclass(frozen=True)
class SimulatedJob:
    """A job of a simulated cluster.

    report_s: seconds between two reports; 0: one per epoch. start_s: what its first start takes. profiled: grants on which its
    speed was measured beforehand, known when it first starts.
    """

    request: Request
    profile: SimulatedProfile
    costs: Costs = field(default=Costs())
    report_s: float = 0.0
    start_s: float = 0.0
    profiled: tuple[Grant, ...] = ()

    def __post_init__(self) -> None:
        for name in ("report_s", "start_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(name, getattr(self, name), "a finite number of at least 0")

    def step(self, grant: Grant, batch_size: int) -> Speed:
        """Return how long a step takes, all its sub-steps together: only the last one synchronises."""
        parts = self.profile.sub_steps(self.request, grant.size, batch_size)
        step_s, sync_s = self.profile.step_s(grant, -(-batch_size // parts))
        step_s += (parts - 1) * (step_s - sync_s)
        return Speed(grant.size, grant.nodes, grant.served, batch_size, step_s, sync_s, parts)


@dataclass
class _Run:
    job: SimulatedJob
    target: int  # The run ends after so many iterations.
    state: RunState = RunState.PARKED
    placement: Placement | None = None
    iteration: float = 0.0  # iterations done at since_s
    since_s: float = 0.0  # The run computes from this time on.
    charged_s: float = 0.0  # The cost of the last change is counted up to this time.
    speed: Speed | None = None  # speed of its steps; None while it does not compute
    due: float = 0.0  # The next report comes after so many iterations.
    service_s: float = 0.0
    reported: float = 0.0  # iterations at the last report
    unreported_gpu_s: float = 0.0  # GPU-seconds spent computing since the last report
    version: int = 0
    started: bool = False

    @property
    def batch_size(self) -> int:
        return (self.placement.batch_size if self.placement else 0) or self.job.request.batch_size

    def rate(self, iteration: float) -> float:
        """Return iterations per second."""
        assert self.speed
        efficiency = self.job.profile.efficiency(self.batch_size, iteration)
        return self.batch_size / self.job.request.batch_size * efficiency / self.speed.step_s

    def epoch_end(self, iteration: float) -> float:
        by_clock = self.job.report_s > 0
        request = self.job.request
        end = self.job.profile.epoch_end(request, iteration) if by_clock else self.reported + request.epoch
        return min(end, float(self.target))

    def after(self, seconds: float, most: float) -> tuple[float, float]:
        """Return how far it comes in so many seconds, at most to `most`, and how many of them it takes."""
        iteration, taken_s = self.iteration, 0.0
        while iteration < most and taken_s < seconds:
            end, rate = min(self.epoch_end(iteration), most), self.rate(iteration)
            if end <= iteration:  # The run would never pass an epoch that ends where it begins.
                end = most
            if rate * (seconds - taken_s) < end - iteration:
                return iteration + rate * (seconds - taken_s), seconds
            taken_s += (end - iteration) / rate
            iteration = end
        return iteration, taken_s


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
        self._launches: dict[str, int] = {}
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
                self.lost_s[key] = self.lost_s.get(key, 0.0) + run.unreported_gpu_s
                run.iteration, run.unreported_gpu_s = run.reported, 0.0
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
            self._run_on(job, placement, run.job.costs.restart_s if run.started else run.job.start_s)

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
            self._run_on(job, run.placement, run.job.costs.suspend_s + run.job.costs.resume_s, is_launch=False)

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Continue elsewhere after what a restart takes, or at another batch size after what that takes."""
        run = self._known(job, "resize")
        if placement is not None:
            check_placement(f"{job}: resize", placement, self._nodes)
        if run.state.is_finished or (placement == run.placement and run.state is RunState.RUNNING):
            return
        if run.state is RunState.RUNNING:
            self._settle(job)
        if placement is None:
            self._leave(job, RunState.PARKED)
        elif run.state is RunState.RUNNING and run.placement and stays(run.placement, placement):
            ready_s = max(run.since_s - self.now, 0.0)  # The previous change may still take this long.
            self._run_on(job, placement, max(ready_s, run.job.costs.rebatch_s))
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
            self._observed[job] = Observed(RunState.PARKED, target=target, launch=self._launches.get(job, 0))
        return run

    def _known(self, job: str, call: str) -> _Run:
        if job not in self._runs:
            raise EngineError(f"{job}: {call}: no such job has been started")
        return self._runs[job]

    def _run_on(self, key: str, placement: Placement, cost_s: float, is_launch: bool = True) -> None:
        run = self._runs[key]
        launch = self._launches[key] = self._launches.get(key, 0) + is_launch
        run.placement = placement
        run.state = RunState.RUNNING
        run.since_s = self.now + cost_s
        run.charged_s = self.now
        first = not run.started
        run.started = True
        self.started_s.setdefault(key, self.now)
        if first:
            speeds = tuple(run.job.step(grant, grant.batch_size or run.batch_size) for grant in run.job.profiled)
            self._observed[key] = Observed(
                run.state, placement, (self._report(run),), speeds, run.job.costs, target=run.target, launch=launch
            )
        else:
            self._observed[key] = replace(self._observed[key], state=run.state, placement=placement, launch=launch)
        grant = grant_of(placement)
        run.speed = run.job.step(grant, run.batch_size) if grant.size >= run.job.request.least else None
        self._schedule(key)

    def _schedule(self, key: str) -> None:
        """Note when a job that runs reports next."""
        run = self._runs[key]
        run.version += 1
        if run.speed is None or run.rate(run.iteration) <= 0:
            return
        clock_s = _next_multiple(run.job.report_s, self.now) if run.job.report_s else math.inf
        most = float(run.target) if run.job.report_s else run.epoch_end(run.iteration)
        run.due, seconds = run.after(max(clock_s - run.since_s, 0.0), most)
        at_s = run.since_s + seconds if run.due >= most else clock_s
        heapq.heappush(self._due, (at_s, next(self._order), key, run.version))

    def _report(self, run: _Run) -> Report:
        outcome = run.job.profile.outcome(run.iteration)
        gradient = run.job.profile.gradient(run.batch_size, run.iteration)
        return Report(self.now, run.iteration, outcome.loss, run.service_s, outcome.accuracy, *gradient)

    def _settle(self, key: str) -> None:
        """Count what a running job has done until now, and what its last change has cost until now."""
        run = self._runs[key]
        assert run.placement
        gpus = len(run.placement.devices)
        changing_s = max(min(self.now, run.since_s) - run.charged_s, 0.0)
        self.lost_s[key] = self.lost_s.get(key, 0.0) + changing_s * gpus
        run.charged_s = max(run.charged_s, self.now)
        seconds = max(self.now - run.since_s, 0.0)
        if run.speed:
            run.iteration, _ = run.after(seconds, run.due)
            run.service_s += seconds
            run.unreported_gpu_s += seconds * gpus
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
        if run.due > run.reported or run.due >= run.target:
            run.iteration = run.reported = run.due
            run.unreported_gpu_s = 0.0
            finished = run.iteration >= run.target
            run.state = RunState.FINISHED if finished else RunState.RUNNING
            last, speeds = self._observed[key], (run.speed,) if run.speed else ()
            self._observed[key] = Observed(
                run.state,
                None if finished else run.placement,
                (*last.reports, self._report(run)),
                (*last.speeds, *speeds),
                last.costs,
                target=run.target,
                launch=last.launch,
            )
        if run.state is RunState.RUNNING:
            self._schedule(key)


def _next_multiple(of_s: float, after_s: float) -> float:
    count = math.floor(after_s / of_s) + 1
    return count * of_s if count * of_s > after_s else (count + 1) * of_s


def stays(one: Placement, other: Placement) -> bool:
    """Say whether two placements differ in no more than the batch size."""
    return (one.devices, one.servers) == (other.devices, other.servers)


def grant_of(placement: Placement) -> Grant:
    """Return what a placement holds, by node."""
    gpus: dict[str, int] = {}
    servers: dict[str, int] = {}
    for node, _ in placement.devices:
        gpus[node] = gpus.get(node, 0) + 1
    for node in placement.servers:
        servers[node] = servers.get(node, 0) + 1
    return Grant.of(gpus, servers, placement.batch_size)
