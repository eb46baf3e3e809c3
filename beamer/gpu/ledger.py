"""The GPU level's part of the tracker: nodes, submitted jobs with all that they reported, and what each was granted.

It is fed by the tracker, which knows studies and stages and checks what comes; events applied in order to a new ledger give an
equal one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType

from beamer.gpu.devices import Devices, assign
from beamer.gpu.model import Cluster, Grant, Job, Node, Report, Request, Speed, Stage

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

    def report(self, key: str, report: Report | None, speeds: Sequence[Speed]) -> None:
        """Take in what a job said of its progress and its speed."""
        job = self._jobs[key]
        if report:
            job = replace(job, reports=(*job.reports, report))
        if speeds:
            measured = self._measured.setdefault(key, {})
            for speed in speeds:
                shape = (speed.gpus, speed.nodes, speed.servers, speed.batch_size)
                measured[shape] = [*measured.get(shape, ()), speed][-LAST:]
            job = replace(job, speeds=tuple(_mean(last) for last in measured.values()))
        self._jobs[key] = job

    def change(self, key: str, **facts: object) -> None:
        """Take in other facts of a job."""
        self._jobs[key] = replace(self._jobs[key], **facts)  # type: ignore[arg-type]  # the tracker names fields of a job

    def allocate(self, grants: Mapping[str, Grant], at_s: float) -> None:
        """Give every job what `grants` says, and take from the others what they had."""
        for key, job in self._jobs.items():
            grant = grants.get(key)
            if grant != job.grant:
                self._jobs[key] = _regranted(job, grant, at_s)
        self._devices |= assign(self.cluster, grants, self._devices)

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
