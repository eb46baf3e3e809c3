"""The input of a network policy: all running jobs, as columns.

Policies read all jobs at once, thousands of times, so that arrays are their natural form. `Snapshot.of` makes the columns
from the tracker's views, study by study; the simulator keeps them up to date itself. Positions in the columns are valid within
a snapshot only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from beamer.network.arrays import Bools, Floats, Ints
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprint, Footprints
from beamer.network.views import JobView, LaterRung, StudyView

Run = tuple[str, float]
"""A job's key and when it started: a policy that remembers jobs remembers this, as a trial's next attempt is another job."""


@dataclass(frozen=True, eq=False)
class RunningStudy:
    """A study that has running jobs. later: declared rungs that have not been registered yet."""

    name: str
    weight: float
    later: tuple[LaterRung, ...] = ()


@dataclass(frozen=True, eq=False)
class JobColumns:
    """The properties of the running jobs by position, in order of their start within their study.

    stage, study: positions. iteration_s: critical path of one iteration. size_bits, longest_bits, senders, receivers: of one
    synchronisation. sender_bps: what the busiest sender sends at while it synchronises alone. first, link, seconds: job j loads
    link[first[j]:first[j+1]] for that many seconds per iteration.
    """

    key: tuple[str, ...]
    stage: Ints
    study: Ints
    started_s: Floats
    compute_s: Floats
    overlap: Floats
    iteration_s: Floats
    size_bits: Floats
    longest_bits: Floats
    senders: Ints
    receivers: Ints
    sender_bps: Floats
    first: Ints
    link: Ints
    seconds: Floats

    def take(self, positions: Ints) -> "JobColumns":
        """Return the jobs at `positions`, each in a stage and a study of its own."""
        widths = (self.first[1:] - self.first[:-1])[positions]
        first = np.concatenate(([0], np.cumsum(widths)))
        entries = np.repeat(self.first[positions] - first[:-1], widths) + np.arange(first[-1])
        alone = np.arange(len(positions))
        return JobColumns(
            key=tuple(self.key[i] for i in positions.tolist()),
            stage=alone,
            study=alone,
            started_s=self.started_s[positions],
            compute_s=self.compute_s[positions],
            overlap=self.overlap[positions],
            iteration_s=self.iteration_s[positions],
            size_bits=self.size_bits[positions],
            longest_bits=self.longest_bits[positions],
            senders=self.senders[positions],
            receivers=self.receivers[positions],
            sender_bps=self.sender_bps[positions],
            first=first,
            link=self.link[entries],
            seconds=self.seconds[entries],
        )

    @classmethod
    def joined(cls, parts: "Sequence[JobColumns]", stages: Sequence[int]) -> "JobColumns":
        """Return the jobs of several studies one after the other. stages: how many each study has."""

        counts = [len(part.key) for part in parts]
        before = np.cumsum([0, *(len(part.link) for part in parts[:-1])])  # entries of the studies before each
        first = np.concatenate([np.zeros(1, np.int64), *(part.first[1:] for part in parts)])
        first[1:] += np.repeat(before, counts)
        floats = np.concatenate([part._floats for part in parts], axis=1)
        ints = np.concatenate([part._ints for part in parts], axis=1)
        columns: dict[str, Any] = dict(zip(_FLOATS + _INTS, (*floats, *ints), strict=True))
        stage = columns.pop("stage")
        return cls(
            key=tuple(chain.from_iterable(part.key for part in parts)),
            stage=stage + np.repeat(np.cumsum([0, *stages[:-1]]), counts),
            study=np.repeat(np.arange(len(parts)), counts),
            first=first,
            link=np.concatenate([part.link for part in parts]),
            seconds=np.concatenate([part.seconds for part in parts]),
            **columns,
        )

    @cached_property
    def _floats(self) -> Floats:
        """The columns of floats as rows of one array, which takes a tenth of the time to join with those of others."""
        return np.stack([getattr(self, name) for name in _FLOATS])

    @cached_property
    def _ints(self) -> Ints:
        """The columns of integers, likewise."""
        return np.stack([getattr(self, name) for name in _INTS])

    @cached_property
    def run(self) -> tuple[Run, ...]:
        """What tells each job from earlier ones of the same trial."""
        return tuple(zip(self.key, self.started_s.tolist(), strict=True))

    @cached_property
    def loads(self) -> Bools:
        """Whether each job loads any link."""
        return np.diff(self.first) > 0

    @cached_property
    def owner(self) -> Ints:
        """The job of every entry of `link`."""
        return np.repeat(np.arange(len(self.key)), np.diff(self.first))

    @cached_property
    def position(self) -> dict[str, int]:
        """Positions by key."""
        return {key: i for i, key in enumerate(self.key)}


_FLOATS = ("started_s", "compute_s", "overlap", "iteration_s", "size_bits", "longest_bits", "sender_bps")
_INTS = ("stage", "senders", "receivers")


@dataclass(frozen=True, eq=False)
class CoflowColumns:
    """The coflow that each job has in flight; where that is not known, or none is, the next synchronisation as a whole.

    in_flight: whether one is known to be. released_s: when, or the job's start. sent_bits, left_bits, longest_bits (of
    what its flows have left): so far. seconds: what is left needs of each link alone, as `JobColumns.seconds`. later: what the
    coflows behind it in the same synchronisation do.
    """

    in_flight: Bools
    released_s: Floats
    sent_bits: Floats
    left_bits: Floats
    longest_bits: Floats
    seconds: Floats
    later: Floats

    @classmethod
    def to_come(cls, jobs: JobColumns) -> "CoflowColumns":
        """Return the next coflows of jobs whose present coflows are not known."""
        count = len(jobs.key)
        return cls(
            in_flight=np.zeros(count, np.bool_),
            released_s=jobs.started_s,
            sent_bits=np.zeros(count),
            left_bits=jobs.size_bits,
            longest_bits=jobs.longest_bits,
            seconds=jobs.seconds,
            later=np.zeros(len(jobs.seconds)),
        )


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The input of one decision of a network policy.

    capacity_bps: by link. stages: names as `study/stage`. stage_weight: by stage, its study's; of trials that no stage waits
    for, each counts as a stage, and all of a study's together as one. since_s: by stage, when it was registered; infinite for
    such a trial. remaining: iterations that each job has still to complete, 0 where nobody waits for it. klass: the class that
    each has now, -1 before its first plan. cap_bps: the caps of those that have any now.
    """

    capacity_bps: Floats
    studies: tuple[RunningStudy, ...]
    stages: tuple[str, ...]
    stage_weight: Floats
    since_s: Floats
    jobs: JobColumns
    remaining: Ints
    klass: Ints
    coflows: CoflowColumns
    cap_bps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, fabric: Fabric, studies: Sequence[StudyView], footprints: Footprints | None = None) -> "Snapshot":
        """Return the columns of the jobs in `studies`; studies and stages without running jobs are left out."""
        known = footprints or Footprints(fabric)
        return cls.joined(fabric, [cls.of_study(fabric, study, lambda job: known.of(job.spec, job.plane)) for study in studies])

    @classmethod
    def of_study(cls, fabric: Fabric, study: StudyView, footprint_of: Callable[[JobView], Footprint]) -> "Snapshot":
        """Return the columns of one study's jobs."""
        stages = [stage for stage in study.stages if stage.jobs]
        views = [job for stage in stages for job in stage.jobs]
        alone = sum(not stage.barrier for stage in stages)
        each = [footprint_of(view) for view in views]
        compute_s = _floats(view.spec.compute_s for view in views)
        overlap = _floats(view.spec.overlap for view in views)
        jobs = JobColumns(
            key=tuple(view.key for view in views),
            stage=np.repeat(np.arange(len(stages)), [len(stage.jobs) for stage in stages]),
            study=np.zeros(len(views), np.int64),
            started_s=_floats(view.started_s for view in views),
            compute_s=compute_s,
            overlap=overlap,
            iteration_s=np.maximum(compute_s, (1 - overlap) * compute_s + _floats(footprint.gamma_s for footprint in each)),
            size_bits=_floats(footprint.size_bits for footprint in each),
            longest_bits=_floats(footprint.longest_bits for footprint in each),
            senders=_ints(len(footprint.sender_bps) for footprint in each),
            receivers=_ints(footprint.receivers for footprint in each),
            sender_bps=_floats(max(footprint.sender_bps.values(), default=0.0) for footprint in each),
            first=np.concatenate(([0], np.cumsum([len(footprint.link) for footprint in each]))).astype(np.int64),
            link=np.concatenate([np.zeros(0, np.int64), *(footprint.link for footprint in each)]),
            seconds=np.concatenate([np.zeros(0), *(footprint.seconds for footprint in each)]),
        )
        return cls(
            capacity_bps=fabric.capacity_bps,
            studies=(RunningStudy(study.name, study.weight, study.later),) if stages else (),
            stages=tuple(f"{study.name}/{stage.name}" for stage in stages),
            stage_weight=_floats(study.weight if stage.barrier else study.weight / alone for stage in stages),
            since_s=_floats(stage.since_s for stage in stages),
            jobs=jobs,
            remaining=_ints(view.remaining for view in views),
            klass=_ints(-1 if view.klass is None else view.klass for view in views),
            coflows=CoflowColumns.to_come(jobs),
            cap_bps={view.key: view.cap_bps for view in views if view.cap_bps is not None},
        )

    @classmethod
    def joined(cls, fabric: Fabric, studies: "Sequence[Snapshot]") -> "Snapshot":
        """Return the columns of several studies, each of which is a snapshot of its own; what none of them has is left out."""
        parts = [study for study in studies if study.studies] or [cls.of_study(fabric, _NOTHING, _no_footprint)]
        jobs = JobColumns.joined([part.jobs for part in parts], [len(part.stages) for part in parts])
        return cls(
            capacity_bps=fabric.capacity_bps,
            studies=tuple(chain.from_iterable(part.studies for part in parts)),
            stages=tuple(chain.from_iterable(part.stages for part in parts)),
            stage_weight=np.concatenate([part.stage_weight for part in parts]),
            since_s=np.concatenate([part.since_s for part in parts]),
            jobs=jobs,
            remaining=np.concatenate([part.remaining for part in parts]),
            klass=np.concatenate([part.klass for part in parts]),
            coflows=CoflowColumns.to_come(jobs),
            cap_bps=dict(chain.from_iterable(part.cap_bps.items() for part in parts)),
        )

    @cached_property
    def left_s(self) -> Floats:
        """What each job's remaining iterations need of each link alone, seconds, as `JobColumns.seconds`."""
        whole = np.where(self.coflows.in_flight, np.maximum(self.remaining - 1, 0), self.remaining)
        return whole[self.jobs.owner] * self.jobs.seconds + np.where(
            self.coflows.in_flight[self.jobs.owner], self.coflows.seconds + self.coflows.later, 0.0
        )


_NOTHING = StudyView("", 1.0, ())


def _no_footprint(job: JobView) -> Footprint:
    raise NotImplementedError("of no job")


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), np.float64)


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)
