"""The running jobs of each study as of one moment, and a cache of what follows from them, which events invalidate.

Few studies change between two decisions, and of these few trials. The cache says nothing that is not known otherwise, so that
two ledgers are equal whatever theirs hold.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from beamer.network.events import Measured, Planned
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprint
from beamer.network.plan import JobPlan
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StudyView
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    Progressed,
    StageRegistered,
    StageSealed,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
    study_of,
)
from beamer.studies.model import split_key, trial_key
from beamer.studies.records import StudyRecord

_OF_A_TRIAL = (AttemptStarted, AttemptEnded, TargetSet, TargetDropped, WorkerAttached, WorkerDetached, Progressed)
_OF_STAGES = (StageRegistered, StageSealed)


@dataclass(frozen=True)
class RunningJob:
    """A job without the class and the cap that it has. stage: that waits for it, if any does."""

    stage: str | None
    view: JobView
    footprint: Footprint


@dataclass
class KeptStudy:
    """What is kept of a study.

    farthest: its farthest target, which may say how far its trials go. jobs: those that have not changed, by key. columns: of
    all of them, None if any has changed. changes: counts the events that may have changed something.
    """

    farthest: int
    jobs: dict[str, RunningJob] = field(default_factory=dict)
    columns: Snapshot | None = None
    changes: int = 0


@dataclass
class KeptStudies:
    """What is kept of studies, until events change it."""

    _kept: dict[str, KeptStudy] = field(default_factory=dict, compare=False, repr=False)

    def of(self, study: StudyRecord) -> KeptStudy:
        """Return what is kept of a study, to which more may be added."""
        kept = self._kept.get(study.name)
        if kept is None or kept.farthest != study.farthest:
            kept = self._kept[study.name] = KeptStudy(study.farthest)
        return kept

    def take_in(self, event: Event, is_measured: bool) -> None:
        """Forget what an event may change. is_measured: whether anything of a trial of its study is."""
        study = study_of(event)
        kept = None if study is None else self._kept.get(study)
        if study is None or kept is None:
            return
        kept.columns = None
        kept.changes += 1
        match event:
            case TrialRegistered(trial=name) | FellSilent(trial=str(name)):
                kept.jobs.pop(trial_key(study, name), None)
            case FellSilent(stage=str()):
                pass
            case TrialEnded(trial=key) if not is_measured:  # Other jobs' traffic is predicted from what was measured.
                kept.jobs.pop(key, None)
            case Measured():
                kept.jobs.clear()
            case _ if isinstance(event, _OF_A_TRIAL):
                kept.jobs.pop(event.trial, None)
            case _ if not isinstance(event, _OF_STAGES):
                del self._kept[study]

    def forget(self, trials: Iterable[str]) -> None:
        """Forget jobs that have changed, by key."""
        for key in trials:
            if kept := self._kept.get(split_key(key)[0]):
                kept.columns = None
                kept.changes += 1
                kept.jobs.pop(key, None)


@dataclass(frozen=True)
class SeenStudy:
    """A study as of one moment: its columns, or what they are made of.

    kept: where to keep them unless it has changed since, as `changes` tells.
    """

    name: str
    columns: Snapshot | None
    view: StudyView | None = None
    footprints: Mapping[str, Footprint] = field(default_factory=dict)
    kept: KeptStudy | None = None
    changes: int = 0

    @classmethod
    def of(cls, view: StudyView, jobs: Iterable[RunningJob], kept: KeptStudy | None) -> "SeenStudy":
        """Return a study that has changed. kept: None for one some of whose jobs are left out."""
        footprints = {job.view.key: job.footprint for job in jobs}
        return cls(view.name, None, view, footprints, kept, kept.changes if kept else 0)

    def snapshot(self, fabric: Fabric) -> Snapshot:
        """Return the study's columns."""
        if self.columns is not None:
            return self.columns
        assert self.view is not None
        return Snapshot.of_study(fabric, self.view, lambda job: self.footprints[job.key])

    def keep(self, columns: Snapshot) -> None:
        """Keep the study's columns if it is as it was."""
        if self.kept is not None and self.kept.changes == self.changes:
            self.kept.columns = columns


@dataclass(frozen=True)
class RunningJobs:
    """All jobs that ran at one moment. Nothing changes them, so that another thread may make their columns.

    last: the decision in force then.
    """

    fabric: Fabric
    studies: Sequence[SeenStudy]
    last: Planned | None
    _columns: list[Snapshot] = field(default_factory=list, compare=False, repr=False)

    def snapshot(self) -> Snapshot:
        """Return what a policy decides on."""
        joined = Snapshot.joined(self.fabric, self.columns())
        plans = [planned(self.last, key, started_s) for key, started_s in joined.jobs.run]
        klass = np.array([-1 if plan is None else plan.klass for plan in plans], np.int64)
        capped = zip(joined.jobs.key, plans, strict=True)
        caps = {key: plan.cap_bps for key, plan in capped if plan is not None and plan.cap_bps is not None}
        return replace(joined, klass=klass, cap_bps=caps)

    def columns(self) -> Sequence[Snapshot]:
        """Return the columns of each study, those without running jobs included."""
        self._columns[:] = [study.snapshot(self.fabric) for study in self.studies]
        return tuple(self._columns)

    @property
    def attempts(self) -> dict[str, float]:
        """When the attempts of the jobs of the last `columns` started, by job."""
        return dict(run for columns in self._columns for run in columns.jobs.run)

    def keep(self) -> None:
        """Keep the columns that `columns` has made, of the studies that are as they were; where events are taken in."""
        for study, columns in zip(self.studies, self._columns, strict=False):
            study.keep(columns)


def planned(last: Planned | None, trial: str, started_s: float) -> JobPlan | None:
    """Return what an attempt was given last: a new one has new connections, which have not been given any class yet."""
    return last.jobs.get(trial) if last and last.at_s >= started_s else None
