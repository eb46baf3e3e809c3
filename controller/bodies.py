"""The request bodies of the HTTP API; unknown keys are refused here, values are checked by the tracker."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Strict

from beamer.network.job import JobSpec
from beamer.studies.model import JobStatus, Role, Rung, Worker

Count = Annotated[int, Strict()]  # "3" and true are no counts


class Body(BaseModel):
    """The base of every body."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EmptyBody(Body):
    """A request whose path is complete."""


class RungBody(Body):
    """A later stage, declared."""

    name: str
    jobs: Count
    iterations: Count

    def rung(self) -> Rung:
        """Return it as the model's rung."""
        return Rung(self.name, self.jobs, self.iterations)


class StudyBody(Body):
    """A study. weight: of its stages in the objective. rungs: the stages it will register, where they are known."""

    weight: float = 1.0
    rungs: list[RungBody] = []


class WorkerBody(Body):
    """One process of a job."""

    rank: Count
    host: str
    role: Role = Role.WORKER


class JobBody(Body):
    """A job. sync_bytes: gradient bytes of one synchronisation. compute_s: seconds per iteration. overlap: in [0, 1]."""

    workers: list[WorkerBody]
    iterations: Count
    sync_bytes: Count
    collective: str = "ring"
    compute_s: float = 0.0
    overlap: float = 0.0

    def spec(self, name: str) -> JobSpec:
        """Return it as the model's job `name`."""
        workers = tuple(Worker(w.rank, w.host, w.role) for w in self.workers)
        return JobSpec(name, workers, self.iterations, self.sync_bytes, self.collective, self.compute_s, self.overlap)


class AttachBody(Body):
    """A worker's process. pid: root of its process tree, in its host's process namespace."""

    pid: Count


class StatusBody(Body):
    """How a job ended."""

    status: Literal[JobStatus.FINISHED, JobStatus.KILLED]
