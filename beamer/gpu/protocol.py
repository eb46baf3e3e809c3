"""The messages between a controller and a search's engine: one JSON object per WebSocket text frame, distinguished by `kind`.

An engine connects to `ws://CONTROLLER/v1/studies/STUDY/engine`, is sent `EngineWelcome`, and sends `EngineHello`; it is sent a
whole `SearchAssignment` (never a difference) at once, at every change, and when events that it reported are durable. When it
has done what can be done about one it answers `GpusUsed`, and again whenever the GPUs that its processes compute on change:
before that no other search is given them. What happens to its search it reports as `SearchEvents`, in order and counted from 1,
and again after a connection was lost: an event that is known changes nothing. When the processes of all of its trials are gone,
and it is about to leave, it sends `EngineLeft`. `EngineRefused` comes before the controller closes the connection for good.

An engine does nothing about an assignment that does not take account of the first `GpusUsed` of its connection (`settled`):
what its processes compute on may be missing from it, as the controller did not know that yet.

Both say their version in the handshake's headers, and how much they take in `EngineWelcome` and `EngineHello`. A peer of
version 1 does neither, and is sent nothing that came later: see `beamer.protocol_version`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from beamer.gpu.devices import Devices
from beamer.gpu.model import Grant, Node
from beamer.protocol_version import Since
from beamer.studies.events import EncodedEvent

MAX_EVENTS = 256  # A message has at most so many events.
PING_EVERY_S, PING_ANSWER_S = 5.0, 15.0  # An engine notices by these pings that its controller is gone.
MAX_EVENT_NUMBER = 2**53  # Event numbers up to this one are exact in JSON.

Number = Annotated[int, Field(ge=0, le=MAX_EVENT_NUMBER)]
Limit = Annotated[int, Field(ge=1, le=MAX_EVENT_NUMBER)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineLimits(_Message):
    """The most that an engine takes. message_bytes: of an assignment."""

    message_bytes: Limit


class EngineHello(_Message):
    """The engine's first message.

    run: of the study. nodes: all that the engine can start processes on, whether or not they are up. limits: None: not said.
    """

    kind: Literal["hello"] = "hello"
    run: str
    nodes: tuple[Node, ...]
    limits: Annotated[EngineLimits | None, Since(2)] = None


class SearchLimits(_Message):
    """The most that a controller takes of an engine. message_bytes: of a message. events: in it."""

    message_bytes: Limit
    events: Limit


class EngineWelcome(_Message):
    """The controller's first message, to engines that speak version 2 or later."""

    since: ClassVar[int] = 2
    kind: Literal["welcome"] = "welcome"
    limits: SearchLimits


class SearchEvents(_Message):
    """What has happened to the search, as the journal encodes it. first: the number of the first event, of all, from 1."""

    kind: Literal["events"] = "events"
    first: Annotated[int, Field(ge=1, le=MAX_EVENT_NUMBER)]
    events: Annotated[tuple[EncodedEvent, ...], Field(max_length=MAX_EVENTS)]


class GpusUsed(_Message):
    """The GPUs that processes of the search compute on.

    assignment: the number of the latest that has been acted upon, 0: none of this connection yet. held_bytes: by trial, the
    GPU memory that its processes hold, suspended ones too, of trials of which it is known, rounded up; nothing follows from it.
    """

    kind: Literal["used"] = "used"
    assignment: Number
    devices: Devices
    held_bytes: Annotated[dict[str, Number], Since(2)] = {}


class EngineLeft(_Message):
    """No process of the search runs, and none will until the engine is back."""

    kind: Literal["left"] = "left"


class SearchAssignment(_Message):
    """What holds for the search now.

    number: counts what is sent over a connection, from 1. taken: the last of its events that is durable, and that what
    follows takes account of; 0: none of this connection's. known: whether the run was known before this connection. settled:
    whether what the engine has said that it uses, over this connection, is taken account of. ended: whether the search is
    over, whoever has ended it. left: whether it holds no GPUs since the engine has said that it leaves. policy: that decided.
    grants, devices: by trial, of the trials that hold GPUs which no other search uses any more.
    """

    kind: Literal["assignment"] = "assignment"
    number: Number
    taken: Number
    known: bool
    settled: bool
    ended: bool
    left: bool
    policy: str
    grants: dict[str, Grant]
    devices: dict[str, Devices]


class EngineRefused(_Message):
    """The controller does not serve the engine, and will not if it connects again as it is."""

    kind: Literal["refused"] = "refused"
    reason: str


FromEngine = EngineHello | SearchEvents | GpusUsed | EngineLeft
ToEngine = SearchAssignment | EngineRefused | EngineWelcome
from_engine: TypeAdapter[FromEngine] = TypeAdapter(Annotated[FromEngine, Field(discriminator="kind")])
to_engine: TypeAdapter[ToEngine] = TypeAdapter(Annotated[ToEngine, Field(discriminator="kind")])
