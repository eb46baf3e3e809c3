"""An engine in simulated time whose jobs synchronise over a simulated network: an iteration takes as long as its coflow does.

A job computes as long as its profile says for what it was given, then its coflow has to be carried, in competition with those
of the other jobs. What a change of GPUs costs is waited for before the first iteration. As under the engine of real processes,
a job that is moved or parked leaves at the end of the iteration that it is in, and one that is suspended stops at once.
Resumed, it goes on with its start, or with what it had computed of its iteration; what its coflow had carried is sent again. It
reports by the clock, when it is first started, and at its end.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from beamer.engines.simulated import SimulatedJob, grant_of, stays
from beamer.errors import EngineError, InputError
from beamer.gpu.engine import Engine, Observed, Placement, RunState, check_placement
from beamer.gpu.model import Node, Report, Speed
from beamer.network.job import job_spec
from beamer.sim.network_level import NetworkLevel
from beamer.studies.model import split_key


@dataclass
class _Run:
    """A job that was started. iteration: from which on it runs, or where it stands. parts: sub-steps of a step."""

    job: SimulatedJob
    target: int
    state: RunState = RunState.PARKED
    placement: Placement | None = None
    iteration: float = 0.0
    per_step: float = 1.0  # iterations that a step is worth
    steps: int = 0  # steps for which it was started
    compute_s: float = 0.0  # seconds of computing per step
    parts: int = 1
    changed_s: float = 0.0  # time of the last change of its GPUs
    since_s: float = 0.0  # The job computes from this time on.
    service_s: float = 0.0  # seconds of service until since_s
    computed_s: float = 0.0  # seconds computed of the iteration in which it is suspended
    starting_s: float = 0.0  # seconds that its start has still to take, where it is suspended before its first iteration
    following: Placement | None = None  # the placement that it gets when it leaves at the end of its iteration; None: none
    suspends: bool = False  # True: the job is suspended there.
    reported_s: float = 0.0  # time at which the steps of the next measured speed begin
    reported_steps: int = 0
    launch: int = 0
    version: int = 0
    reports: list[Report] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    costs_due: bool = True


class NetworkedEngine(Engine):
    """Runs jobs of known compute times and convergence on a simulated network.

    nodes: hosts of the network with their GPUs. jobs: by key, all that will ever be started. target: the iteration after which
    a job that is started is to end. report_s: seconds between two reports. on_report: called when a job has reported.
    lost_s: GPU-seconds on changes and on iterations that were not finished, by job. started_s: when each first ran.
    """

    def __init__(
        self,
        level: NetworkLevel,
        nodes: Sequence[Node],
        jobs: Mapping[str, SimulatedJob],
        target: Callable[[str], int],
        report_s: float,
        on_report: Callable[[], None],
    ) -> None:
        if not 0 < report_s < math.inf:
            raise InputError("report_s", report_s, "a finite number of seconds above 0")
        for key, job in jobs.items():
            if not job.request.gang:
                raise InputError(
                    f"{key}: request.gang", False, "true: on a network a job has all the GPUs that it needs or none"
                )
            if job.request.traffic.sync_bytes is None:
                expected = "the bytes that the job's workers synchronise in a step"
                raise InputError(f"{key}: request.traffic.sync_bytes", None, expected)
        self.lost_s: dict[str, float] = {}
        self.started_s: dict[str, float] = {}
        self._level = level
        self._nodes = {node.name: node for node in nodes}
        self.jobs = dict(jobs)
        self._target = target
        self._report_s = report_s
        self._on_report = on_report
        self._runs: dict[str, _Run] = {}
        self._launches: dict[str, int] = {}
        self._saved: dict[str, _Run] = {}  # runs as they stood when they were stopped after their end

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes, all of which are up."""
        return tuple(self._nodes.values())

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Run a job; for the cost of a restart if it ran before, or of resuming if it is suspended on these GPUs."""
        check_placement(f"{job}: start", placement, self._nodes)
        if job not in self.jobs:
            raise EngineError(f"{job}: start: there is no such job")
        run = self._runs.get(job)
        if run is None:
            saved = self._saved.get(job)
            run = self._runs[job] = _Run(self.jobs[job], self._target(job), launch=self._launches.get(job, 0))
            if saved:
                run.iteration, run.service_s = saved.iteration, saved.service_s
        costs = run.job.costs
        if run.state is RunState.STOPPING:
            run.following, run.suspends = placement, False
        elif run.state is RunState.SUSPENDED:
            self.resume(job) if run.placement == placement else self.resize(job, placement)
        elif run.state is RunState.PARKED:
            self._run_on(job, placement, costs.restart_s if job in self.started_s else run.job.start_s, launches=True)

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        """Stop a job; what it takes is charged when the job is resumed."""
        run = self._known(job, "suspend")
        run.suspends = run.state is RunState.STOPPING
        if run.state is RunState.RUNNING:
            self._leave(job, RunState.SUSPENDED)

    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        """Continue after what suspending and resuming take."""
        run = self._known(job, "resume")
        run.suspends = False
        if run.state is RunState.PARKED:
            raise EngineError(f"{job}: resume: it is parked and its memory gone; start it")
        if run.state is RunState.SUSPENDED and run.placement:
            cost_s = run.job.costs.suspend_s + run.job.costs.resume_s + run.starting_s
            self._run_on(job, run.placement, cost_s, launches=False)

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Continue elsewhere after what a restart takes, or at another batch size after what that takes."""
        run = self._known(job, "resize")
        if placement is not None:
            check_placement(f"{job}: resize", placement, self._nodes)
        before, is_running = run.placement, run.state is RunState.RUNNING
        if run.state.is_finished or (placement == before and is_running):
            return
        if is_running and placement is not None and before is not None and stays(before, placement):
            self._leave(job, RunState.PARKED)
            # The previous change may still take longer.
            self._run_on(job, placement, max(run.since_s - self._level.now_s, run.job.costs.rebatch_s), launches=True)
        elif run.state.is_computing and self._level.now_s > self._level.iteration_began_s(job):
            self._leave_after_iteration(job, placement)
        else:
            self._go(job, placement)

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """End a job; it is not known any more."""
        run = self._runs.get(job)
        if run is None:
            return
        if run.state is RunState.FINISHED:
            self._saved[job] = run
        self._leave(job, RunState.PARKED)
        del self._runs[job]

    def report(self) -> Mapping[str, Observed]:
        """Return what each job that was started and not stopped does."""
        observed: dict[str, Observed] = {}
        for key, run in self._runs.items():
            costs = run.job.costs if run.costs_due else None
            ended = run.state.is_finished
            observed[key] = Observed(
                run.state, None if ended else run.placement, tuple(run.reports), tuple(run.speeds), costs,
                target=run.target, launch=run.launch,
            )  # fmt: skip
            run.reports[:] = run.reports[-1:] if ended else []
            run.speeds.clear()
            run.costs_due = False
        return observed

    def finish(self, job: str) -> None:
        """Take in that the network level has carried all iterations of a job."""
        run, now = self._runs[job], self._level.now_s
        self._take_report(run, run.steps, now)
        self._charge(job, run.since_s - run.changed_s)
        run.service_s += now - run.since_s
        run.version += 1
        if run.state is RunState.STOPPING and (iteration := self._iteration(run, run.steps)) < run.target:
            run.iteration, run.state = iteration, RunState.PARKED
            following = run.following if run.following and self._are_free(run.following) else None
            suspends, run.suspends = run.suspends, False
            self._go(job, following)
            if suspends:
                self.suspend(job)
        else:
            run.iteration = float(run.target)
            run.state, run.placement = RunState.FINISHED, None
        self._on_report()

    def sent_bytes(self, job: str, declared: int) -> int:
        """Return what a synchronisation sends of a job that declares so many bytes."""
        return declared

    def loses_report(self) -> bool:
        """Say of one report after another, but for those of starts and ends, whether nobody hears it."""
        return False

    def _leave_after_iteration(self, key: str, following: Placement | None) -> None:
        """Have a job leave its GPUs at the end of the iteration that it is in, for others if they are free then."""
        run = self._runs[key]
        run.following, run.suspends = following, False
        if run.state is RunState.RUNNING:
            run.steps = self._done(key) + 1
            run.state = RunState.STOPPING
            self._level.end_after_iteration(key)

    def _go(self, key: str, placement: Placement | None) -> None:
        """Have a job that is between two iterations run elsewhere, or nowhere."""
        self._leave(key, RunState.PARKED)
        if placement is not None:
            self._run_on(key, placement, self._runs[key].job.costs.restart_s, launches=True)

    def _are_free(self, placement: Placement) -> bool:
        """Return whether no job that computes has any of some GPUs."""
        held = (run.placement.devices for run in self._runs.values() if run.state.is_computing and run.placement)
        return set(placement.devices).isdisjoint(chain.from_iterable(held))

    def _known(self, job: str, call: str) -> _Run:
        if job not in self._runs:
            raise EngineError(f"{job}: {call}: no such job has been started")
        return self._runs[job]

    def _run_on(self, key: str, placement: Placement, cost_s: float, launches: bool) -> None:
        run, now = self._runs[key], self._level.now_s
        grant = grant_of(placement)
        batch_size = placement.batch_size or run.job.request.batch_size
        speed = run.job.step(grant, batch_size)
        run.compute_s, run.parts = speed.step_s - speed.sync_s, speed.sub_steps
        run.per_step = batch_size / run.job.request.batch_size * run.job.profile.efficiency(batch_size, run.iteration)
        run.steps = max(math.ceil((run.target - run.iteration) / run.per_step), 1)
        run.placement, run.state = placement, RunState.RUNNING
        run.changed_s, run.since_s = now, now + cost_s
        head_s = run.computed_s
        run.computed_s, run.starting_s, run.following = 0.0, 0.0, None
        run.reported_s = run.since_s - head_s
        run.reported_steps = 0
        run.launch += launches
        self._launches[key] = run.launch
        run.version += 1
        if key not in self.started_s:
            self.started_s[key] = now
            run.speeds += [run.job.step(one, one.batch_size or batch_size) for one in run.job.profiled]
            self._take_report(run, 0, now)
        declared = run.job.request.traffic
        sent = self.sent_bytes(key, declared.sync_bytes or 0)
        traffic = replace(declared, compute_s=run.compute_s, sync_bytes=sent)
        spec = replace(job_spec(split_key(key)[1], self._level.attempt(key).workers, traffic), iterations=run.steps)
        self._level.forget_class(key)
        self._level.run([(key, spec)], cost_s - head_s, done=int(run.iteration), steps=run.per_step)
        self._level.after(self._report_s, partial(self._look, key, run.version))

    def _leave(self, key: str, state: RunState) -> None:
        """Stop a job that runs, and have it in another state from now on."""
        run = self._runs[key]
        if run.state is RunState.SUSPENDED:
            self._charge(key, run.computed_s)
        run.computed_s = run.starting_s = 0.0
        if run.state.is_computing:
            now, done, began_s = self._level.now_s, self._done(key), self._level.iteration_began_s(key)
            if done > run.reported_steps:
                self._take_report(run, done, began_s)
            starting_s = max(run.since_s - now, 0.0)
            # A part of the iteration may have been computed before it was resumed.
            in_iteration_s = max(now + starting_s - began_s, 0.0)
            if state is RunState.SUSPENDED:
                run.computed_s, run.starting_s = min(in_iteration_s, run.compute_s), starting_s
            self._charge(key, min(now, run.since_s) - run.changed_s + in_iteration_s - run.computed_s)
            run.iteration = self._iteration(run, done)
            run.service_s += max(now - run.since_s, 0.0)
            self._level.stop([key])
        run.version += 1
        run.state = state
        if state is RunState.PARKED:
            run.placement = None

    def _done(self, key: str) -> int:
        return self._runs[key].steps - self._level.remaining(key)

    def _iteration(self, run: _Run, steps: int) -> float:
        return min(run.iteration + steps * run.per_step, float(run.target))

    def _look(self, key: str, version: int) -> None:
        """Have a job that still runs as it did report if it has come farther, and look again."""
        run = self._runs.get(key)
        if run is None or run.version != version:
            return
        done = self._done(key)
        if done > run.reported_steps and not self.loses_report():
            self._take_report(run, done, self._level.iteration_began_s(key))
            self._on_report()
        self._level.after(self._report_s, partial(self._look, key, version))

    def _charge(self, key: str, seconds: float) -> None:
        """Count seconds in which a job that has GPUs does nothing that lasts."""
        placement = self._runs[key].placement
        assert placement
        self.lost_s[key] = self.lost_s.get(key, 0.0) + seconds * len(placement.devices)

    def _take_report(self, run: _Run, steps: int, until_s: float) -> None:
        """Report how far a job has come by so many steps of its present run, the last of which ended at a time."""
        now = self._level.now_s
        iteration = self._iteration(run, steps)
        batch_size = (run.placement.batch_size if run.placement else 0) or run.job.request.batch_size
        outcome = run.job.profile.outcome(iteration)
        gradient = run.job.profile.gradient(batch_size, iteration)
        service_s = run.service_s + max(now - run.since_s, 0.0)
        run.reports.append(Report(now, iteration, outcome.loss, service_s, outcome.accuracy, *gradient))
        if run.placement and steps > run.reported_steps:
            grant = grant_of(run.placement)
            step_s = (until_s - run.reported_s) / (steps - run.reported_steps)
            sync_s = max(step_s - run.compute_s, 0.0)
            run.speeds.append(Speed(grant.size, grant.nodes, grant.served, batch_size, step_s, sync_s, run.parts))
            run.reported_s, run.reported_steps = until_s, steps
