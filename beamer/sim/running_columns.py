"""The trials that run in simulated time, as the columns that network policies read.

Few studies change between two decisions: the columns of the others, and what follows from them, are kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprint
from beamer.network.job import JobSpec
from beamer.network.ledger import NetworkLedger
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StudyView
from beamer.studies.model import split_key
from beamer.studies.tracker import Tracker


@dataclass(frozen=True)
class RunningTrial:
    """A trial that runs. done: its steps when it began to. steps: of its own that an iteration of its job counts."""

    key: str
    spec: JobSpec
    done: int
    steps: float


@dataclass(frozen=True, eq=False)
class RunningColumns:
    """The columns of jobs that run as a snapshot, and by position in it the jobs' numbers in the network.

    steps: of its trial that an iteration of each counts. beyond: steps of each that lie beyond its present target.
    """

    snapshot: Snapshot
    number: Ints
    steps: Floats
    beyond: Ints

    @classmethod
    def joined(cls, fabric: Fabric, studies: "Sequence[RunningColumns]") -> "RunningColumns":
        """Return the jobs of several studies, each of which has columns of its own."""
        return cls(
            Snapshot.joined(fabric, [study.snapshot for study in studies]),
            np.concatenate([np.zeros(0, np.int64), *(study.number for study in studies)]),
            np.concatenate([np.zeros(0), *(study.steps for study in studies)]),
            np.concatenate([np.zeros(0, np.int64), *(study.beyond for study in studies)]),
        )


class ColumnsByStudy:
    """The columns of the trials that run, by study. tracker: with `ledger` among its ledgers."""

    def __init__(self, tracker: Tracker, ledger: NetworkLedger) -> None:
        self._tracker = tracker
        self._ledger = ledger
        self._kept: dict[str, RunningColumns] = {}

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the columns of the studies of trials that begin to run, with new numbers in the network."""
        for key in keys:
            self._kept.pop(split_key(key)[0], None)

    def joined(
        self, running: Mapping[int, RunningTrial], number: Mapping[str, int], planes: Mapping[str, int]
    ) -> RunningColumns:
        """Return the columns of all; a trial that has been given hosts and does not run yet is left out.

        running: trials by number. number: of each by key. planes: that were chosen for trials.
        """
        begun = {trial.key for trial in running.values()}
        studies = [columns for columns in self._studies(begun, planes) if columns.studies]
        by_study = {columns.studies[0].name: self._of(columns, running, number) for columns in studies}
        self._kept = by_study
        return RunningColumns.joined(self._ledger.fabric, list(by_study.values()))

    def _studies(self, begun: AbstractSet[str], planes: Mapping[str, int]) -> Sequence[Snapshot]:
        """Return the columns of each study; those of a study that has not changed are the same object as before."""
        if not planes:
            running = self._ledger.running(self._tracker, self._tracker.running_keys - begun)
            columns = running.columns()
            running.keep()
            return columns
        placed = [_on_planes(_begun_of(view, begun), planes) for view in self._ledger.views(self._tracker)]
        return [Snapshot.of_study(self._ledger.fabric, view, self._footprint_of) for view in placed]

    def _footprint_of(self, job: JobView) -> Footprint:
        return self._ledger.footprints.of(job.spec, job.plane)

    def _of(self, columns: Snapshot, running: Mapping[int, RunningTrial], number: Mapping[str, int]) -> RunningColumns:
        """Return the jobs of a study's columns, as they were unless these have changed."""
        known = self._kept.get(columns.studies[0].name)
        if known is not None and known.snapshot is columns:
            return known
        numbers = [number[key] for key in columns.jobs.key]
        trials = [running[one] for one in numbers]
        beyond = columns.remaining - np.array([self._to_target(trial) for trial in trials], np.int64)
        return RunningColumns(columns, np.array(numbers, np.int64), np.array([trial.steps for trial in trials]), beyond)

    def _to_target(self, trial: RunningTrial) -> int:
        """Return the steps that a trial had still to run when it had come as far as its tracker knows now."""
        return round(trial.spec.iterations * trial.steps) - (self._tracker.trials[trial.key].done - trial.done)


def _begun_of(view: StudyView, begun: AbstractSet[str]) -> StudyView:
    """Return a study without trials that do not run yet."""
    if all(job.key in begun for stage in view.stages for job in stage.jobs):
        return view
    stages = (replace(stage, jobs=tuple(job for job in stage.jobs if job.key in begun)) for stage in view.stages)
    return replace(view, stages=tuple(stages))


def _on_planes(view: StudyView, planes: Mapping[str, int]) -> StudyView:
    """Return a study whose trials are on the planes that were chosen for them."""
    stages = (
        replace(stage, jobs=tuple(replace(job, plane=planes.get(job.key, job.plane)) for job in stage.jobs))
        for stage in view.stages
    )
    return replace(view, stages=tuple(stages))
