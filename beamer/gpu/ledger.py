"""What the GPU level knows: nodes, submitted jobs with all that they reported, and what each was granted."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.gpu.devices import Devices, assign, check_devices
from beamer.gpu.events import Allocated, JobReported, JobSubmitted, NodesSeen
from beamer.gpu.model import Cluster, Grant, Job, Speed, Stage, check_allocation, check_nodes
from beamer.studies.events import Event, JobEnded, StageRegistered, StageSealed
from beamer.studies.model import StageKey, StageStatus, check_name, job_key
from beamer.studies.tracker import Ledger, Tracker, is_new_decision

LAST = 5  # measurements of a shape's speed that count


class GpuLedger(Ledger):
    """Know the cluster and every job that was submitted to it, and the latest allocation; only its tracker changes it."""

    def __init__(self) -> None:
        self.cluster = Cluster(())
        self._jobs: dict[str, Job] = {}
        self._ended: dict[str, Job] = {}
        self._devices: dict[str, Devices] = {}
        self._measured: dict[str, dict[tuple[int, int, int, int], list[Speed]]] = {}
        self._members: dict[StageKey, list[str]] = {}
        self._unended: dict[StageKey, int] = {}
        self._stale: set[StageKey] = set()
        self._decision: Allocated | None = None

    def __eq__(self, other: object) -> bool:
        """Compare what is known; what `submitted` works out of it when it is asked is left out."""
        return isinstance(other, GpuLedger) and self._facts() == other._facts()

    __hash__ = None  # it changes

    def _facts(self) -> dict[str, object]:
        def bare(jobs: Mapping[str, Job]) -> dict[str, Job]:
            return {key: replace(job, stage=Stage(job.stage.study, job.stage.name)) for key, job in jobs.items()}

        return {**vars(self), "_stale": None, "_jobs": bare(self._jobs), "_ended": bare(self._ended)}

    @property
    def decision(self) -> Allocated | None:
        """The latest decision, None before the first."""
        return self._decision

    @property
    def granted(self) -> Mapping[str, Grant]:
        """What the latest decision grants to jobs that have not ended since."""
        last = self._decision
        return {key: grant for key, grant in last.grants.items() if key in self._jobs} if last else {}

    def assigned(self, grants: Mapping[str, Grant]) -> dict[str, Devices]:
        """Return the GPUs that `grants` mean: jobs stay on those that they have as far as they can."""
        running = {key for key, job in self._jobs.items() if job.grant}
        return assign(self.cluster, grants, self._devices, running)

    @property
    def ended(self) -> Mapping[str, Job]:
        """The jobs that have ended, as they were then."""
        return MappingProxyType(self._ended)

    @property
    def devices(self) -> Mapping[str, Devices]:
        """The GPUs that each job was given last, whether or not it has them now."""
        return MappingProxyType(self._devices)

    @property
    def live_jobs(self) -> Collection[str]:
        """The jobs that have not ended."""
        return self._jobs.keys()

    def job(self, key: str) -> Job | None:
        """Return a job that has not ended."""
        return self._jobs.get(key)

    def submitted(self, tracker: Tracker) -> tuple[Job, ...]:
        """Return what a policy decides on: the submitted jobs that have not ended, in order of submission."""
        for key in self._stale:
            facts = self._stage(key, tracker)
            for member in self._members[key]:
                if member in self._jobs:
                    self._jobs[member] = replace(self._jobs[member], stage=facts)
        self._stale.clear()
        return tuple(self._jobs.values())

    def knows(self, job: str) -> bool:
        """Say whether a job was submitted."""
        return job in self._jobs or job in self._ended

    def unended(self, stage: StageKey) -> int:
        """Return how many of a stage's submitted jobs have not ended."""
        return self._unended.get(stage, 0)

    def check(self, event: Event, tracker: Tracker) -> bool | None:
        """Check nodes, submissions, reports and decisions, and whether a job that ends runs at this level."""
        match event:
            case NodesSeen(nodes=nodes):
                check_nodes(nodes)
                return nodes != self.cluster.nodes
            case JobSubmitted():
                return self._check_submission(event, tracker)
            case JobReported():
                return self._check_report(event)
            case Allocated():
                if not is_new_decision(event, self._decision):
                    return False
                check_allocation(self.cluster, self.submitted(tracker), event.grants)
                check_devices(self.cluster, event.grants, event.devices)
                return True
            case JobEnded(job=key) if self.knows(key):
                return key in self._jobs
        return None

    def apply(self, event: Event, tracker: Tracker) -> None:
        """Take in what `check` says concerns this level, and that stages are registered and sealed."""
        match event:
            case NodesSeen(nodes=nodes):
                self.cluster = Cluster(nodes)
            case JobSubmitted():
                self._submit(event)
            case JobReported():
                self._report(event)
            case Allocated():
                self._allocate(event)
            case StageSealed(study=study, stage=stage):
                self._refresh((study, stage))
            case StageRegistered(study=study):  # a later rung of those that run has begun
                self._stale.update(key for key in self._members if key[0] == study)
            case JobEnded(job=key) if key in self._jobs:
                self._end(key, event.at_s)

    def _stage(self, key: StageKey, tracker: Tracker) -> Stage:
        """Return what is known of a stage now."""
        study, stage = tracker.studies[key[0]], tracker.stage(*key)
        names = [rung.name for rung in study.rungs]
        # Trials can be promoted before a rung is over: then the next one has begun, and is not among the later ones any more.
        later = study.rungs[names.index(stage.name) + 1 :] if stage.name in names else study.later
        members = self._members[key]
        ended = (self._ended[member] for member in members if member in self._ended)
        return Stage(
            study.name,
            stage.name,
            len(members),
            later[0].jobs if later else None,
            tuple(job.reports[-1].loss for job in ended if job.reports),
            stage.status is not StageStatus.OPEN,
        )

    def _submit(self, event: JobSubmitted) -> None:
        key, stage = job_key(event.study, event.stage, event.job), (event.study, event.stage)
        self._jobs[key] = Job(key, event.request, event.at_s, Stage(*stage), since_s=event.at_s)
        self._members.setdefault(stage, []).append(key)
        self._unended[stage] = self._unended.get(stage, 0) + 1
        self._stale.add(stage)

    def _refresh(self, stage: StageKey) -> None:
        """Have what the jobs of a stage know of it worked out again."""
        if stage in self._members:
            self._stale.add(stage)

    def _check_submission(self, event: JobSubmitted, tracker: Tracker) -> bool:
        """Say whether a job is new. Raises `ConflictError` for one that was submitted with another request."""
        tracker.stage(event.study, event.stage)
        key = job_key(event.study, event.stage, check_name(event.job, "job"))
        known = self._jobs.get(key) or self._ended.get(key)
        if known is None:
            tracker.open_stage(event.study, event.stage)
            return True
        for name, value in vars(event.request).items():
            before = getattr(known.request, name)
            if value != before:
                raise ConflictError(f"request.{name}", value, f"{before!r}, with which job {key} was submitted")
        return False

    def _check_report(self, event: JobReported) -> bool:
        """Say whether a report changes anything: not one of a job that has ended, nor of progress that was reported before.

        Raises `NotFoundError` for a job that was not submitted, `InputError` for progress that cannot be.
        """
        job = self._jobs.get(event.job)
        if job is None:
            if event.job in self._ended:
                return False
            raise NotFoundError("job", event.job, "a job that was submitted")
        if event.report is None:
            return bool(event.speeds) or event.costs not in (None, job.costs)
        for name in ("iteration", "service_s"):
            value = getattr(event.report, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"report.{name}", value, "a finite number, at least 0")
        # A job that went back to its checkpoint reports again what it had reported.
        return not job.reports or event.report.iteration > job.done

    def _report(self, event: JobReported) -> None:
        job = self._jobs[event.job]
        if event.report:
            job = replace(job, reports=(*job.reports, event.report))
        if event.speeds:
            measured = self._measured.setdefault(job.key, {})
            for speed in event.speeds:
                shape = (speed.gpus, speed.nodes, speed.servers, speed.batch_size)
                measured[shape] = [*measured.get(shape, ()), speed][-LAST:]
            job = replace(job, speeds=tuple(_mean(last) for last in measured.values()))
        if event.costs:
            job = replace(job, costs=event.costs)
        self._jobs[job.key] = job

    def _allocate(self, event: Allocated) -> None:
        """Give every job what a decision grants, and take from the others what they had."""
        for key, job in self._jobs.items():
            grant = event.grants.get(key)
            if grant != job.grant:
                self._jobs[key] = _regranted(job, grant, event.at_s)
        self._devices |= event.devices
        self._decision = event

    def _end(self, key: str, at_s: float) -> None:
        """Move a job to those that have ended."""
        job = self._jobs.pop(key)
        self._ended[key] = _regranted(job, None, at_s)
        self._devices.pop(key, None)
        self._measured.pop(key, None)
        stage = (job.stage.study, job.stage.name)
        self._unended[stage] -= 1
        self._refresh(stage)


def _regranted(job: Job, grant: Grant | None, at_s: float) -> Job:
    return replace(
        job,
        grant=grant,
        last=grant or job.last,
        since_s=at_s,
        service_s=job.service_at(at_s),
        gpu_s=job.gpu_seconds_at(at_s),
    )


def _mean(speeds: Sequence[Speed]) -> Speed:
    if len(speeds) == 1:
        return speeds[0]
    return replace(speeds[-1], step_s=fmean(s.step_s for s in speeds), sync_s=fmean(s.sync_s for s in speeds))
