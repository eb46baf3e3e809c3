"""The GPU level's part of the tracker: nodes, submitted jobs with all that they reported, and what each was granted.

It is fed by the tracker, which knows studies and stages and checks what comes; events applied in order to a new ledger give an
equal one.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.gpu.devices import Devices, assign
from beamer.gpu.model import Cluster, Grant, Job, Node, Request, Speed, Stage
from beamer.studies.events import JobReported

LAST = 5  # measurements of a shape's speed that count

StageKey = tuple[str, str]


class Ledger:
    """Know the cluster and every job that was submitted to it; records are for reading."""

    def __init__(self) -> None:
        self.cluster = Cluster(())
        self._jobs: dict[str, Job] = {}
        self._ended: dict[str, Job] = {}
        self._devices: dict[str, Devices] = {}
        self._measured: dict[str, dict[tuple[int, int, int, int], list[Speed]]] = {}
        self._members: dict[StageKey, list[str]] = {}
        self._live: dict[StageKey, int] = {}
        self._stale: set[StageKey] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

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

    def jobs(self, stage: Callable[[StageKey], Stage]) -> tuple[Job, ...]:
        """Return the jobs that have not ended, in order of submission. stage: what is known of one now."""
        for key in self._stale:
            facts = stage(key)
            for member in self._members[key]:
                if member in self._jobs:
                    self._jobs[member] = replace(self._jobs[member], stage=facts)
        self._stale.clear()
        return tuple(self._jobs.values())

    def losses(self, key: StageKey) -> tuple[float, ...]:
        """Return the last losses of the jobs of a stage that have ended, in order of submission."""
        ended = (self._ended[member] for member in self._members.get(key, ()) if member in self._ended)
        return tuple(job.reports[-1].loss for job in ended if job.reports)

    def members(self, key: StageKey) -> Sequence[str]:
        """Return the jobs that were submitted in a stage."""
        return self._members.get(key, ())

    def live(self, key: StageKey) -> int:
        """Return how many of a stage's jobs have not ended."""
        return self._live.get(key, 0)

    def see(self, nodes: tuple[Node, ...]) -> None:
        """Take in which nodes are up."""
        self.cluster = Cluster(nodes)

    def submit(self, key: str, stage: StageKey, request: Request, at_s: float) -> None:
        """Take in a job."""
        self._jobs[key] = Job(key, request, at_s, Stage(*stage), since_s=at_s)
        self._members.setdefault(stage, []).append(key)
        self._live[stage] = self._live.get(stage, 0) + 1
        self._stale.add(stage)

    def touch(self, stage: StageKey) -> None:
        """Have what the jobs of a stage know of it looked up again."""
        if stage in self._members:
            self._stale.add(stage)

    def check_submission(self, key: str, request: Request) -> bool:
        """Say whether a job is new. Raises `ConflictError` for one that was submitted with another request."""
        known = self._jobs.get(key) or self._ended.get(key)
        if known is None:
            return True
        for name, value in vars(request).items():
            before = getattr(known.request, name)
            if value != before:
                raise ConflictError(f"request.{name}", value, f"{before!r}, with which job {key} was submitted")
        return False

    def check_report(self, event: JobReported) -> bool:
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

    def report(self, event: JobReported) -> None:
        """Take in what a job said of its progress, its speed and its costs."""
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

    def change(self, key: str, **facts: object) -> None:
        """Take in other facts of a job."""
        self._jobs[key] = replace(self._jobs[key], **facts)  # type: ignore[arg-type]  # the tracker names fields of a job

    def allocate(self, grants: Mapping[str, Grant], at_s: float) -> None:
        """Give every job what `grants` says, and take from the others what they had."""
        running = {key for key, job in self._jobs.items() if job.grant}
        for key, job in self._jobs.items():
            grant = grants.get(key)
            if grant != job.grant:
                self._jobs[key] = _regranted(job, grant, at_s)
        self._devices |= assign(self.cluster, grants, self._devices, running)

    def end(self, key: str, at_s: float) -> None:
        """Move a job to those that have ended."""
        job = self._jobs.pop(key)
        self._ended[key] = _regranted(job, None, at_s)
        self._devices.pop(key, None)
        self._measured.pop(key, None)
        stage = (job.stage.study, job.stage.name)
        self._live[stage] -= 1
        self.touch(stage)


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
