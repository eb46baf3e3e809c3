"""The messages between controller and host agents: one JSON object per WebSocket text frame, distinguished by `kind`.

An agent connects to `ws://CONTROLLER/v1/agents/NAME`, sends `Hello` and `Workers`, and receives a whole `Assignment` (never a
difference) at once and at every change; it reconciles, reads back and answers `Applied` with the assignment's generation. In
between it sends `Workers` and `Connections` (the full set of each, whenever that changes) and `Counters` (periodically).
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from beamer.network.connection import Connection
from beamer.network.plan import QUEUES, UNREGISTERED_SHARE
from beamer.studies.model import Process
from beamer.units import ETHERNET_HEADER, ETHERNET_MTU


class Message(BaseModel):
    """The base of every message: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Port(Message):
    """An interface whose queues the agent owns.

    classify: by the socket's mark on hosts, by DSCP on switch ports. frame_bytes: of the largest frame.
    """

    interface: str
    rate_bps: int
    classify: Literal["mark", "dscp"]
    frame_bytes: int = Field(default=ETHERNET_MTU + ETHERNET_HEADER, gt=0)


class LocalWorker(Message):
    """A worker process on this agent's host, with its job's class and cap. job: its trial's key."""

    job: str
    rank: int
    process: Process
    klass: int
    cap_bps: int | None = None


class Assignment(Message):
    """Everything that one agent has to apply.

    addresses: the data addresses of all hosts; a socket counts only when both its ends are among them. connections: those of
    the workers' whose rules the switches hold; no other is marked.
    """

    kind: Literal["assignment"] = "assignment"
    generation: int
    queues: int = QUEUES
    unregistered_share: float = UNREGISTERED_SHARE
    ports: tuple[Port, ...] = ()
    workers: tuple[LocalWorker, ...] = ()
    addresses: tuple[str, ...] = ()
    connections: tuple[Connection, ...] = ()


class Hello(Message):
    """The first message of a connection. generation: of the assignment in force on the agent, 0 if none."""

    kind: Literal["hello"] = "hello"
    agent: str
    generation: int


class Applied(Message):
    """An assignment was applied and read back (error None), or could not be. changes: kernel objects changed."""

    kind: Literal["applied"] = "applied"
    generation: int
    changes: int
    error: str | None = None


class WorkerLease(Message):
    """A process that holds a connection to its agent: it is worker `rank` of a trial for as long as the connection lasts.

    run: of the study; None: the present one. process: as the agent sees it, whatever the process itself says.
    """

    study: str
    trial: str
    rank: int
    run: str | None = None
    process: Process


class WorkerId(Message):
    """A worker of a job."""

    job: str
    rank: int


class Workers(Message):
    """The leases that an agent holds now, and the workers of its assignment whose processes it does not find any more.

    gone: ended, or replaced by another process of the same id. refused: workers of whom the agent marks no process or not every
    connection, and why: of a process namespace that is not the agent's, say. Nobody else is affected.
    """

    kind: Literal["workers"] = "workers"
    leases: tuple[WorkerLease, ...] = ()
    gone: tuple[WorkerId, ...] = ()
    refused: tuple[tuple[WorkerId, str], ...] = ()


class Connections(Message):
    """All connections of this host's registered workers. unmatched_bytes: sent by them before they were first seen, by job."""

    kind: Literal["connections"] = "connections"
    connections: tuple[Connection, ...]
    unmatched_bytes: dict[str, int] = Field(default_factory=dict)


class ClassCounter(Message):
    """One queue's counters since its creation, from the kernel; `klass` None is unregistered traffic."""

    klass: int | None
    sent_bytes: int
    sent_packets: int
    dropped_packets: int
    backlog_bytes: int


class PortCounters(Message):
    """Counters of all queues of one interface."""

    interface: str
    classes: tuple[ClassCounter, ...]


class WorkerBytes(Message):
    """Payload bytes that a worker's connections to other hosts have sent since it was assigned, without what was sent again.

    The count begins anew with an agent that is started again, and with a worker that is assigned again.
    """

    job: str
    rank: int
    sent_bytes: int


class Counters(Message):
    """What the agent's interfaces have carried, and its workers sent. at_s: Unix time of the reading."""

    kind: Literal["counters"] = "counters"
    at_s: float
    ports: tuple[PortCounters, ...]
    workers: tuple[WorkerBytes, ...] = ()


AgentReport = Hello | Applied | Workers | Connections | Counters
FromAgent = Annotated[AgentReport, Field(discriminator="kind")]
from_agent: TypeAdapter[AgentReport] = TypeAdapter(FromAgent)
