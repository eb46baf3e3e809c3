"""Switches that exist in memory only: where rules lead a packet, and a peer that speaks OpenFlow without forwarding."""

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from os_ken.ofproto import ofproto_parser, ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.errors import PlatformError
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.fabric import Fabric
from controller.event_loop.time_slices import at_once
from controller.openflow.driver import SERVE_AGAIN_S, SwitchDriver
from controller.openflow.reports import RulesWorkedOut, SwitchEvent
from controller.openflow.rulebook import RuleBook
from controller.openflow.rules import JobRules, Output, Rule, RuleKey, SetField, SetQueue, static_rules
from controller.openflow.terms import Terms
from controller.openflow.wire import match_of
from tests.support.openflow_samples import rule_changes
from tests.support.switch_limits import SwitchLimits

Packet = Mapping[str, int | str]


class FixedTerm:
    """The term of a controller without a journal."""

    term = 1

    async def raise_term(self, least: int) -> int:
        """Refuse."""
        raise PlatformError("there is no journal that says who leads", "give one")


def foreign_rule(priority: int, table: int = 0, cookie: int = 7) -> tuple[RuleKey, "FlowEntry"]:
    """Return an entry of another program for `FakeSwitch.entries`."""
    datapath = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
    rule = parser.OFPFlowMod(
        datapath, cookie=cookie, table_id=table, priority=priority, match=parser.OFPMatch(), instructions=[]
    )
    return (table, priority, (("foreign", cookie),)), FlowEntry(rule)


def leading_driver(
    fabric: Fabric,
    on_event: Callable[[SwitchEvent], None],
    port: int = 0,
    terms: Terms = FixedTerm(),  # noqa: B008  # It has no state.
    *,
    tls: ssl.SSLContext | None = None,
    serve_again_s: float = SERVE_AGAIN_S,
    watches: bool = False,
) -> SwitchDriver:
    """Return a driver on loopback that leads as soon as it is started, and tells of switches alone."""
    driver = SwitchDriver(fabric, "127.0.0.1", port, tls=tls, serve_again_s=serve_again_s, watches=watches)
    driver.lead(about_switches(on_event), terms)
    return driver


def about_switches(on_event: Callable[[SwitchEvent], None]) -> Callable[[SwitchEvent], None]:
    """Return what calls `on_event` with all events but those of no switch's."""

    def called(event: SwitchEvent) -> None:
        if not isinstance(event, RulesWorkedOut):
            on_event(event)

    return called


def desired_rules(fabric: Fabric, jobs: Sequence[JobRules], codepoints: Codepoints = LOCAL) -> dict[str, frozenset[Rule]]:
    """Return by switch everything that it should hold, worked out anew."""
    of_jobs = at_once(RuleBook(fabric, codepoints).change(jobs))
    return {
        name: rules | {rule for rule in of_jobs[name].values() if rule is not None}
        for name, rules in static_rules(fabric, codepoints).items()
    }


@dataclass(frozen=True)
class Hop:
    """What one switch did: the rules met, the packet as it left, its queue, its port (None: dropped)."""

    switch: str
    rules: tuple[Rule, ...]
    packet: Packet
    queue: int
    port: int | None


@dataclass(frozen=True)
class PacketTrace:
    """Where a packet went: over `hops` to the host `arrived_at`, or nowhere (None)."""

    hops: tuple[Hop, ...]
    arrived_at: str | None

    @property
    def links(self) -> tuple[tuple[str, int | None], ...]:
        """The switches on the way, each with the port it sent the packet out of."""
        return tuple((hop.switch, hop.port) for hop in self.hops)


def apply_rules(switch: str, rules: Iterable[Rule], packet: Packet) -> Hop:
    """Return what `rules` do to `packet`, whose `in_port` says where it entered; of equal priorities only one may match."""
    table: int | None = 0
    state = {"metadata": 0, **packet}
    met: list[Rule] = []
    queue, port = 0, None
    held = tuple(rules)
    while table is not None:
        hits = [r for r in held if r.table == table and all(state.get(name) == value for name, value in r.match)]
        best = [r for r in hits if r.priority == max(h.priority for h in hits)]
        assert len(best) <= 1, f"{switch}: ambiguous in table {table}: {best}"
        if not best:
            break
        met += best
        for action in best[0].actions:
            match action:
                case SetField(name, value):
                    state[name] = value
                case SetQueue(number):
                    queue = number
                case Output(number) if number != packet["in_port"]:
                    port = number
        if (written := best[0].metadata) is not None:
            state["metadata"] = written
        table = best[0].goto
    return Hop(switch, tuple(met), {k: v for k, v in state.items() if k != "metadata"}, queue, port)


def trace_packet(fabric: Fabric, tables: Mapping[str, Iterable[Rule]], source: str, packet: Packet) -> PacketTrace:
    """Return the path of a packet that host `source` sends into the fabric; a loop is an assertion error."""
    neighbour = {(link.src, link.port): link.dst for link in fabric.links}
    here, before = fabric.edge_of[source], source
    hops: list[Hop] = []
    while here in fabric.switch:
        assert here not in (hop.switch for hop in hops), f"loop over {here}: {hops}"
        entered = fabric.links[fabric.link_index[here, before]].port
        hops.append(apply_rules(here, tables[here], {**packet, "in_port": entered}))
        packet = hops[-1].packet
        port = hops[-1].port
        if port is None:
            return PacketTrace(tuple(hops), None)
        here, before = neighbour[here, port], here
    return PacketTrace(tuple(hops), here)


MAX_PART = 256  # So many entries are in a part of an answer.
TERMS = 1 << 64
NO_TERM = TERMS - 1  # OpenFlow 1.3.5, 7.3.9: what a switch says that has been asked by no leader yet


@dataclass
class FlowEntry:
    """A flow entry of a fake switch with its counters."""

    message: Any
    sent_bytes: int = 0
    sent_packets: int = 0


@dataclass
class FakeSwitch:
    """A peer that connects to a controller, keeps the rules it receives and answers barriers.

    answering: while clear, nothing but the handshake is read. refuse: whether a flow modification is answered by an
    error. mods: every flow modification since it connected, as (command, key). has_meters: or answers by errors what
    concerns them. meters: their messages by id. meter_mods: as (command, id). distort: what becomes of a frame it sends.
    term: the latest leader's, 0 before the first. ports: their descriptions, as on the wire. queues: by port and number; None:
    the switch does not show them. counts: whether it counts its rules, rather than answering by an error. announces:
    whether it promises to tell of changes, rather than answering by an error; `announce` does. counted, read, monitored: how
    often it was asked for the number of its rules, for themselves, and for changes. limits: what it can do. says: what it says
    that it can do, None where it answers that question by an error. silent: or not at all. n_tables: by its features reply,
    those of its limits by default.
    """

    dpid: int
    version: int = ofp.OFP_VERSION
    refuse: Callable[[RuleKey], bool] = field(default=lambda key: False)
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    entries: dict[RuleKey, FlowEntry] = field(default_factory=dict)
    mods: list[tuple[int, RuleKey]] = field(default_factory=list)
    has_meters: bool = True
    meters: dict[int, "MeterMod"] = field(default_factory=dict)
    meter_mods: list[tuple[int, int]] = field(default_factory=list)
    distort: Callable[[bytes], bytes] = field(default=lambda frame: frame)
    term: int = 0
    ports: tuple[bytes, ...] = ()
    queues: tuple[tuple[int, int], ...] | None = None
    counts: bool = True
    announces: bool = False
    counted: int = 0
    read: int = 0
    monitored: int = 0
    limits: SwitchLimits = field(default_factory=SwitchLimits)
    says: SwitchLimits | None = field(default_factory=SwitchLimits)
    silent: bool = False
    n_tables: int | None = None

    def __post_init__(self) -> None:
        self.answering.set()
        self._datapath = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Connect and serve until the controller or `disconnect` ends it."""
        reader, self._writer = await asyncio.open_connection(host, port, ssl=tls)
        self.mods.clear()
        self.meter_mods.clear()
        self._write(ofp.OFPT_HELLO, 0, b"")
        try:
            while True:
                head = await reader.readexactly(ofp.OFP_HEADER_SIZE)
                _, kind, length, xid = ofproto_parser.header(head)
                body = await reader.readexactly(length - len(head))
                if kind not in (ofp.OFPT_HELLO, ofp.OFPT_FEATURES_REQUEST):
                    await self.answering.wait()
                self._take(kind, xid, head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writer.close()

    def disconnect(self) -> None:
        """Break the connection off."""
        assert self._writer
        self._writer.transport.abort()

    def say(self, kind: int, body: bytes, xid: int = 0) -> None:
        """Send a message to the controller."""
        self._write(kind, xid, body)

    def expire(self, key: RuleKey, reason: int = ofp.OFPRR_IDLE_TIMEOUT) -> None:
        """Remove an entry and announce it, if it asked for that."""
        entry = self.entries.pop(key)
        old = entry.message
        if old.flags & ofp.OFPFF_SEND_FLOW_REM:
            fixed = struct.pack("!QHBBIIHH", old.cookie, old.priority, reason, old.table_id, 0, 0, 0, 0)
            counts = struct.pack("!QQ", entry.sent_packets, entry.sent_bytes)
            self._write(ofp.OFPT_FLOW_REMOVED, 0, fixed + counts + _packed(old.match))

    def _take(self, kind: int, xid: int, frame: bytes) -> None:
        match kind:
            case ofp.OFPT_FEATURES_REQUEST:
                n_tables = self.limits.tables if self.n_tables is None else self.n_tables
                self._write(ofp.OFPT_FEATURES_REPLY, xid, struct.pack("!QIBBxxII", self.dpid, 0, n_tables, 0, 0, 0))
            case ofp.OFPT_ECHO_REQUEST:
                self._write(ofp.OFPT_ECHO_REPLY, xid, frame[ofp.OFP_HEADER_SIZE :])
            case ofp.OFPT_BARRIER_REQUEST:
                self._write(ofp.OFPT_BARRIER_REPLY, xid, b"")
            case ofp.OFPT_ROLE_REQUEST:
                self._answer_role_request(xid, frame)
            case ofp.OFPT_MULTIPART_REQUEST:
                (part,) = struct.unpack_from("!H", frame, ofp.OFP_HEADER_SIZE)
                self._answer_part(part, xid, frame)
            case ofp.OFPT_METER_MOD:
                self._modify_meter(_meter_mod(frame), xid, frame)
            case ofp.OFPT_FLOW_MOD:
                self._modify(ofproto_parser.msg(self._datapath, *ofproto_parser.header(frame), frame), frame)

    def _answer_part(self, part: int, xid: int, frame: bytes) -> None:
        match part:
            case ofp.OFPMP_METER_CONFIG:
                self._answer_meters_request(xid, frame)
            case ofp.OFPMP_PORT_DESC:
                self.say(ofp.OFPT_MULTIPART_REPLY, struct.pack("!HHxxxx", part, 0) + b"".join(self.ports), xid)
            case ofp.OFPMP_QUEUE:
                self._answer_queues_request(xid, frame)
            case ofp.OFPMP_AGGREGATE:
                self._answer_count_request(xid, frame)
            case ofp.OFPMP_EXPERIMENTER:
                self._answer_monitor_request(xid, frame)
            case ofp.OFPMP_TABLE_FEATURES:
                self._answer_features_request(xid, frame)
            case _:
                self._answer_stats_request(xid, frame)

    def _modify(self, message: Any, frame: bytes) -> None:
        key = message.table_id, message.priority, match_of(message.match)
        self.mods.append((message.command, key))
        if self.refuse(key) or _meters_of(FlowEntry(message)) - self.meters.keys():
            code = struct.pack("!HH", ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL)
            self._write(ofp.OFPT_ERROR, message.xid, code + frame[:64])
        elif message.command == ofp.OFPFC_ADD:
            others = (other for other in self.entries if other[0] == key[0] and other != key)
            if (error := self.limits.error(message, others)) is not None:
                self._write(ofp.OFPT_ERROR, message.xid, struct.pack("!HH", *error) + frame[:64])
                return
            self.entries[key] = FlowEntry(message)
        elif message.command == ofp.OFPFC_DELETE_STRICT and key in self.entries:
            self.expire(key, ofp.OFPRR_DELETE)

    def _modify_meter(self, mod: "MeterMod", xid: int, frame: bytes) -> None:
        self.meter_mods.append((mod.command, mod.id))
        known = mod.id in self.meters
        if not self.has_meters:
            self._write(ofp.OFPT_ERROR, xid, struct.pack("!HH", ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_TYPE) + frame[:64])
        elif mod.command == ofp.OFPMC_DELETE:
            self.meters.pop(mod.id, None)
            for key in [key for key, entry in self.entries.items() if mod.id in _meters_of(entry)]:
                self.expire(key, ofp.OFPRR_METER_DELETE)
        elif known == (mod.command == ofp.OFPMC_ADD):
            code = ofp.OFPMMFC_METER_EXISTS if known else ofp.OFPMMFC_UNKNOWN_METER
            self._write(ofp.OFPT_ERROR, xid, struct.pack("!HH", ofp.OFPET_METER_MOD_FAILED, code) + frame[:64])
        else:
            self.meters[mod.id] = mod

    def _answer_role_request(self, xid: int, frame: bytes) -> None:
        role, term = struct.unpack_from("!IxxxxQ", frame, ofp.OFP_HEADER_SIZE)
        if role == ofp.OFPCR_ROLE_NOCHANGE:
            self._write(ofp.OFPT_ROLE_REPLY, xid, struct.pack("!IxxxxQ", ofp.OFPCR_ROLE_EQUAL, self.term or NO_TERM))
        elif self.term and (term - self.term) % TERMS >= TERMS // 2:  # they wrap around
            code = struct.pack("!HH", ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
            self._write(ofp.OFPT_ERROR, xid, code + frame[:64])
        else:
            self.term = term
            self._write(ofp.OFPT_ROLE_REPLY, xid, frame[ofp.OFP_HEADER_SIZE :])

    def _answer_meters_request(self, xid: int, frame: bytes) -> None:
        if not self.has_meters:
            code = struct.pack("!HH", ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_MULTIPART)
            self._write(ofp.OFPT_ERROR, xid, code + frame[:64])
            return
        configs = b"".join(
            struct.pack("!HHI", 8 + len(mod.bands), mod.flags, number) + mod.bands for number, mod in self.meters.items()
        )
        self._write(ofp.OFPT_MULTIPART_REPLY, xid, struct.pack("!HHxxxx", ofp.OFPMP_METER_CONFIG, 0) + configs)

    def _answer_features_request(self, xid: int, frame: bytes) -> None:
        if self.silent:
            return
        if self.says is None:
            code = struct.pack("!HH", ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_MULTIPART)
            self._write(ofp.OFPT_ERROR, xid, code + frame[:64])
            return
        body = self.says.features()
        self._write(ofp.OFPT_MULTIPART_REPLY, xid, struct.pack("!HHxxxx", ofp.OFPMP_TABLE_FEATURES, 0) + body)

    def _answer_queues_request(self, xid: int, frame: bytes) -> None:
        if self.queues is None:
            code = struct.pack("!HH", ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_MULTIPART)
            self._write(ofp.OFPT_ERROR, xid, code + frame[:64])
            return
        counts = b"".join(struct.pack("!IIQQQII", port, queue, 0, 0, 0, 0, 0) for port, queue in self.queues)
        self._write(ofp.OFPT_MULTIPART_REPLY, xid, struct.pack("!HHxxxx", ofp.OFPMP_QUEUE, 0) + counts)

    def _asked_for(self, frame: bytes) -> list[FlowEntry]:
        """Return the entries that have the cookie of a request."""
        cookie, mask = struct.unpack_from("!QQ", frame, ofp.OFP_HEADER_SIZE + 8 + 16)
        return [entry for entry in self.entries.values() if not (entry.message.cookie ^ cookie) & mask]

    def _answer_monitor_request(self, xid: int, frame: bytes) -> None:
        if not self.announces:
            code = struct.pack("!HH", ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_EXPERIMENTER)
            self._write(ofp.OFPT_ERROR, xid, code + frame[:64])
            return
        self.monitored += 1
        self.announce(xid=xid)

    def announce(self, *changes: bytes, xid: int = 0) -> None:
        """Tell the controller what has changed; see `rule_change` in `tests.support.openflow_samples`."""
        self._write(ofp.OFPT_MULTIPART_REPLY, xid, rule_changes(*changes))

    def _answer_count_request(self, xid: int, frame: bytes) -> None:
        self.counted += 1
        if not self.counts:
            code = struct.pack("!HH", ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_MULTIPART)
            self._write(ofp.OFPT_ERROR, xid, code + frame[:64])
            return
        number = struct.pack("!HHxxxxQQIxxxx", ofp.OFPMP_AGGREGATE, 0, 0, 0, len(self._asked_for(frame)))
        self._write(ofp.OFPT_MULTIPART_REPLY, xid, number)

    def _answer_stats_request(self, xid: int, frame: bytes) -> None:
        """Answer in two parts or more, as a switch with many rules does."""
        self.read += 1
        if self.limits.tables <= frame[ofp.OFP_HEADER_SIZE + 8] < ofp.OFPTT_ALL:
            self._write(ofp.OFPT_ERROR, xid, struct.pack("!HH", ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_TABLE_ID) + frame[:64])
            return
        packed = [stats_of(entry) for entry in self._asked_for(frame)]
        parts = max(2, -(-len(packed) // MAX_PART))
        for number in range(parts):
            part, flags = packed[number::parts], ofp.OFPMPF_REPLY_MORE if number < parts - 1 else 0
            self._write(ofp.OFPT_MULTIPART_REPLY, xid, struct.pack("!HHxxxx", ofp.OFPMP_FLOW, flags) + b"".join(part))

    def _write(self, kind: int, xid: int, body: bytes) -> None:
        assert self._writer
        frame = struct.pack("!BBHI", self.version, kind, ofp.OFP_HEADER_SIZE + len(body), xid) + body
        self._writer.write(self.distort(frame))


@dataclass(frozen=True)
class MeterMod:
    """A meter modification. bands: as on the wire."""

    command: int
    flags: int
    id: int
    bands: bytes


def _meter_mod(frame: bytes) -> MeterMod:
    command, flags, number = struct.unpack_from("!HHI", frame, ofp.OFP_HEADER_SIZE)
    return MeterMod(command, flags, number, frame[ofp.OFP_HEADER_SIZE + 8 :])


def _meters_of(entry: FlowEntry) -> set[int]:
    return {i.meter_id for i in entry.message.instructions if isinstance(i, parser.OFPInstructionMeter)}


def _packed(part: Any) -> bytes:
    buffer = bytearray()
    part.serialize(buffer, 0)
    return bytes(buffer)


def stats_of(entry: FlowEntry) -> bytes:
    """Return an entry as an answer with flow entries holds it."""
    rule = entry.message
    tail = _packed(rule.match) + b"".join(map(_packed, rule.instructions))
    head = struct.pack(
        "!HBxIIHHHHxxxxQQQ",
        *(48 + len(tail), rule.table_id, 0, 0, rule.priority, rule.idle_timeout, rule.hard_timeout, rule.flags),
        *(rule.cookie, entry.sent_packets, entry.sent_bytes),
    )
    return head + tail
