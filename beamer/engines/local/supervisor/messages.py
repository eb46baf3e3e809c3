"""What an engine asks of a job's supervisor on a node, and what it answers: a line of JSON each, over the supervisor's socket.

    {"kind": "status", "after": 12}      {"kind": "status", "run": {"number": 1, "state": "running", ...}, ...}
    {"kind": "suspend", "timeout_s": 5}  {"kind": "accepted"} or {"kind": "refused", "reason": ...}

Every request may be repeated: asked for what holds already, a supervisor accepts and does nothing.

A supervisor outlives its engine, and may be of another version: from version 2 on a request has `"protocol": VERSION`, and so
has the answer to it. A supervisor of version 1 refuses to read that, and is asked again without: see `beamer.protocol_version`.
It takes requests of any length, and says itself whether there are more reports than an answer holds, so that it says no limits.
Only the standard library is imported here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import MemoryPlace, RanksState
from beamer.engines.local.supervisor import codec
from beamer.engines.local.supervisor.progress import NodeReport, Progress
from beamer.errors import InputError, nearest
from beamer.protocol_version import FIRST_VERSION, LINE_KEY, PROTOCOL_VERSION, Since, check_version


@dataclass(frozen=True)
class GetStatus:
    """Answer with `Status`. after: the number of reports that are known already, which are left out."""

    after: int = 0


@dataclass(frozen=True)
class GetPort:
    """Answer with `FreePort`. keep: whether it is kept for rank 0, so that the kernel gives it to nobody else."""

    keep: bool = True


@dataclass(frozen=True)
class Launch:
    """Start the ranks of a run on this node; a run that was launched before is left as it is."""

    run: int
    """The number of the run: it counts the job's launches."""
    spec: LaunchSpec
    """How the ranks are launched."""
    ranks: tuple[int, ...]
    """Their numbers on this node."""
    devices: tuple[str, ...]
    """What CUDA_VISIBLE_DEVICES is to name, in order of ranks."""
    world_size: int
    """How many ranks the run has on all nodes."""
    master_addr: str
    """The address of rank 0."""
    master_port: int
    """The port of rank 0."""
    batch_size: int
    """Samples of an iteration in this run, all ranks together."""
    progress: Progress = field(default=Progress())
    """How far the job has come."""
    gap_s: float = 0.0
    """Seconds for which the job has computed nothing before."""
    ran_s: float = 0.0
    """As in `RunStatus`, of the runs before this one."""
    quiet_s: float = 0.0
    """As in `RunStatus`, of the runs before this one."""
    holds: Annotated[bool, Since(2)] = False
    """Whether the ranks are frozen before they use a GPU, until they are resumed."""
    park_after_s: Annotated[float | None, Since(2)] = None
    """As in `Suspend`, of ranks that are held."""


@dataclass(frozen=True)
class Suspend:
    """Freeze the ranks, and answer when all of them are frozen.

    park_after_s: after so long they are resumed and stopped at an iteration boundary, without being asked; None: never.
    offloads: whether their GPU memory is moved to host memory, too. It is under way then, and they are frozen when it is there.
    """

    timeout_s: float
    park_after_s: float | None = None
    offloads: Annotated[bool, Since(2)] = False


@dataclass(frozen=True)
class Resume:
    """Thaw the ranks. Ranks that are still to be held are not held any more.

    If their GPU memory is on the host it is brought back first: that is under way then. devices: onto which GPUs of the node,
    as in `Launch`, of the same chip; (): those that it came from. Refused for memory that is on other GPUs, and stays there.
    """

    timeout_s: float
    devices: Annotated[tuple[str, ...], Since(2)] = ()


@dataclass(frozen=True)
class Stop:
    """Send the ranks the stop signal, suspended ones after they are resumed; they stop at an iteration boundary."""

    timeout_s: float


@dataclass(frozen=True)
class Checkpoint:
    """Send the ranks the checkpoint signal."""


@dataclass(frozen=True)
class Kill:
    """Kill the ranks at once; what came after their last checkpoint is lost."""


@dataclass(frozen=True)
class End:
    """Kill the ranks and end the supervisor. forget: remove the reports, too, and refuse launches up to `run` from now on."""

    forget: bool = False
    run: int = 0


@dataclass(frozen=True)
class MemoryStatus:
    """Where the GPU memory of a run is on its node.

    refusal: why it could not be moved last, "": it could, or nobody has asked. permanent: whether that will not change.
    offload_s, restore_s: what the last move to the host, and back, took; 0: there was none.
    """

    place: MemoryPlace = MemoryPlace.GPU
    refusal: str = ""
    permanent: bool = False
    offload_s: float = 0.0
    restore_s: float = 0.0


@dataclass(frozen=True)
class RunStatus:
    """What a supervisor knows of the last run that was launched on its node.

    number: of the launch, 0: none. note: what was lost. exit: why it failed. tail_s: from its last line of progress to its end.
    restart_s: what its start took, None: not measured. iteration_s: how long an iteration takes, 0: not measured.
    missing: iterations to the end that it has not reported, see `Meter.missing`. refused: the first line that was meant as
    progress and is none, with what was expected. port_taken: whether it ended before its first line as another program has the
    port of rank 0. ran_s: for how long the ranks have run since the attempt at the job's target began; quiet_s: since any of
    them here has printed anything; paused_s: for how long they were suspended since the last line of progress. died_stopping:
    whether a rank died of the stop signal, so that the others, on all nodes, reach no common boundary. unread: of a run that
    has ended well and of which no line was read as progress here, nor of the runs before it: what it printed last; else "".
    held: whether its ranks are frozen, or will be, before they use a GPU. memory: where that is which they have there.
    out_of_memory: whether it failed, and its last words are that a GPU has none left.
    """

    number: int = 0
    state: RanksState = RanksState.IDLE
    note: str = ""
    exit: str = ""
    tail_s: float = 0.0
    progress: Progress = field(default=Progress())
    restart_s: float | None = None
    iteration_s: float = 0.0
    missing: float = 0.0
    refused: str = ""
    port_taken: bool = False
    ran_s: float = 0.0
    quiet_s: float = 0.0
    paused_s: float = 0.0
    died_stopping: bool = False
    unread: Annotated[str, Since(2)] = ""
    held: Annotated[bool, Since(2)] = False
    memory: Annotated[MemoryStatus, Since(2)] = field(default=MemoryStatus())
    out_of_memory: Annotated[bool, Since(2)] = False


@dataclass(frozen=True)
class Status:
    """What has become of the ranks.

    now_s: the node's monotonic clock, which reports are on. ended_s: how long ago the run ended. count: reports up to these.
    more: whether there are more. group: the kind of process group. pid, start, namespace: of the process below which
    the ranks are, the supervisor or the one that has forked them, as in `beamer.studies.model.Process`. offloads: whether the
    supervisor knows how GPU memory is moved.
    """

    run: RunStatus
    now_s: float
    ended_s: float
    reports: tuple[NodeReport, ...]
    count: int
    more: bool
    group: str
    pid: int
    start: int = 0
    namespace: int = 0
    offloads: Annotated[bool, Since(2)] = False


@dataclass(frozen=True)
class FreePort:
    """A port that was free when it was asked for."""

    port: int


@dataclass(frozen=True)
class Accepted:
    """It is done, or under way."""


@dataclass(frozen=True)
class Refused:
    """It cannot be done. reason: why not, with what the supervisor found."""

    reason: str


SupervisorRequest = GetStatus | GetPort | Launch | Suspend | Resume | Stop | Checkpoint | Kill | End
SupervisorAnswer = Status | FreePort | Accepted | Refused
MessageT = TypeVar("MessageT", covariant=True)

REQUESTS: Mapping[str, type[SupervisorRequest]] = {
    "status": GetStatus,
    "port": GetPort,
    "launch": Launch,
    "suspend": Suspend,
    "resume": Resume,
    "stop": Stop,
    "checkpoint": Checkpoint,
    "kill": Kill,
    "end": End,
}
ANSWERS: Mapping[str, type[SupervisorAnswer]] = {"status": Status, "port": FreePort, "accepted": Accepted, "refused": Refused}
_KINDS = {kind: name for name, kind in (*REQUESTS.items(), *ANSWERS.items())}


def kind_of(message: SupervisorRequest | SupervisorAnswer) -> str:
    """Return what a message is called in JSON and in errors."""
    return _KINDS[type(message)]


@dataclass(frozen=True)
class Received(Generic[MessageT]):
    """A message that was read. version: that its sender speaks. unused: what is not known of it, as the sender is newer."""

    message: MessageT
    version: int = FIRST_VERSION
    unused: tuple[str, ...] = ()


def encode(message: SupervisorRequest | SupervisorAnswer, version: int = PROTOCOL_VERSION) -> str:
    """Return a message as a line of JSON, without its end, as a peer of a version reads it."""
    values = {"kind": kind_of(message), **codec.values(message, version)}
    return codec.encode(values if version == FIRST_VERSION else {**values, LINE_KEY: PROTOCOL_VERSION}, version)


def read_request(line: str | bytes) -> Received[SupervisorRequest]:
    """Return the request that a line holds. Raises `InputError` naming what it holds instead."""
    return _read(line, REQUESTS, "request", "engine", "supervisor")


def read_answer(line: str | bytes) -> Received[SupervisorAnswer]:
    """Return the answer that a line holds. Raises `InputError` naming what it holds instead."""
    return _read(line, ANSWERS, "answer", "supervisor", "engine")


def is_unread(request: SupervisorRequest, refusal: str) -> bool:
    """Return whether a program of version 1 says by a refusal that it cannot read which version the request's sender speaks."""
    return f"{kind_of(request)}.{LINE_KEY}: got {PROTOCOL_VERSION}," in refusal


def _read(line: str | bytes, kinds: Mapping[str, Any], what: str, peer: str, own: str) -> Received[Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(what, line[:200], "a line of JSON") from error
    if not isinstance(values, dict) or "kind" not in values:
        raise InputError(what, values, 'a JSON object with "kind"')
    kind = values.pop("kind")
    version = values.pop(LINE_KEY, FIRST_VERSION)
    if type(version) is not int or version < FIRST_VERSION:
        raise InputError(f"{what}.{LINE_KEY}", version, "the number of a version")
    check_version(version, peer, own)
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{what}.kind", kind, nearest(str(kind), kinds))
    unused: list[str] | None = [] if version > PROTOCOL_VERSION else None
    return Received(codec.decode(kinds[kind], values, kind, unused), version, tuple(unused or ()))
