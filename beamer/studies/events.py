"""Everything that can happen to studies, stages and jobs: the journal's entries and the tracker's only input.

An event is plain data with the Unix time at which the controller took it in. `encode` and `decode` are its JSON form.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from beamer.errors import InputError, nearest
from beamer.gpu.model import Costs, Grant, Node, Report, Request, Speed
from beamer.network.plan import JobPlan
from beamer.studies.model import JobSpec, JobStatus, Rung
from beamer.validation import input_error


@dataclass(frozen=True)
class StudyRegistered:
    """A study exists. weight: of its stages in the objective. rungs: later stages it declares."""

    at_s: float
    study: str
    weight: float = 1.0
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True)
class StageRegistered:
    """A stage is open; its completion time counts from here."""

    at_s: float
    study: str
    stage: str


@dataclass(frozen=True)
class StageSealed:
    """No further job joins the stage."""

    at_s: float
    study: str
    stage: str


@dataclass(frozen=True)
class JobRegistered:
    """A job runs in an open stage."""

    at_s: float
    study: str
    stage: str
    spec: JobSpec


@dataclass(frozen=True)
class WorkerAttached:
    """A worker's process has started (again). pid: in the host's process namespace."""

    at_s: float
    job: str
    rank: int
    pid: int


@dataclass(frozen=True)
class IterationDone:
    """The job has completed `iteration` iterations."""

    at_s: float
    job: str
    iteration: int


@dataclass(frozen=True)
class JobEnded:
    """The job finished, was killed, or broke off."""

    at_s: float
    job: str
    status: JobStatus


@dataclass(frozen=True)
class JobConnection:
    """A TCP connection of a job's worker, local end first."""

    job: str
    rank: int
    local_ip: str
    local_port: int
    remote_ip: str
    remote_port: int


@dataclass(frozen=True)
class ConnectionsSeen:
    """All connections of registered workers that one host agent sees; replaces what it saw before."""

    at_s: float
    agent: str
    connections: tuple[JobConnection, ...]


@dataclass(frozen=True)
class Decided:
    """A policy's decision. state: what the policy remembers, as plain JSON. jobs: the plan's, by job."""

    at_s: float
    policy: str
    generation: int
    queues: int
    state: Any
    jobs: dict[str, JobPlan]


@dataclass(frozen=True)
class NodesSeen:
    """These nodes are up; replaces what was known before."""

    at_s: float
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class JobSubmitted:
    """A job of an open stage asks for GPUs."""

    at_s: float
    study: str
    stage: str
    job: str
    request: Request


@dataclass(frozen=True)
class JobReported:
    """What a submitted job says: of its progress, of its speed, of what changing its GPUs took; each may be missing."""

    at_s: float
    job: str
    report: Report | None = None
    speeds: tuple[Speed, ...] = ()
    costs: Costs | None = None


@dataclass(frozen=True)
class Allocated:
    """A GPU policy's decision. state: what the policy remembers, as plain JSON. grants: the whole allocation, by job."""

    at_s: float
    policy: str
    generation: int
    state: Any
    grants: dict[str, Grant]


Event = (
    StudyRegistered
    | StageRegistered
    | StageSealed
    | JobRegistered
    | WorkerAttached
    | IterationDone
    | JobEnded
    | ConnectionsSeen
    | Decided
    | NodesSeen
    | JobSubmitted
    | JobReported
    | Allocated
)

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    cls.__name__: TypeAdapter(cls)
    for cls in (
        StudyRegistered,
        StageRegistered,
        StageSealed,
        JobRegistered,
        WorkerAttached,
        IterationDone,
        JobEnded,
        ConnectionsSeen,
        Decided,
        NodesSeen,
        JobSubmitted,
        JobReported,
        Allocated,
    )
}


def encode(event: Event) -> tuple[str, str]:
    """Return an event's kind and its content as JSON text."""
    kind = type(event).__name__
    return kind, _ADAPTERS[kind].dump_json(event).decode()


def decode(kind: str, content: str) -> Event:
    """Return the event that `encode` wrote. Raises `InputError` for an unknown kind or another shape."""
    if kind not in _ADAPTERS:
        raise InputError("event", kind, nearest(kind, _ADAPTERS))
    try:
        event: Event = _ADAPTERS[kind].validate_json(content)
    except ValidationError as error:
        raise input_error(error, prefix=f"event.{kind}") from error
    return event
