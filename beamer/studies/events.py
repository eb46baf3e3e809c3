"""Everything that can happen to studies, stages and trials: the journal's entries and the tracker's only input.

An event is plain data with the Unix time at which it was taken in. A level adds its own by subclassing `Event`
(`beamer.network.events`, `beamer.gpu.events`); a class is listed nowhere else. `encode` and `decode` are its JSON form. A
level's events can be read where its ledger is imported: no other tracker could take them in.

A class declares what its events wake, and how older versions of them become the present one:

    @dataclass(frozen=True)
    class Progressed(Event, wakes=Wakes.PACE, upcasters=(_without_epoch,)):  # version 2
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from beamer.errors import NewerError, nearest
from beamer.protocol_version import Since, newer_fields
from beamer.studies.model import UNKNOWN, EndReason, Process, Profile, Rung, TrialStatus, Worker, split_key
from beamer.studies.versions import Upcaster, Versioned, split_stored_name, stored_name
from beamer.studies.wakes import Wakes
from beamer.validation import input_error

_KINDS: "dict[str, type[Event]]" = {}


@dataclass(frozen=True)
class Event:
    """Something that happened at a Unix time, seconds. A subclass is an entry of the journal under its class's name.

    wakes: what is due after it. versioned: its name and the upcasters of its older versions.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")  # A field that is not known may mean anything.
    wakes: ClassVar[Wakes]
    versioned: ClassVar[Versioned]

    at_s: float

    def __init_subclass__(
        cls, wakes: Wakes | None = None, upcasters: tuple[Upcaster, ...] = (), journaled: bool = True, **arguments: Any
    ) -> None:
        """Make a class known to `decode`.

        wakes: what is due after its events; None: as of its base class. upcasters: one for each version after the first.
        journaled: whether it is an entry itself, not just what entries have in common. Raises `TypeError` for an entry that
        declares nothing about what it wakes, and for one whose name another has.
        """
        super().__init_subclass__(**arguments)
        known = _KINDS.get(cls.__name__)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{cls.__module__}.{cls.__qualname__}: {known.__module__} has an event of that name")
        if wakes is not None:
            cls.wakes = wakes
        cls.versioned = Versioned(cls.__name__, upcasters)
        if journaled:
            if not hasattr(cls, "wakes"):
                declared = f"class {cls.__name__}(Event, wakes=...), Wakes.NOTHING where nothing is due"
                raise TypeError(f"{cls.__module__}.{cls.__qualname__}: declare what it wakes: {declared}")
            _KINDS[cls.__name__] = cls


@dataclass(frozen=True)
class StudyRegistered(Event, wakes=Wakes.ORDER | Wakes.GPUS):
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


def _ended_for_good(event: Any) -> Any:
    """Return version 2 of a study's end: there were no members before."""
    return {**event, "left": False}


@dataclass(frozen=True)
class StudyEnded(Event, wakes=Wakes.ORDER | Wakes.GPUS, upcasters=(_ended_for_good,)):
    """The search is over: its trials that have not ended are ended, its stages are not waited for any more.

    left: whether it ended because its last member left; then a process that names its run may go on with it.
    """

    study: str
    left: Annotated[bool, Since(2)] = False


@dataclass(frozen=True)
class MemberJoined(Event, wakes=Wakes.ORDER | Wakes.LEASES):
    """A process of the study's tuner takes part: the study goes on until the last of them leaves, or somebody ends it.

    member: its name. lease_s: it is taken for gone when nothing was heard of it for so long. host, pid: of it. What is said
    again of a member replaces what was said before.
    """

    study: str
    member: str
    lease_s: float
    host: str = ""
    pid: int = 0


@dataclass(frozen=True)
class MemberLeft(Event, wakes=Wakes.NOTHING):
    """A member takes part no more. lost: it is gone; otherwise the trials that it began end with it unless they have ended."""

    study: str
    member: str
    lost: bool = False


@dataclass(frozen=True)
class StageRegistered(Event, wakes=Wakes.ORDER):
    """A stage is open; its completion time counts from here."""

    study: str
    stage: str


@dataclass(frozen=True)
class StageSealed(Event, wakes=Wakes.ORDER | Wakes.GPUS):
    """No further trial joins the stage."""

    study: str
    stage: str


def _without_member(event: Any) -> Any:
    """Return version 2 of a trial's registration: which member began it is not known."""
    return {**event, "member": None}


@dataclass(frozen=True)
class TrialRegistered(Event, wakes=Wakes.ORDER, upcasters=(_without_member,)):
    """A study has a trial. budget: the step at which it is complete, None where not known; a later one replaces it.

    member: that began it, None where none did; another one replaces it once it takes part no more.
    """

    study: str
    trial: str
    budget: int | None = None
    member: Annotated[str | None, Since(2)] = None


@dataclass(frozen=True)
class TargetSet(Event, wakes=Wakes.ORDER | Wakes.GPUS):
    """A step of a trial is waited for: by a stage, which the trial joins, or as its own milestone (stage None)."""

    trial: str
    step: int
    stage: str | None = None


@dataclass(frozen=True)
class TargetDropped(Event, wakes=Wakes.ORDER):
    """A stage waits no longer for a trial, or nobody for its milestones (stage None); the trial has not ended."""

    trial: str
    stage: str | None = None


def _goes_on(event: Any) -> Any:
    """Return version 2 of an attempt's start: none began at an earlier step than its trial had come to."""
    return {**event, "step": None, "may_go_back": False}


@dataclass(frozen=True)
class AttemptStarted(Event, wakes=Wakes.ORDER | Wakes.LEASES, upcasters=(_goes_on,)):
    """A trial runs on these workers from now on, instead of where it ran before.

    attempt: a name that no other attempt of the trial has; the first attempt of that name counts. by_host: whether one process
    on each host, from which its workers descend, attaches for all of them, as the first. step: of the trial at which the
    attempt begins, which may be an earlier one than the trial has come to; None: as its first report of progress says, if
    `may_go_back`, or else where the trial is.
    """

    trial: str
    attempt: str
    workers: tuple[Worker, ...]
    profile: Profile = UNKNOWN
    by_host: bool = False
    step: Annotated[int | None, Since(2)] = None
    may_go_back: Annotated[bool, Since(2)] = True


@dataclass(frozen=True)
class AttemptEnded(Event, wakes=Wakes.ORDER | Wakes.LEASES):
    """A trial's attempt has ended, the trial has not. reason: `PAUSED` or `LOST`."""

    trial: str
    attempt: str
    reason: EndReason = EndReason.PAUSED


@dataclass(frozen=True)
class WorkerAttached(Event, wakes=Wakes.TARGETS | Wakes.STANDING | Wakes.LEASES):
    """A worker of a trial's present attempt is this process, or another one since it was restarted."""

    trial: str
    rank: int
    process: Process


@dataclass(frozen=True)
class WorkerDetached(Event, wakes=Wakes.TARGETS | Wakes.LEASES):
    """A worker has left its trial's present attempt on purpose.

    start: of its process, as in `Process`: another process that has taken its place since stays attached. 0: not known.
    """

    trial: str
    rank: int
    start: int = 0


@dataclass(frozen=True)
class Progressed(Event, wakes=Wakes.PACE | Wakes.STANDING):
    """A trial has completed `step` steps since its beginning. loss: there, if it was reported.

    The first report of an attempt that did not say at which step it begins may name an earlier step than the trial has come to.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    trial: str
    step: int
    loss: float | None = None


@dataclass(frozen=True)
class TrialEnded(Event, wakes=Wakes.ORDER | Wakes.LEASES | Wakes.GPUS):
    """A trial finished, was killed, or failed; of several ends the first counts."""

    trial: str
    status: TrialStatus


@dataclass(frozen=True)
class FellSilent(Event, wakes=Wakes.ORDER):
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
class Decision(Event, wakes=Wakes.NOTHING, journaled=False):
    """What decisions of both levels have in common. generation: counts them. state: what the policy remembers, plain JSON."""

    policy: str
    generation: int
    state: Any


EncodedEvent = tuple[str, str]
"""An event's kind, with its version, and its content as JSON text."""


def encode(event: Event) -> EncodedEvent:
    """Return an event's kind, with its version, and its content as JSON text."""
    cls = type(event)
    return cls.versioned.stored_name, _adapter(cls).dump_json(event).decode()


def encoded_for(event: EncodedEvent, protocol: int) -> EncodedEvent:
    """Return an event as `encode` wrote it in the form that a peer of an older version of the protocol reads.

    The fields that came with a later version of the protocol are left out; each of those gave its kind a new version.
    """
    name, version = split_stored_name(event[0])
    cls: Any = _KINDS[name]
    newer: frozenset[str] = newer_fields(cls, protocol) if version > 1 else frozenset()
    if not newer:
        return event
    content = {key: value for key, value in json.loads(event[1]).items() if key not in newer}
    return stored_name(name, version - 1), json.dumps(content, separators=(",", ":"))


def decode(kind: str, content: str) -> Event:
    """Return the event that `encode` wrote, or an earlier version of it did.

    Raises `NewerError` for an unknown kind and for a later version, `InputError` for another content: an unknown field is one.
    """
    cls, version = _KINDS.get(kind), 1
    if cls is None or cls.versioned.upcasters:
        cls, version = _of_older(kind)
        content = cls.versioned.upcast(version, content)
    try:
        return _adapter(cls).validate_json(content)
    except ValidationError as error:
        raise input_error(error, cls, prefix=f"event.{kind}") from error


def _of_older(kind: str) -> tuple[type[Event], int]:
    """Return the class and the version of a stored kind. Raises `NewerError`."""
    name, version = split_stored_name(kind)
    cls = _KINDS.get(name)
    if cls is None:
        raise NewerError(
            "event", kind, f"{nearest(name, _KINDS)}; another program or a newer Beamer wrote it: see docs/upgrading.md"
        )
    if version > cls.versioned.version:
        raise cls.versioned.newer("event", kind)
    return cls, version


_ADAPTERS: dict[type[Event], TypeAdapter[Event]] = {}


def _adapter(cls: type[Event]) -> TypeAdapter[Event]:
    """Return what reads and writes a class's events, made when it is needed first."""
    found = _ADAPTERS.get(cls)
    if found is None:
        found = _ADAPTERS[cls] = TypeAdapter(cls)
    return found
