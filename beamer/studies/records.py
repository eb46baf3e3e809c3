"""What the tracker writes down of studies, stages and jobs; only `beamer.studies.tracker` changes it."""

from dataclasses import dataclass, field

from beamer.studies.model import JobSpec, JobStatus, Rung, StageStatus


@dataclass
class JobRecord:
    """A job and how far it has come.

    seq: number of its registration among all jobs, from 1, never reused. done: iterations completed.
    pids: process by rank of the workers that attached. ended_s: Unix time, None while it runs.
    """

    key: str
    seq: int
    study: str
    stage: str
    spec: JobSpec
    registered_s: float
    status: JobStatus = JobStatus.RUNNING
    done: int = 0
    pids: dict[int, int] = field(default_factory=dict)
    ended_s: float | None = None


@dataclass
class StageRecord:
    """A stage with the keys of its jobs in order of registration; times are Unix times, None until they come."""

    name: str
    registered_s: float
    status: StageStatus = StageStatus.OPEN
    sealed_s: float | None = None
    ended_s: float | None = None
    jobs: list[str] = field(default_factory=list)


@dataclass
class StudyRecord:
    """A study with its stages by name, in order of registration."""

    name: str
    weight: float
    rungs: tuple[Rung, ...]
    registered_s: float
    stages: dict[str, StageRecord] = field(default_factory=dict)

    @property
    def later(self) -> tuple[Rung, ...]:
        """The declared rungs that have not been registered as stages yet."""
        return tuple(rung for rung in self.rungs if rung.name not in self.stages)
