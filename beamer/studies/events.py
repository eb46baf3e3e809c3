"""Everything that can happen to studies, stages and trials: the journal's entries and the tracker's only input.

An event is plain data with the Unix time at which it was taken in. A level adds its own by subclassing `Event`
(`beamer.network.events`, `beamer.gpu.events`); a class is listed nowhere else. `encode` and `decode` are its JSON form. A
level's events can be read where its ledger is imported: no other tracker could take them in.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from beamer.errors import InputError, nearest
from beamer.studies.model import UNKNOWN, EndReason, Process, Profile, Rung, TrialStatus, Worker, split_key
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
    """A study runs, or what it declares has changed.

    run: tells a study from an earlier one of the same name, which another run ends. weight: of its stages in the objective.
    rungs: that it declares, in order. barriers: whether a rung waits for all of its trials, as a stage; otherwise rungs are the
    milestones of an asynchronous search.
    """

    study: str
    run: str = "1"
    weight: float = 1.0
    rungs: tuple[Rung, ...] = ()
    barriers: bool = True


@dataclass(frozen=True)
class StudyEnded(Event):
    """The search is over: its trials that have not ended are ended, its stages are not waited for any more."""

    study: str


@dataclass(frozen=True)
class StageRegistered(Event):
    """A stage is open; its completion time counts from here."""

    study: str
    stage: str


@dataclass(frozen=True)
class StageSealed(Event):
    """No further trial joins the stage."""

    study: str
    stage: str


@dataclass(frozen=True)
class TrialRegistered(Event):
    """A study has a trial. budget: the step at which it is complete, None where not known; a later one replaces it."""

    study: str
    trial: str
    budget: int | None = None


@dataclass(frozen=True)
class TargetSet(Event):
    """A step of a trial is waited for: by a stage, which the trial joins, or as its own milestone (stage None)."""

    trial: str
    step: int
    stage: str | None = None


@dataclass(frozen=True)
class TargetDropped(Event):
    """A stage waits no longer for a trial, or nobody for its milestones (stage None); the trial has not ended."""

    trial: str
    stage: str | None = None


@dataclass(frozen=True)
class AttemptStarted(Event):
    """A trial runs on these workers from now on, instead of where it ran before.

    attempt: a name that no other attempt of the trial has; the first attempt of that name counts. by_host: whether one process
    on each host, from which its workers descend, attaches for all of them, as the first.
    """

    trial: str
    attempt: str
    workers: tuple[Worker, ...]
    profile: Profile = UNKNOWN
    by_host: bool = False


@dataclass(frozen=True)
class AttemptEnded(Event):
    """A trial's attempt has ended, the trial has not. reason: `PAUSED` or `LOST`."""

    trial: str
    attempt: str
    reason: EndReason = EndReason.PAUSED


@dataclass(frozen=True)
class WorkerAttached(Event):
    """A worker of a trial's present attempt is this process, or another one since it was restarted."""

    trial: str
    rank: int
    process: Process


@dataclass(frozen=True)
class WorkerDetached(Event):
    """A worker has left its trial's present attempt on purpose.

    start: of its process, as in `Process`: another process that has taken its place since stays attached. 0: not known.
    """

    trial: str
    rank: int
    start: int = 0


@dataclass(frozen=True)
class Progressed(Event):
    """A trial has completed `step` steps since its beginning. loss: there, if it was reported."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")

    trial: str
    step: int
    loss: float | None = None


@dataclass(frozen=True)
class TrialEnded(Event):
    """A trial finished, was killed, or failed; of several ends the first counts."""

    trial: str
    status: TrialStatus


@dataclass(frozen=True)
class FellSilent(Event):
    """Nothing was heard for too long of a study, of one of its stages, or of one of its trials."""

    study: str
    stage: str | None = None
    trial: str | None = None


def study_of(event: Event) -> str | None:
    """Return the study that an event is of, None for one that is of none."""
    study: str | None = getattr(event, "study", None)
    trial: str | None = getattr(event, "trial", None)
    return split_key(trial)[0] if study is None and trial is not None else study


@dataclass(frozen=True)
class Decision(Event, journaled=False):
    """What decisions of both levels have in common. generation: counts them. state: what the policy remembers, plain JSON."""

    policy: str
    generation: int
    state: Any


EncodedEvent = tuple[str, str]
"""An event's kind and its content as JSON text."""


def encode(event: Event) -> EncodedEvent:
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
