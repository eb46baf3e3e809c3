"""The request bodies of the HTTP API; unknown keys and what JSON or a machine cannot hold are refused here.

What a value means is checked by the tracker.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from beamer.studies.model import (
    MAX_PID,
    MAX_RANK,
    MAX_STEPS,
    MAX_SYNC_BYTES,
    MAX_TICKS,
    Process,
    Profile,
    Role,
    Rung,
    Worker,
)
from controller.http.host_names import HostNames

Count = Annotated[int, Strict(), Field(ge=0, le=MAX_STEPS)]  # "3" and true are no counts
Bytes = Annotated[int, Strict(), Field(ge=0, le=MAX_SYNC_BYTES)]
Ticks = Annotated[int, Strict(), Field(ge=0, le=MAX_TICKS)]
Rank = Annotated[int, Strict(), Field(ge=0, le=MAX_RANK)]


class Body(BaseModel):
    """The base of every body."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EmptyBody(Body):
    """A request whose path is complete."""


class RungBody(Body):
    """A rung, declared. step: counted from a trial's beginning."""

    name: str
    trials: Count
    step: Count

    def rung(self) -> Rung:
        """Return it as the model's rung."""
        return Rung(self.name, self.trials, self.step)


class StudyBody(Body):
    """A study. What is missing stays as it is; of a study that is new, it is the model's default.

    run: tells it from earlier ones of its name. weight: of its stages in the objective. rungs: that it declares. barriers:
    whether these are stages.
    """

    run: str | None = None
    weight: float | None = None
    rungs: Annotated[list[RungBody], Field(fail_fast=True)] | None = None
    barriers: bool | None = None


class MemberBody(Body):
    """A process that takes part in a study, from now on or still.

    lease_s: it is taken for gone when nothing was heard of it for so long. host, pid: of it, for people to find it.
    """

    lease_s: Annotated[float, Strict()] = 30.0
    host: Annotated[str, Field(max_length=255, pattern=r"^[!-~]*$")] = ""
    pid: Annotated[int, Strict(), Field(ge=0, le=MAX_PID)] = 0


class TrialBody(Body):
    """A trial. budget: the step at which it is complete. member: that begins it. What is missing is not known, or as it is."""

    budget: Count | None = None
    member: str | None = None


class TargetBody(Body):
    """A step that is waited for. stage: by which; missing: the trial's own milestone."""

    step: Count
    stage: str | None = None


class DropBody(Body):
    """What waits for the trial no longer. stage: which; missing: its own milestones are not waited for."""

    stage: str | None = None


class WorkerBody(Body):
    """One process of an attempt."""

    rank: Rank
    host: str
    role: Role = Role.WORKER


class MachineBody(Body):
    """The machine that sends a request. names: by which it calls itself. addresses: that it has."""

    names: Annotated[list[str], Field(max_length=16)] = []
    addresses: Annotated[list[str], Field(max_length=256)] = []


class AttemptBody(Body):
    """Where a trial runs from now on, and what it does in a step; missing: not known.

    workers: their hosts as the fabric names them, or by their addresses there. here: which of the names mean the machine that
    sends this.

    sync_bytes: gradient bytes of one synchronisation. compute_s: seconds per step. overlap: in [0, 1]. step: of the trial at
    which the attempt begins, as the first report of progress says where it is missing.
    """

    workers: Annotated[list[WorkerBody], Field(fail_fast=True)]  # One of a million invalid workers is enough to report.
    sync_bytes: Bytes | None = None
    collective: str = "ring"
    compute_s: float | None = None
    overlap: float = 0.0
    step: Count | None = None
    here: MachineBody | None = None

    def placement(self, hosts: HostNames) -> tuple[Worker, ...]:
        """Return the workers as the model's. Raises `InputError` for a name of a machine that is none of `hosts`."""
        here = self.here or MachineBody()
        return tuple(
            Worker(w.rank, hosts.find(w.host, here.names, here.addresses, f"workers[{i}].host"), w.role)
            for i, w in enumerate(self.workers)
        )

    def profile(self) -> Profile:
        """Return the traffic as the model's profile."""
        return Profile(self.sync_bytes, self.collective, self.compute_s, self.overlap)


class AttemptEndBody(Body):
    """Why an attempt has ended though its trial has not."""

    reason: Literal["paused", "lost"]


class AttachBody(Body):
    """A worker's process, the root of its process tree; see `Process`."""

    pid: Annotated[int, Strict(), Field(le=MAX_PID)]
    start: Ticks = 0
    namespace: Ticks = 0

    def process(self) -> Process:
        """Return it as the model's process, which holds no lease."""
        return Process(self.pid, self.start, self.namespace)


class DetachBody(Body):
    """Which process of a worker detaches, by its start as in `Process`; 0: whichever is attached."""

    start: Ticks = 0


class ProgressBody(Body):
    """How far a trial has come. step: complete ones since its beginning. loss: at that step; "nan", "inf" are losses too."""

    step: Count
    loss: float | None = None


class StatusBody(Body):
    """How a trial ended."""

    status: Literal["finished", "killed", "failed"]
