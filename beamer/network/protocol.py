"""The messages between controller and host agents: one JSON object per WebSocket text frame, distinguished by `kind`.

An agent connects to `ws://CONTROLLER/v1/agents/NAME` and is sent a `Welcome`. It sends `Hello` and `Workers`, and receives a
whole `Assignment` (never a difference) at once and at every change; it reconciles, reads back and answers `Applied` with the
assignment's generation. In between it sends `Workers` and `Connections` (the full set of each, whenever that changes) and
`Counters` (periodically).

Both say their version in the handshake's headers, and how much they take in `Welcome` and `Hello`. A peer of version 1 does
neither, and is sent nothing that came later: see `beamer.protocol_version`.
"""

from dataclasses import astuple
from functools import lru_cache
from ipaddress import ip_address
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, TypeAdapter

from beamer.errors import InputError
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.connection import Connection
from beamer.network.plan import QUEUES, UNREGISTERED_SHARE
from beamer.protocol_version import Since
from beamer.studies.model import MAX_KEY_CHARACTERS, MAX_RANK, Process
from beamer.studies.registration import check_process
from beamer.units import ETHERNET_HEADER, ETHERNET_MTU

MAX_GENERATION = 2**53  # A decision every 2 ms reaches this number in half a million years, and it is exact in JSON.
MAX_COUNT = 2**63 - 1  # bytes and packets: the kernel's counters, as far as they fit a signed 64-bit integer
MAX_TEXT_CHARACTERS = 16 * 1024  # characters of an error or a reason; a traceback fits
MAX_UNIX_S = 2.0**33  # the year 2242
MAX_INTERFACES = 512  # of a machine: a server with a hundred containers has two for each
MAX_ADDRESSES = 64  # of an interface
MAX_MEMBERS = 64  # of a bond or a bridge
_ADDRESS_CHARACTERS = 64  # An IPv6 address has at most 45, and the name of an interface may follow.

Generation = Annotated[int, Strict(), Field(ge=0, le=MAX_GENERATION)]
WorkerRank = Annotated[int, Strict(), Field(ge=0, le=MAX_RANK)]
Counted = Annotated[int, Strict(), Field(ge=0, le=MAX_COUNT)]
Name = Annotated[str, Field(max_length=MAX_KEY_CHARACTERS)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
Limit = Annotated[int, Strict(), Field(ge=1, le=MAX_GENERATION)]
PARTS = frozenset(("leases", "gone", "refused", "connections", "unmatched_bytes", "ports", "workers", "classes"))
"""What reports have several of."""


def check_left_out(left_out: dict[str, int]) -> dict[str, int]:
    """Return what a report leaves out, by parts that this version knows: a newer one may have more of them."""
    return {name: count for name, count in left_out.items() if name in PARTS}


LeftOut = Annotated[dict[str, Counted], AfterValidator(check_left_out), Since(2)]
"""How many entries a report leaves out, by part, as its receiver takes no more: see `beamer.network.message_limits`."""


def check_connection(connection: Connection) -> Connection:
    """Return a connection if it can be one between two addresses. Raises `InputError`."""
    if not (0 <= connection.rank <= MAX_RANK and len(connection.job) <= MAX_KEY_CHARACTERS):
        raise InputError("connection", astuple(connection), f"a trial's key and a rank from 0 to {MAX_RANK}")
    for name in ("local_port", "remote_port"):
        port = getattr(connection, name)
        if not 1 <= port <= 65535:
            raise InputError(name, port, f"a TCP port as {name}, 1 to 65535")
    for name in ("local_ip", "remote_ip"):
        address = getattr(connection, name)
        if not _is_address(address):
            raise InputError(name, address, f"an IP address as {name}")
    return connection


@lru_cache(maxsize=4096)  # The same hosts' addresses come again with every report.
def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_leased(process: Process) -> Process:
    """Return a process if its numbers are such as a machine has. Raises `InputError`."""
    if process.pid > 1:  # A process number of 0 or 1 is reported back as not attached, see `controller.liveness.leases`.
        check_process(process)
    return process


def check_address(text: str) -> str:
    """Return an IP address as it is. Raises `InputError`."""
    if not _is_address(text):
        raise InputError("address", text, "an IP address")
    return text


_MAC = "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"
_INTERFACE_CHARACTERS = 15  # of a name that Linux takes
_KIND_CHARACTERS = 32  # The kernel's names of kinds, modes and protocols are shorter.
Mac = Annotated[str, Field(pattern=_MAC)]
InterfaceName = Annotated[str, Field(max_length=_INTERFACE_CHARACTERS)]
IpAddress = Annotated[str, Field(max_length=_ADDRESS_CHARACTERS), AfterValidator(check_address)]
ReportedConnection = Annotated[Connection, AfterValidator(check_connection)]
ReportedProcess = Annotated[Process, AfterValidator(check_leased)]


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

    addresses: the data addresses of all hosts, the first of each before further ones; a socket counts only when both its ends
    are among them. connections: those of the workers' whose rules the switches hold; no other is marked. codepoints: of
    classes. own_addresses: those of each host of the agent that has several: what one sends to another stays on the host.
    """

    kind: Literal["assignment"] = "assignment"
    generation: int
    queues: int = QUEUES
    unregistered_share: float = UNREGISTERED_SHARE
    ports: tuple[Port, ...] = ()
    workers: tuple[LocalWorker, ...] = ()
    addresses: tuple[str, ...] = ()
    connections: tuple[Connection, ...] = ()
    codepoints: Annotated[Codepoints, Since(2)] = LOCAL
    own_addresses: Annotated[tuple[tuple[str, ...], ...], Since(2)] = ()


class ReportLimits(Message):
    """The most that a controller takes of an agent's reports.

    message_bytes: of a message. connections, leases, ports: in a report; as many jobs, workers or counters as leases. classes:
    of a port.
    """

    message_bytes: Limit
    connections: Limit
    leases: Limit
    ports: Limit
    classes: Limit


class Welcome(Message):
    """The controller's first message, to agents that speak version 2 or later. limits: of what the agent may report."""

    since: ClassVar[int] = 2
    kind: Literal["welcome"] = "welcome"
    limits: ReportLimits


class AssignmentLimits(Message):
    """The most that an agent takes of an assignment.

    message_bytes: of the message. ports, workers, connections, addresses: in it. classes: that it makes on all ports together.
    """

    message_bytes: Limit
    ports: Limit
    workers: Limit
    connections: Limit
    addresses: Limit
    classes: Limit


class InterfaceMember(Message):
    """An interface that belongs to a bond, a team or a bridge.

    mac: as it is now, in a bond mostly the bond's. permanent_mac: of the card, None where the kernel does not say. carries:
    whether a bond uses it now; always so in a bridge.
    """

    name: InterfaceName
    mac: Mac
    permanent_mac: Mac | None = None
    carries: bool = True


class Interface(Message):
    """An interface of an agent's machine, without loopback.

    mac: in lower case. addresses: IPv4 and IPv6, without those that hold on its link alone, or for a while. mtu: in bytes,
    without the Ethernet header. kind: as `ip -details link` names it (`bond`, `vlan`, `bridge`), empty for a card.

    mode: of a bond. members: of a bond, a team or a bridge. parent: what a VLAN interface, a macvlan or an ipvlan is on, None
    where that is in another network namespace. vlan_id, vlan_protocol: of the tag, the latter `802.1Q` or `802.1ad`.
    """

    name: InterfaceName
    mac: Mac
    addresses: Annotated[tuple[IpAddress, ...], Field(max_length=MAX_ADDRESSES)] = ()
    mtu: Annotated[int, Strict(), Field(ge=0, le=2**32 - 1)]
    kind: Annotated[str, Field(max_length=_KIND_CHARACTERS), Since(2)] = ""
    mode: Annotated[str, Field(max_length=_KIND_CHARACTERS), Since(2)] = ""
    members: Annotated[tuple[InterfaceMember, ...], Field(max_length=MAX_MEMBERS), Since(2)] = ()
    parent: Annotated[InterfaceName | None, Since(2)] = None
    vlan_id: Annotated[Annotated[int, Strict(), Field(ge=0, le=4095)] | None, Since(2)] = None
    vlan_protocol: Annotated[str, Field(max_length=_KIND_CHARACTERS), Since(2)] = ""


class Hello(Message):
    """The agent's first message.

    generation: of the assignment in force on the agent, 0 if none. limits: of what it may be assigned; None: not said.
    interfaces: of its machine, those with addresses first, as many as are taken.
    """

    kind: Literal["hello"] = "hello"
    agent: Name
    generation: Generation
    limits: Annotated[AssignmentLimits | None, Since(2)] = None
    interfaces: Annotated[tuple[Interface, ...], Field(max_length=MAX_INTERFACES), Since(2)] = ()


class Applied(Message):
    """An assignment was applied and read back (error None), or could not be. changes: kernel objects changed."""

    kind: Literal["applied"] = "applied"
    generation: Generation
    changes: Counted
    error: Text | None = None


class WorkerLease(Message):
    """A process that holds a connection to its agent: it is worker `rank` of a trial for as long as the connection lasts.

    run: of the study; None: the present one. process: as the agent sees it, whatever the process itself says.
    """

    study: Name
    trial: Name
    rank: WorkerRank
    run: Name | None = None
    process: ReportedProcess


class WorkerId(Message):
    """A worker of a job."""

    job: Name
    rank: WorkerRank


class Workers(Message):
    """The leases that an agent holds now, and the workers of its assignment whose processes it does not find any more.

    gone: ended, or replaced by another process of the same id. refused: workers of whom the agent marks no process or not every
    connection, and why: of a process namespace that is not the agent's, say. Nobody else is affected.
    left_out: as of `LeftOut`.
    """

    kind: Literal["workers"] = "workers"
    leases: Annotated[tuple[WorkerLease, ...], Field(fail_fast=True)] = ()
    gone: Annotated[tuple[WorkerId, ...], Field(fail_fast=True)] = ()
    refused: Annotated[tuple[tuple[WorkerId, Text], ...], Field(fail_fast=True)] = ()
    left_out: LeftOut = Field(default_factory=dict)


class Connections(Message):
    """All connections of this host's registered workers.

    unmatched_bytes: sent before they were first marked, by job. left_out: as of `LeftOut`.
    """

    kind: Literal["connections"] = "connections"
    connections: Annotated[tuple[ReportedConnection, ...], Field(fail_fast=True)]
    unmatched_bytes: dict[Name, Counted] = Field(default_factory=dict)
    left_out: LeftOut = Field(default_factory=dict)


class ClassCounter(Message):
    """One queue's counters since its creation, from the kernel; `klass` None is unregistered traffic."""

    klass: Annotated[int, Strict(), Field(ge=0, lt=QUEUES)] | None
    sent_bytes: Counted
    sent_packets: Counted
    dropped_packets: Counted
    backlog_bytes: Counted


class PortCounters(Message):
    """Counters of all queues of one interface."""

    interface: Name
    classes: Annotated[tuple[ClassCounter, ...], Field(fail_fast=True)]


class WorkerBytes(Message):
    """Payload bytes that a worker's connections to other hosts have sent since it was assigned, without what was sent again.

    The count begins anew with an agent that is started again, and with a worker that is assigned again.
    """

    job: Name
    rank: WorkerRank
    sent_bytes: Counted


class Counters(Message):
    """What the agent's interfaces have carried, and its workers sent.

    at_s: Unix time of the reading. left_out: as of `LeftOut`.
    """

    kind: Literal["counters"] = "counters"
    at_s: Annotated[float, Field(ge=0, le=MAX_UNIX_S, allow_inf_nan=False)]
    ports: Annotated[tuple[PortCounters, ...], Field(fail_fast=True)]
    workers: Annotated[tuple[WorkerBytes, ...], Field(fail_fast=True)] = ()
    left_out: LeftOut = Field(default_factory=dict)


AgentReport = Hello | Applied | Workers | Connections | Counters
FromAgent = Annotated[AgentReport, Field(discriminator="kind")]
from_agent: TypeAdapter[AgentReport] = TypeAdapter(FromAgent)
