"""The input of a network policy: all running jobs, as columns.

Policies read all jobs at once, thousands of times, so that arrays are their natural form. `Snapshot.of` makes the columns
from the tracker's views; the simulator keeps them up to date itself. Positions in the columns are valid within a snapshot only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from beamer.network.arrays import Bools, Floats, Ints
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.views import LaterRung, StudyView

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
        running = [(study, [stage for stage in study.stages if stage.jobs]) for study in studies]
        running = [(study, stages) for study, stages in running if stages]
        flat = [(stage, study) for study, stages in running for stage in stages]
        alone = {study.name: sum(not stage.barrier for stage in stages) for study, stages in running}
        views = [job for stage, _ in flat for job in stage.jobs]
        study_of_stage = [i for i, (_, stages) in enumerate(running) for _ in stages]
        stage = np.repeat(np.arange(len(flat)), [len(stage.jobs) for stage, _ in flat])
        each = [known.of(view.spec, view.plane) for view in views]
        compute_s = _floats(view.spec.compute_s for view in views)
        overlap = _floats(view.spec.overlap for view in views)
        jobs = JobColumns(
            key=tuple(view.key for view in views),
            stage=stage,
            study=np.array(study_of_stage, np.int64)[stage],
            started_s=_floats(view.started_s for view in views),
            compute_s=compute_s,
            overlap=overlap,
            iteration_s=np.maximum(compute_s, (1 - overlap) * compute_s + _floats(footprint.gamma_s for footprint in each)),
            size_bits=_floats(footprint.size_bits for footprint in each),
            longest_bits=_floats(footprint.longest_bits for footprint in each),
            senders=np.array([len(footprint.sender_bps) for footprint in each], np.int64),
            receivers=np.array([footprint.receivers for footprint in each], np.int64),
            sender_bps=_floats(max(footprint.sender_bps.values(), default=0.0) for footprint in each),
            first=np.concatenate(([0], np.cumsum([len(footprint.link) for footprint in each]))).astype(np.int64),
            link=np.concatenate([np.zeros(0, np.int64), *(footprint.link for footprint in each)]),
            seconds=np.concatenate([np.zeros(0), *(footprint.seconds for footprint in each)]),
        )
        return cls(
            capacity_bps=_floats(link.rate_bps for link in fabric.links),
            studies=tuple(RunningStudy(study.name, study.weight, study.later) for study, _ in running),
            stages=tuple(f"{study.name}/{stage.name}" for stage, study in flat),
            stage_weight=_floats(study.weight if stage.barrier else study.weight / alone[study.name] for stage, study in flat),
            since_s=_floats(stage.since_s for stage, _ in flat),
            jobs=jobs,
            remaining=np.array([view.remaining for view in views], np.int64),
            klass=np.array([-1 if view.klass is None else view.klass for view in views], np.int64),
            coflows=CoflowColumns.to_come(jobs),
            cap_bps={view.key: view.cap_bps for view in views if view.cap_bps is not None},
        )

    @cached_property
    def left_s(self) -> Floats:
        """What each job's remaining iterations need of each link alone, seconds, as `JobColumns.seconds`."""
        whole = np.where(self.coflows.in_flight, np.maximum(self.remaining - 1, 0), self.remaining)
        return whole[self.jobs.owner] * self.jobs.seconds + np.where(
            self.coflows.in_flight[self.jobs.owner], self.coflows.seconds + self.coflows.later, 0.0
        )


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), np.float64)
