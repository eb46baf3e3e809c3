"""What the GPU level knows: nodes, the jobs of trials with all that they reported, and what each was granted."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from types import MappingProxyType
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.gpu.attempts import attached, attempt_end, runs_on, traffic_on, workers_on
from beamer.gpu.devices import Devices, assign, check_devices
from beamer.gpu.events import (
    Allocated,
    GpusRequested,
    NodesSeen,
    RanksSeen,
    ReportRefused,
    RunFailed,
    RunFinished,
    TrialReported,
    TrialSampled,
)
from beamer.gpu.model import Cluster, Grant, Job, Report, RungWithoutBarrier, Speed, Stage, check_allocation, check_nodes
from beamer.studies.events import (
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    TargetSet,
    TrialEnded,
)
from beamer.studies.model import MAX_STEPS, EndReason, Process, StageKey, split_key, trial_key
from beamer.studies.records import StageRecord, TrialRecord
from beamer.studies.registration import check_process, check_step
from beamer.studies.tracker import Ledger, Tracker, is_new_decision

LAST = 5  # So many of the latest measurements of a shape's speed count.


@dataclass(frozen=True)
class _State:
    """See `GpuLedger`. jobs, ended: what they know of their stages left out. measured: by job, of each shape."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    cluster: Cluster
    jobs: tuple[Job, ...]
    requested: dict[str, int]
    finished: dict[str, int]
    failures: dict[str, tuple[RunFailed, ...]]
    refused: dict[str, str]
    ended: tuple[Job, ...]
    devices: dict[str, Devices]
    measured: dict[str, list[list[Speed]]]
    decision: Allocated | None
    processes: dict[str, dict[str, Process]]


_STATE = TypeAdapter(_State)


class GpuLedger(Ledger):
    """Know the cluster, the job of every trial that asks for GPUs, and the latest allocation; only its tracker changes it.

    A job ends at its trial's target. At rest there, it wants no GPUs until its trial has a farther one.
    """

    def __init__(self) -> None:
        self.cluster = Cluster(())
        self._jobs: dict[str, Job] = {}  # A job's `request.iterations` is its present target.
        self._requested: dict[str, int] = {}  # iterations that each job asked for
        self._finished: dict[str, int] = {}  # the step at which each job's last run has ended
        self._failures: dict[str, tuple[RunFailed, ...]] = {}
        self._refused: dict[str, str] = {}
        self._ended: dict[str, Job] = {}
        self._devices: dict[str, Devices] = {}
        self._measured: dict[str, dict[tuple[int, int, int, int], list[Speed]]] = {}
        # Each job's processes are kept by node; suspended and parked jobs keep theirs.
        self._processes: dict[str, dict[str, Process]] = {}
        self._stale: set[StageKey] = set()
        self._decision: Allocated | None = None

    def __eq__(self, other: object) -> bool:
        """Compare what is known; what `submitted` works out of it when it is asked is left out."""
        return isinstance(other, GpuLedger) and self._facts() == other._facts()

    __hash__ = None  # The ledger changes.

    def _facts(self) -> dict[str, object]:
        return {**vars(self), "_stale": None, "_jobs": _bare(self._jobs), "_ended": _bare(self._ended)}

    def state(self) -> str:
        """Return all that is known as JSON."""
        measured = {key: list(by_shape.values()) for key, by_shape in self._measured.items()}
        state = _State(
            self.cluster,
            tuple(_bare(self._jobs).values()),
            self._requested,
            self._finished,
            self._failures,
            self._refused,
            tuple(_bare(self._ended).values()),
            self._devices,
            measured,
            self._decision,
            self._processes,
        )
        return _STATE.dump_json(state).decode()

    def restore(self, state: str) -> None:
        """Know in a new ledger what `state` returned. Raises `ValueError` for anything else."""
        read = _STATE.validate_json(state)
        self.cluster, self._decision = read.cluster, read.decision
        self._jobs = {job.key: job for job in read.jobs}
        self._ended = {job.key: job for job in read.ended}
        self._requested, self._finished, self._failures = read.requested, read.finished, read.failures
        self._refused, self._devices, self._processes = read.refused, read.devices, read.processes
        self._measured = {
            key: {(of[0].gpus, of[0].nodes, of[0].servers, of[0].batch_size): of for of in shapes}
            for key, shapes in read.measured.items()
        }
        for job in read.jobs:
            self._refresh(job.stage)

    @property
    def decision(self) -> Allocated | None:
        """The latest decision, None before the first."""
        return self._decision

    @property
    def granted(self) -> Mapping[str, Grant]:
        """What the latest decision grants to jobs that have neither ended nor come to their targets since."""
        last = self._decision.grants if self._decision else {}
        return {key: grant for key, grant in last.items() if (job := self._jobs.get(key)) and job.grant}

    def assigned(
        self, grants: Mapping[str, Grant], prepared: Mapping[str, Devices] = MappingProxyType({})
    ) -> dict[str, Devices]:
        """Return the GPUs that `grants` mean: jobs stay on those that they have as far as they can.

        prepared: the GPUs that processes of other jobs were started for, ahead of their turn.
        """
        running = {key for key, job in self._jobs.items() if job.grant}
        ahead = {key: devices for key, devices in prepared.items() if key not in running}
        return assign(self.cluster, grants, {**self._devices, **ahead}, running)

    @property
    def ended(self) -> Mapping[str, Job]:
        """The jobs of trials that have ended, as they were then."""
        return MappingProxyType(self._ended)

    @property
    def devices(self) -> Mapping[str, Devices]:
        """The GPUs that each job was given last, whether or not it has them now."""
        return MappingProxyType(self._devices)

    @property
    def live_jobs(self) -> Collection[str]:
        """The jobs of trials that have not ended, those at rest included."""
        return self._jobs.keys()

    def job(self, key: str) -> Job | None:
        """Return the job of a trial that has not ended; its `request.iterations` are the trial's present target."""
        return self._jobs.get(key)

    def is_complete(self, key: str) -> bool:
        """Say whether a job's last run came as far as its trial asked for."""
        return self._finished.get(key, 0) >= self._requested[key]

    def failures(self, key: str) -> tuple[RunFailed, ...]:
        """Return the failures of a trial's runs, oldest first."""
        return self._failures.get(key, ())

    def failed_launch(self, key: str) -> int:
        """Return the latest launch of a trial that has failed, 0 where none has: what runs of it is to be ended."""
        return max((failure.launch for failure in self.failures(key)), default=0)

    def refused(self, key: str) -> str:
        """Return why a report of a trial was refused first, "" if none was."""
        return self._refused.get(key, "")

    def submitted(self, tracker: Tracker) -> tuple[Job, ...]:
        """Return what a policy decides on: the jobs that want GPUs, in the order in which their trials asked first."""
        for study, name in self._stale:
            stage = tracker.stage(study, name)
            facts = self._stage(study, stage, tracker)
            for trial in stage.targets:
                job = self._jobs.get(trial_key(study, trial))
                if job and job.stage.name == name:
                    self._jobs[job.key] = replace(job, stage=facts)
        self._stale.clear()
        return tuple(job for job in self._jobs.values() if self._wants_gpus(job))

    def check(self, event: Event, tracker: Tracker) -> bool | None:
        """Check nodes, requests, reports, ends of runs, and decisions. A draw is new until its trial is registered."""
        match event:
            case TrialSampled(study=study, trial=trial, number=number):
                check_step(number, "number")
                return trial not in tracker.study(study).trials
            case NodesSeen(nodes=nodes):
                check_nodes(nodes)
                return nodes != self.cluster.nodes
            case GpusRequested():
                return self._check_request(event, tracker.trial(event.trial))
            case TrialReported():
                return self._check_report(event, tracker.trial(event.trial))
            case RunFinished(trial=key, step=step):
                check_step(step, "step", 1)
                return self._asks(tracker.trial(key)) and step > self._finished.get(key, 0)
            case RunFailed(trial=key, launch=launch):
                check_step(launch, "launch")
                return self._asks(tracker.trial(key)) and (launch == 0 or launch > self.failed_launch(key))
            case RanksSeen(trial=key, processes=processes):
                for process in processes.values():
                    check_process(process)
                return self._asks(tracker.trial(key)) and processes != self._processes.get(key, {})
            case ReportRefused(trial=key):
                return self._asks(tracker.trial(key)) and key not in self._refused
            case Allocated():
                if not is_new_decision(event, self._decision):
                    return False
                check_allocation(self.cluster, self.submitted(tracker), event.grants)
                check_devices(self.cluster, event.grants, event.devices)
                return True
        return None

    def entailed(self, event: Event, tracker: Tracker) -> Iterable[Event]:
        """Return the progress of trials that report, and their attempts, which start and end with the GPUs that they have."""
        match event:
            case TrialReported(at_s=at_s, trial=key, report=Report(iteration=iteration, loss=loss)) if key in self._jobs:
                yield Progressed(at_s, key, int(iteration), loss)
            case RunFinished(at_s=at_s, trial=key, step=step) if key in self._jobs:
                yield Progressed(at_s, key, step)
                if self._jobs[key].grant:
                    yield from attempt_end(at_s, tracker.trials[key])
            case RunFailed(at_s=at_s, trial=key) if key in self._jobs and self._jobs[key].grant:
                yield from attempt_end(at_s, tracker.trials[key], EndReason.LOST)
            case RanksSeen(at_s=at_s, trial=key, processes=processes) if (job := self._jobs.get(key)) and (grant := job.grant):
                devices, attempt = self._devices[key], tracker.trials[key].attempt
                if runs_on(devices, processes):
                    if attempt is None or attempt.workers != workers_on(grant, devices):  # The trial has moved there.
                        assert self._decision, "it has GPUs"
                        yield self._attempt(at_s, key, self._decision)
                    yield from attached(at_s, key, devices, processes)
            case Allocated():
                yield from self._attempts(event, tracker)

    def apply(self, event: Event, tracker: Tracker) -> None:
        """Take in what `check` says concerns this level, and what happens to trials and stages."""
        match event:
            case NodesSeen(nodes=nodes):
                self.cluster = Cluster(nodes)
            case GpusRequested():
                self._request(event, tracker.trials[event.trial])
            case TrialReported():
                self._report(event)
            case RunFinished(trial=key, step=step) if key in self._jobs:
                self._finished[key] = step
                self._processes.pop(key, None)
                self._jobs[key] = self._jobs[key].regranted(None, event.at_s)
                self._refresh(self._jobs[key].stage)
            case RunFailed(trial=key) if key in self._jobs:
                self._fail(event)
            case ReportRefused(trial=key, reason=reason):
                self._refused[key] = reason
            case Allocated():
                self._allocate(event)
            case TargetSet(trial=key, stage=stage):
                if stage is not None:
                    self._stale.add((split_key(key)[0], stage))
                if key in self._jobs:
                    self._aim(tracker.trials[key], event.at_s)
            case StageSealed(study=study, stage=stage):
                self._stale.add((study, stage))
            case StageRegistered(study=study) | StudyRegistered(study=study):  # Other rungs are among the later ones now.
                self._stale.update((study, stage) for stage in tracker.studies[study].stages)
            case RanksSeen(trial=key, processes=processes) if key in self._jobs:
                self._processes[key] = processes
            case TrialEnded(trial=key) if key in self._jobs:
                self._end(key, event.at_s)

    def begin_anew(self, study: str) -> None:
        """Forget the jobs of a study's trials."""
        known: dict[str, Any]
        for known in (self._requested, self._finished, self._failures, self._refused, self._ended):
            for key in [key for key in known if split_key(key)[0] == study]:
                known.pop(key)
        self._stale = {key for key in self._stale if key[0] != study}

    def _wants_gpus(self, job: Job) -> bool:
        return job.request.iterations > self._finished.get(job.key, 0)

    # Trials and stages.

    def _check_request(self, event: GpusRequested, trial: TrialRecord) -> bool:
        """Say whether a request is the first.

        Raises `ConflictError` for another one than before, and where the trial has ended.
        """
        if trial.key not in self._requested:
            if trial.status.is_finished:
                raise ConflictError("trial", trial.key, f"one that has not ended; it is {trial.status.value}")
            return True
        known = (self._jobs.get(trial.key) or self._ended[trial.key]).request
        for name, value in vars(event.request).items():
            before = self._requested[trial.key] if name == "iterations" else getattr(known, name)
            if value != before:
                raise ConflictError(f"request.{name}", value, f"{before!r}, with which {trial.key} asked for GPUs")
        return False

    def _request(self, event: GpusRequested, trial: TrialRecord) -> None:
        self._jobs[trial.key] = Job.waiting(trial.key, event.request, event.at_s, Stage(trial.study, ""))
        self._requested[trial.key] = event.request.iterations
        self._aim(trial, event.at_s)

    def _aim(self, trial: TrialRecord, at_s: float) -> None:
        """Give a trial's job its target, and the stage that waits for it; a job at rest waits for GPUs from now on."""
        job = self._jobs[trial.key]
        rested = not self._wants_gpus(job)
        request = replace(job.request, iterations=trial.farthest or self._requested[trial.key])
        stage = Stage(trial.study, trial.target.stage or "" if trial.target else "")
        job = replace(job, request=request, stage=stage)
        self._jobs[trial.key] = replace(job, since_s=at_s) if rested and self._wants_gpus(job) else job
        self._refresh(stage)

    def _refresh(self, stage: Stage) -> None:
        """Have what the jobs of a stage know of it worked out again."""
        if stage.name:
            self._stale.add((stage.study, stage.name))

    def _stage(self, study: str, stage: StageRecord, tracker: Tracker) -> Stage:
        """Return what is known of a stage now."""
        record = tracker.studies[study]
        names = [rung.name for rung in record.rungs]
        # Trials can be promoted before a rung is over: then the next rung has begun, and is not among the later ones any more.
        later = record.rungs[names.index(stage.name) + 1 :] if stage.name in names else record.later
        losses = (self._loss_at(trial_key(study, trial), step) for trial, step in stage.targets.items())
        kind = Stage if record.barriers else RungWithoutBarrier
        return kind(
            study,
            stage.name,
            len(stage.targets),
            later[0].trials or None if later else None,
            tuple(loss for loss in losses if loss is not None),
            stage.sealed_s is not None,
        )

    def _loss_at(self, key: str, step: int) -> float | None:
        """Return the last loss up to a step of a trial whose processes have come to it, or which has ended."""
        if key not in self._ended and self._finished.get(key, 0) < step:
            return None
        job = self._jobs.get(key) or self._ended.get(key)
        return next((report.loss for report in reversed(job.reports) if report.iteration <= step), None) if job else None

    def _fail(self, event: RunFailed) -> None:
        """Take its GPUs from a job whose run has failed; it has not been silent since."""
        job = self._jobs[event.trial].regranted(None, event.at_s)
        self._processes.pop(job.key, None)
        self._failures[job.key] = (*self.failures(job.key), event)
        self._jobs[job.key] = job.heard_at(event.at_s)

    def _end(self, key: str, at_s: float) -> None:
        """Move a job to those that have ended."""
        job = self._jobs.pop(key)
        self._ended[key] = job.regranted(None, at_s)
        self._devices.pop(key, None)
        self._measured.pop(key, None)
        self._processes.pop(key, None)
        self._refresh(job.stage)

    # Reports.

    def _asks(self, trial: TrialRecord) -> bool:
        """Say whether a trial has a job, or had one. Raises `NotFoundError` for one that never asked for GPUs."""
        if trial.key not in self._requested:
            raise NotFoundError("trial", trial.key, "a trial that has asked for GPUs")
        return trial.key in self._jobs

    def _check_report(self, event: TrialReported, trial: TrialRecord) -> bool:
        """Say whether a report changes anything: not one of a trial that has ended, nor of progress that was reported before.

        Raises `InputError` for progress that cannot be.
        """
        if not self._asks(trial):
            return False
        job = self._jobs[trial.key]
        for name, seconds in vars(event.costs).items() if event.costs else ():
            if seconds is not None and not 0 <= seconds < inf:
                raise InputError(f"costs.{name}", seconds, "a finite number of seconds, of at least 0")
        if event.report is None:
            return bool(event.speeds) or event.costs not in (None, job.costs)
        for name in ("iteration", "service_s"):
            value = getattr(event.report, name)
            if not 0 <= value <= MAX_STEPS:
                raise InputError(f"report.{name}", value, f"a number from 0 to {MAX_STEPS}")
        # A job that went back to its checkpoint repeats earlier reports.
        return not job.reports or event.report.iteration > job.done

    def _report(self, event: TrialReported) -> None:
        job = self._jobs[event.trial]
        if event.report:
            job = job.heard_at(event.at_s, event.report)
        if event.speeds:
            measured = self._measured.setdefault(job.key, {})
            for speed in event.speeds:
                # An engine need not know how its program splits a batch: the job's own statement holds.
                parts = max(speed.sub_steps, job.request.sub_steps(speed.gpus, speed.batch_size))
                shape = (speed.gpus, speed.nodes, speed.servers, speed.batch_size)
                measured[shape] = [*measured.get(shape, ()), replace(speed, sub_steps=parts)][-LAST:]
            job = replace(job, speeds=tuple(_mean(last) for last in measured.values()))
        if event.costs:
            job = replace(job, costs=event.costs)
        self._jobs[job.key] = job

    # Decisions.

    def _attempts(self, event: Allocated, tracker: Tracker) -> Iterator[Event]:
        """Return the ends of attempts whose trials lose their GPUs, and the attempts of trials that are given others.

        One that runs on other nodes has its attempt when its processes have been seen where it moves to.
        """
        for key, job in self._jobs.items():
            if job.grant and key not in event.grants:
                yield from attempt_end(event.at_s, tracker.trials[key])
        for key, grant in event.grants.items():
            job, devices, processes = self._jobs[key], event.devices[key], self._processes.get(key, {})
            if (grant, devices) == (job.grant, self._devices.get(key)):
                continue
            # A trial that moves runs where it is until an iteration boundary, and sends until then in its present attempt.
            if not (job.grant and processes) or runs_on(devices, processes):
                yield self._attempt(event.at_s, key, event)
                # Processes that the trial left there continue or start others: the attempt recognises them from the first byte.
                yield from attached(event.at_s, key, devices, processes)

    def _attempt(self, at_s: float, key: str, decision: Allocated) -> AttemptStarted:
        """Return the attempt of a trial on what a decision grants it."""
        grant = decision.grants[key]
        workers, traffic = workers_on(grant, decision.devices[key]), traffic_on(self._jobs[key], grant)
        return AttemptStarted(at_s, key, f"gpus-{decision.generation}", workers, traffic, by_host=True, may_go_back=False)

    def _allocate(self, event: Allocated) -> None:
        """Give every job what a decision grants, and take from the others what they had."""
        for key, job in self._jobs.items():
            grant = event.grants.get(key)
            if grant != job.grant:
                self._jobs[key] = job.regranted(grant, event.at_s)
        self._devices |= event.devices
        self._decision = event


def _bare(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """Return jobs without what they know of their stages, which follows from the tracker."""
    return {key: replace(job, stage=Stage(job.stage.study, job.stage.name)) for key, job in jobs.items()}


def _mean(speeds: Sequence[Speed]) -> Speed:
    if len(speeds) == 1:
        return speeds[0]
    return replace(speeds[-1], step_s=fmean(s.step_s for s in speeds), sync_s=fmean(s.sync_s for s in speeds))
