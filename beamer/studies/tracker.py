"""The stage state machine: what is registered, what runs and what ended, fed by events and by nothing else.

A legal event is journaled and applied; applying a journal's events in order to a new tracker of the same fabric gives an
equal tracker, so that this is also how a restarted controller recovers.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeVar

from beamer.errors import ConflictError, InputError, NotFoundError, nearest
from beamer.gpu.ledger import Ledger, StageKey
from beamer.gpu.model import Job, Stage, check_allocation, check_nodes
from beamer.network.fabric import Fabric
from beamer.network.plan import check_queues
from beamer.network.snapshot import Footprints, Snapshot
from beamer.studies.events import (
    Allocated,
    ConnectionsSeen,
    Decided,
    Event,
    IterationDone,
    JobConnection,
    JobEnded,
    JobRegistered,
    JobReported,
    JobSubmitted,
    NodesSeen,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    WorkerAttached,
)
from beamer.studies.model import (
    JobSpec,
    JobStatus,
    JobView,
    StageStatus,
    StageView,
    StudyView,
    check_name,
    job_key,
)
from beamer.studies.records import JobRecord, StageRecord, StudyRecord
from beamer.studies.registration import check_rungs, check_same, check_spec

_Record = TypeVar("_Record")


class Tracker:
    """Know every study, stage and job on a fabric; only `apply` changes it, records are for reading.

    Two trackers are equal when their fabric and everything they know are.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._studies: dict[str, StudyRecord] = {}
        self._jobs: dict[str, JobRecord] = {}
        self._connections: dict[str, tuple[JobConnection, ...]] = {}
        self._decision: Decided | None = None
        self._footprints = Footprints(fabric)
        self._ledger = Ledger()
        self._allocation: Allocated | None = None

    @property
    def studies(self) -> Mapping[str, StudyRecord]:
        """Every study by name, in order of registration."""
        return MappingProxyType(self._studies)

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        """Every job by key, in order of registration, ended ones included."""
        return MappingProxyType(self._jobs)

    @property
    def connections(self) -> Mapping[str, tuple[JobConnection, ...]]:
        """What each agent sees of the running jobs' connections, sorted."""
        return MappingProxyType(self._connections)

    @property
    def decision(self) -> Decided | None:
        """The latest decision, None before the first."""
        return self._decision

    @property
    def ledger(self) -> Ledger:
        """What the GPU level knows of nodes and submitted jobs."""
        return self._ledger

    @property
    def allocation(self) -> Allocated | None:
        """The latest decision of the GPU level, None before the first."""
        return self._allocation

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tracker) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def stage(self, study: str, name: str) -> StageRecord:
        """Return a stage. Raises `NotFoundError`."""
        return _find(self._study(study).stages, "stage", name)

    def check(self, event: Event) -> bool:
        """Say whether `event` changes anything: False for a repeat, True if it must be journaled and applied.

        Of a job's ends the first stands: a tuner's kill and a trainer's finish may cross, so the later one is a repeat, and so
        is progress that arrives after the end.

        Raises `InputError` for a value that cannot be, `NotFoundError` for an unknown study, stage or job, `ConflictError`
        for a registration that differs from the first, a job that joins a sealed stage or a worker of an ended job.
        """
        match event:
            case StudyRegistered():
                return self._check_study(event)
            case StageRegistered(study=study, stage=stage):
                known = self._study(study).stages
                return check_name(stage, "stage") not in known
            case StageSealed(study=study, stage=stage):
                return self.stage(study, stage).status is StageStatus.OPEN
            case JobRegistered():
                return self._check_job(event)
            case WorkerAttached():
                return self._check_attach(event)
            case JobSubmitted():
                return self._check_submission(event)
            case JobReported():
                return self._ledger.check_report(event)
            case NodesSeen(nodes=nodes):
                check_nodes(nodes)
                return nodes != self._ledger.cluster.nodes
            case Allocated():
                return self._check_allocation(event)
            case IterationDone(job=key, iteration=iteration):
                job = self._job(key)
                if not 0 <= iteration <= job.spec.iterations:
                    raise InputError("iteration", iteration, f"0 to {job.spec.iterations}, the iterations of {key}")
                return job.status is JobStatus.RUNNING and iteration > job.done
            case JobEnded(job=key, status=status):
                if status is JobStatus.RUNNING:
                    raise InputError("status", status.value, "finished, killed or failed")
                return self._is_live(key)
            case ConnectionsSeen(agent=agent, connections=connections):
                if agent not in self.fabric.agents:
                    raise NotFoundError("agent", agent, nearest(agent, self.fabric.agents))
                return self._of_running(connections) != self._connections.get(agent, ())
            case Decided():
                return self._check_decision(event)

    def apply(self, event: Event) -> None:
        """Take in an event that `check` found legal."""
        match event:
            case StudyRegistered():
                self._studies[event.study] = StudyRecord(event.study, event.weight, event.rungs, event.at_s)
            case StageRegistered():
                self._studies[event.study].stages[event.stage] = StageRecord(event.stage, event.at_s)
            case StageSealed():
                stage = self._studies[event.study].stages[event.stage]
                stage.status = StageStatus.SEALED
                stage.sealed_s = event.at_s
                self._ledger.touch((event.study, event.stage))
                self._end_if_over(event.study, stage, event.at_s)
            case JobRegistered():
                self._apply_job(event)
            case WorkerAttached():
                self._jobs[event.job].pids[event.rank] = event.pid
            case IterationDone():
                self._jobs[event.job].done = event.iteration
            case JobEnded():
                self._apply_end(event)
            case ConnectionsSeen():
                self._connections[event.agent] = event.connections
                self._prune_connections()
            case Decided():
                self._decision = event
            case NodesSeen():
                self._ledger.see(event.nodes)
            case JobSubmitted():
                key = job_key(event.study, event.stage, event.job)
                self._ledger.submit(key, (event.study, event.stage), event.request, event.at_s)
            case JobReported():
                self._ledger.report(event)
            case Allocated():
                self._allocation = event
                self._ledger.allocate(event.grants, event.at_s)

    def snapshot(self) -> Snapshot:
        """Return what a policy decides on: the running jobs, and their studies' rungs yet to come."""
        return Snapshot.of(self.fabric, self.views(), self._footprints)

    def views(self) -> tuple[StudyView, ...]:
        """Return the studies that have stages which are not done, with their running jobs, or rungs yet to come."""
        views = (self._view(study) for study in self._studies.values())
        return tuple(view for view in views if view.stages or view.later)

    def submitted(self) -> tuple[Job, ...]:
        """Return what a GPU policy decides on: the submitted jobs that have not ended, in order of submission."""
        return self._ledger.jobs(self._stage_facts)

    def _stage_facts(self, key: StageKey) -> Stage:
        study, stage = self._studies[key[0]], self._studies[key[0]].stages[key[1]]
        rungs = [rung.name for rung in study.rungs]
        later = study.rungs[rungs.index(stage.name) + 1 :] if stage.name in rungs else study.rungs
        later = tuple(rung for rung in later if rung.name not in study.stages)
        keeps = later[0].jobs if later else None
        return Stage(
            study.name,
            stage.name,
            len(self._ledger.members(key)),
            keeps,
            self._ledger.losses(key),
            stage.status is not StageStatus.OPEN,
        )

    def _view(self, study: StudyRecord) -> StudyView:
        stages = tuple(
            StageView(stage.name, stage.status, stage.registered_s, tuple(self._running(stage)))
            for stage in study.stages.values()
            if stage.status is not StageStatus.DONE
        )
        later = tuple(rung for rung in study.rungs if rung.name not in study.stages)
        return StudyView(study.name, study.weight, study.registered_s, stages, later)

    def _running(self, stage: StageRecord) -> Iterable[JobView]:
        for key in stage.jobs:
            job = self._jobs[key]
            if job.status is JobStatus.RUNNING:
                planned = self._decision.jobs.get(key) if self._decision else None
                klass = None if planned is None else planned.klass
                yield JobView(key, job.spec, job.done, job.plane, job.registered_s, klass)

    def _check_study(self, event: StudyRegistered) -> bool:
        known = self._studies.get(event.study)
        if known is None:
            check_name(event.study, "study")
            if not (math.isfinite(event.weight) and event.weight > 0):
                raise InputError("weight", event.weight, "a finite number above 0")
            check_rungs(event.rungs)
            return True
        if event.weight != known.weight:
            raise ConflictError("weight", event.weight, f"{known.weight}, with which study {known.name} was registered")
        if event.rungs != known.rungs:
            raise ConflictError(
                "rungs",
                [rung.name for rung in event.rungs],
                f"the rungs with which study {known.name} was registered: "
                + (", ".join(f"{rung.name} ({rung.jobs} x {rung.iterations})" for rung in known.rungs) or "none"),
            )
        return False

    def _check_job(self, event: JobRegistered) -> bool:
        stage = self.stage(event.study, event.stage)
        check_spec(event.spec, self.fabric)
        known = self._jobs.get(job_key(event.study, event.stage, event.spec.name))
        if known is not None:
            check_same(known.key, known.spec, _by_rank(event.spec))
            return False
        if stage.status is not StageStatus.OPEN:
            raise ConflictError("stage", stage.name, f"an open stage; it is {stage.status.value}, no further job may join")
        return True

    def _check_submission(self, event: JobSubmitted) -> bool:
        stage = self.stage(event.study, event.stage)
        if not self._ledger.check_submission(job_key(event.study, event.stage, check_name(event.job, "job")), event.request):
            return False
        if stage.status is not StageStatus.OPEN:
            raise ConflictError("stage", stage.name, f"an open stage; it is {stage.status.value}, no further job may join")
        return True

    def _check_allocation(self, event: Allocated) -> bool:
        if self._allocation is not None and event.generation <= self._allocation.generation:
            if event == self._allocation:
                return False
            raise ConflictError("generation", event.generation, f"above {self._allocation.generation}, the latest allocation's")
        check_allocation(self._ledger.cluster, self.submitted(), event.grants)
        return True

    def _check_attach(self, event: WorkerAttached) -> bool:
        job = self._job(event.job)
        ranks = [worker.rank for worker in job.spec.workers]
        if event.rank not in ranks:
            raise NotFoundError("rank", event.rank, f"a rank of {job.key}: {', '.join(map(str, ranks))}")
        if event.pid <= 0:
            raise InputError("pid", event.pid, "a process id above 0")
        if job.pids.get(event.rank) == event.pid:
            return False
        if job.status is not JobStatus.RUNNING:
            raise ConflictError("job", job.key, f"a running job; it is {job.status.value}")
        return True

    def _check_decision(self, event: Decided) -> bool:
        check_queues(event.queues)
        for key, plan in event.jobs.items():
            self._job(key)
            if not 0 <= plan.klass < event.queues:
                raise InputError(f"jobs[{key}].klass", plan.klass, f"0 to {event.queues - 1}")
        if self._decision is not None and event.generation <= self._decision.generation:
            if event == self._decision:
                return False
            raise ConflictError("generation", event.generation, f"above {self._decision.generation}, the latest decision's")
        return True

    def _apply_job(self, event: JobRegistered) -> None:
        key = job_key(event.study, event.stage, event.spec.name)
        seq = len(self._jobs) + 1
        plane = (seq - 1) % self.fabric.planes
        self._jobs[key] = JobRecord(key, seq, event.study, event.stage, _by_rank(event.spec), plane, event.at_s)
        self._studies[event.study].stages[event.stage].jobs.append(key)

    def _is_live(self, key: str) -> bool:
        if self._ledger.job(key):
            return True
        if key not in self._jobs and key in self._ledger.ended:
            return False
        return self._job(key).status is JobStatus.RUNNING

    def _apply_end(self, event: JobEnded) -> None:
        if self._ledger.job(event.job):
            self._ledger.end(event.job, event.at_s)
        if event.job in self._jobs:
            job = self._jobs[event.job]
            job.status = event.status
            job.ended_s = event.at_s
            self._prune_connections()
        study, stage, _ = event.job.split("/", 2)
        self._end_if_over(study, self._studies[study].stages[stage], event.at_s)

    def _end_if_over(self, study: str, stage: StageRecord, at_s: float) -> None:
        ended = not self._ledger.live((study, stage.name)) and all(self._jobs[key].ended_s is not None for key in stage.jobs)
        if stage.status is StageStatus.SEALED and ended:
            stage.status = StageStatus.DONE
            stage.ended_s = at_s

    def _of_running(self, connections: Iterable[JobConnection]) -> tuple[JobConnection, ...]:
        """Leave out connections of jobs that an agent has not yet heard have ended."""
        running = {c for c in connections if c.job in self._jobs and self._jobs[c.job].status is JobStatus.RUNNING}
        return tuple(sorted(running, key=astuple))

    def _prune_connections(self) -> None:
        left = {agent: self._of_running(seen) for agent, seen in self._connections.items()}
        self._connections = {agent: seen for agent, seen in left.items() if seen}

    def _study(self, name: str) -> StudyRecord:
        return _find(self._studies, "study", name)

    def _job(self, key: str) -> JobRecord:
        if key in self._jobs:
            return self._jobs[key]
        study, stage, name = (*key.split("/", 2), "", "")[:3]
        siblings = [self._jobs[sibling].spec.name for sibling in self.stage(study, stage).jobs]
        raise _unknown("job", name, siblings)


def _by_rank(spec: JobSpec) -> JobSpec:
    return replace(spec, workers=tuple(sorted(spec.workers, key=lambda worker: worker.rank)))


def _find(known: Mapping[str, _Record], field_name: str, name: str) -> _Record:
    if name not in known:
        raise _unknown(field_name, name, known)
    return known[name]


def _unknown(field_name: str, name: str, known: Iterable[str]) -> NotFoundError:
    """Name the nearest one only: a search registers thousands."""
    close = get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return NotFoundError(field_name, name, f"a registered {field_name}{hint}")
