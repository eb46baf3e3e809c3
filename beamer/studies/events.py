"""Everything that can happen to studies, stages and jobs: the journal's entries and the tracker's only input.

An event is plain data with the Unix time at which it was taken in. A level adds its own by subclassing `Event`
(`beamer.network.events`, `beamer.gpu.events`); a class is listed nowhere else. `encode` and `decode` are its JSON form. A
level's events can be read where its ledger is imported: no other tracker could take them in.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from beamer.errors import InputError, nearest
from beamer.studies.model import JobSpec, JobStatus, Rung
from beamer.validation import input_error

_KINDS: "dict[str, type[Event]]" = {}


@dataclass(frozen=True)
class Event:
    """Something that happened at a Unix time, seconds. A subclass is an entry of the journal under its class's name."""

    at_s: float

    def __init_subclass__(cls, journaled: bool = True, **arguments: Any) -> None:
        """Make a class known to `decode`. journaled: whether it is an entry itself, not just what entries have in common."""
        super().__init_subclass__(**arguments)
        known = _KINDS.get(cls.__name__)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{cls.__module__}.{cls.__qualname__}: {known.__module__} has an event of that name")
        if journaled:
            _KINDS[cls.__name__] = cls


@dataclass(frozen=True)
class StudyRegistered(Event):
    """A study exists. weight: of its stages in the objective. rungs: stages that it declares ahead, in order."""

    study: str
    weight: float = 1.0
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True)
class StageRegistered(Event):
    """A stage is open; its completion time counts from here."""

    study: str
    stage: str


@dataclass(frozen=True)
class StageSealed(Event):
    """No further job joins the stage."""

    study: str
    stage: str


@dataclass(frozen=True)
class JobRegistered(Event):
    """A job runs in an open stage."""

    study: str
    stage: str
    spec: JobSpec


@dataclass(frozen=True)
class WorkerAttached(Event):
    """A worker's process has started (again). pid: in the host's process namespace."""

    job: str
    rank: int
    pid: int


@dataclass(frozen=True)
class IterationDone(Event):
    """The job has completed `iteration` iterations."""

    job: str
    iteration: int


@dataclass(frozen=True)
class JobEnded(Event):
    """The job finished, was killed, or broke off."""

    job: str
    status: JobStatus


@dataclass(frozen=True)
class Decision(Event, journaled=False):
    """What decisions of both levels have in common. generation: counts them. state: what the policy remembers, plain JSON."""

    policy: str
    generation: int
    state: Any


def encode(event: Event) -> tuple[str, str]:
    """Return an event's kind and its content as JSON text."""
    kind = type(event).__name__
    return kind, _adapter(kind).dump_json(event).decode()


def decode(kind: str, content: str) -> Event:
    """Return the event that `encode` wrote. Raises `InputError` for an unknown kind or another shape."""
    if kind not in _KINDS:
        raise InputError("event", kind, nearest(kind, _KINDS))
    try:
        return _adapter(kind).validate_json(content)
    except ValidationError as error:
        raise input_error(error, prefix=f"event.{kind}") from error


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    return TypeAdapter(_KINDS[kind])
