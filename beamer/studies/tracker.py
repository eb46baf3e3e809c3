"""The stage state machine: what is registered, what runs and what ended, fed by events and by nothing else.

A legal event is journaled and applied; applying a journal's events in order to a new tracker with new ledgers gives an equal
one, so that this is also how a restarted process recovers. The tracker knows studies, stages and jobs; what a level knows
beyond that is its ledger's, which sees every event after the tracker.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeVar

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.studies.events import (
    Decision,
    Event,
    IterationDone,
    JobEnded,
    JobRegistered,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    WorkerAttached,
)
from beamer.studies.model import JobSpec, JobStatus, StageKey, StageStatus, check_name, job_key, split_key
from beamer.studies.records import JobRecord, StageRecord, StudyRecord
from beamer.studies.registration import check_rungs, check_same, check_spec

_Record = TypeVar("_Record")


class Ledger(ABC):
    """What one level knows, fed by the tracker; events applied in order to a new ledger give an equal one."""

    @abstractmethod
    def check(self, event: Event, tracker: "Tracker") -> bool | None:
        """Say whether an event changes anything at this level; None: it does not concern it. Raises as `Tracker.check`."""

    @abstractmethod
    def apply(self, event: Event, tracker: "Tracker") -> None:
        """Take in an event that the tracker has taken in."""

    def knows(self, job: str) -> bool:
        """Say whether a job was made known to this level alone, whether or not it has ended."""
        return False

    def unended(self, stage: StageKey) -> int:
        """Return how many jobs of a stage that were made known to this level alone have not ended."""
        return 0

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes


class Tracker:
    """Know every study, stage and job; only `apply` changes it, records are for reading.

    ledgers: of the levels whose events it takes in. Two trackers are equal when all that they and their ledgers know is.
    """

    def __init__(self, *ledgers: Ledger) -> None:
        self.ledgers = ledgers
        self._studies: dict[str, StudyRecord] = {}
        self._jobs: dict[str, JobRecord] = {}

    @property
    def studies(self) -> Mapping[str, StudyRecord]:
        """Every study by name, in order of registration."""
        return MappingProxyType(self._studies)

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        """Every registered job by key, in order of registration, ended ones included."""
        return MappingProxyType(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tracker) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def stage(self, study: str, name: str) -> StageRecord:
        """Return a stage. Raises `NotFoundError`."""
        return _find(self._study(study).stages, "stage", name)

    def open_stage(self, study: str, name: str) -> StageRecord:
        """Return a stage that jobs may join. Raises `NotFoundError`, `ConflictError`."""
        stage = self.stage(study, name)
        if stage.status is not StageStatus.OPEN:
            raise ConflictError("stage", stage.name, f"an open stage; it is {stage.status.value}, no further job may join")
        return stage

    def job(self, key: str) -> JobRecord:
        """Return a registered job. Raises `NotFoundError`."""
        if key in self._jobs:
            return self._jobs[key]
        study, stage, name = (*key.split("/", 2), "", "")[:3]
        siblings = [self._jobs[sibling].spec.name for sibling in self.stage(study, stage).jobs]
        raise _unknown("job", name, siblings)

    def check(self, event: Event) -> bool:
        """Say whether `event` changes anything: False for a repeat, True if it must be journaled and applied.

        Of a job's ends the first stands: a tuner's kill and a trainer's finish may cross, so the later one is a repeat, and so
        is progress that arrives after the end.

        Raises `InputError` for a value that cannot be and for an event of a level that has no ledger here, `NotFoundError` for
        an unknown study, stage or job, `ConflictError` for a registration that differs from the first, a job that joins a
        sealed stage or a worker of an ended job.
        """
        found = [self._check(event), *(ledger.check(event, self) for ledger in self.ledgers)]
        if all(changes is None for changes in found):
            raise InputError("event", type(event).__name__, "an event of studies or of a level that is tracked here")
        return any(found)

    def apply(self, event: Event) -> None:
        """Take in an event that `check` found legal."""
        self._apply(event)
        for ledger in self.ledgers:
            ledger.apply(event, self)
        match event:
            case StageSealed(study=study, stage=stage):
                self._end_if_over(study, stage, event.at_s)
            case JobEnded(job=key):
                study, stage, _ = split_key(key)
                self._end_if_over(study, stage, event.at_s)

    def _check(self, event: Event) -> bool | None:
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
            case IterationDone(job=key, iteration=iteration):
                job = self.job(key)
                if not 0 <= iteration <= job.spec.iterations:
                    raise InputError("iteration", iteration, f"0 to {job.spec.iterations}, the iterations of {key}")
                return job.status is JobStatus.RUNNING and iteration > job.done
            case JobEnded(job=key, status=status):
                if status is JobStatus.RUNNING:
                    raise InputError("status", status.value, "finished, killed or failed")
                if key not in self._jobs and any(ledger.knows(key) for ledger in self.ledgers):
                    return None
                return self.job(key).status is JobStatus.RUNNING
        return None

    def _apply(self, event: Event) -> None:
        match event:
            case StudyRegistered():
                self._studies[event.study] = StudyRecord(event.study, event.weight, event.rungs, event.at_s)
            case StageRegistered():
                self._studies[event.study].stages[event.stage] = StageRecord(event.stage, event.at_s)
            case StageSealed():
                stage = self._studies[event.study].stages[event.stage]
                stage.status = StageStatus.SEALED
                stage.sealed_s = event.at_s
            case JobRegistered():
                key = job_key(event.study, event.stage, event.spec.name)
                seq = len(self._jobs) + 1
                self._jobs[key] = JobRecord(key, seq, event.study, event.stage, _by_rank(event.spec), event.at_s)
                self._studies[event.study].stages[event.stage].jobs.append(key)
            case WorkerAttached():
                self._jobs[event.job].pids[event.rank] = event.pid
            case IterationDone():
                self._jobs[event.job].done = event.iteration
            case JobEnded() if event.job in self._jobs:
                job = self._jobs[event.job]
                job.status = event.status
                job.ended_s = event.at_s

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
        self.stage(event.study, event.stage)
        check_spec(event.spec)
        known = self._jobs.get(job_key(event.study, event.stage, event.spec.name))
        if known is not None:
            check_same(known.key, known.spec, _by_rank(event.spec))
            return False
        self.open_stage(event.study, event.stage)
        return True

    def _check_attach(self, event: WorkerAttached) -> bool:
        job = self.job(event.job)
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

    def _end_if_over(self, study: str, name: str, at_s: float) -> None:
        stage = self._studies[study].stages[name]
        ended = all(self._jobs[key].ended_s is not None for key in stage.jobs) and not any(
            ledger.unended((study, name)) for ledger in self.ledgers
        )
        if stage.status is StageStatus.SEALED and ended:
            stage.status = StageStatus.DONE
            stage.ended_s = at_s

    def _study(self, name: str) -> StudyRecord:
        return _find(self._studies, "study", name)


def is_new_decision(event: Decision, last: Decision | None) -> bool:
    """Say whether a decision is not a level's last one again. Raises `ConflictError` for a generation that was used before."""
    if last is None or event.generation > last.generation:
        return True
    if event == last:
        return False
    raise ConflictError("generation", event.generation, f"above {last.generation}, the latest decision's")


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
