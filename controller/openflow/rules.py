"""What a plan means on every switch: a pure function of the fabric and the jobs, written as OpenFlow 1.3 rules.

A packet passes up to four tables:

    ADMISSION  PROBE       a frame by which the controller sees where a cable leads         -> controller
               TRUNK       from another switch: its class stands; `set_queue` by codepoint -> ROUTE
               CONNECTION  a registered connection, matched exactly: its pair as metadata  -> CLASS
               ACCESS      anything else                                                   -> CLEAR
    CLASS      MARKED      a pair's packet that its host has marked with the pair's class  -> ROUTE
               PAIR        any other of the pair's; both set codepoint, queue and path     -> ROUTE
                           and pass the meter of the job at this sender, if it has one
               ACKNOWLEDGE a pair's pure acknowledgement, by its host's word: class 0      -> ROUTE
               EXPIRED     a pair whose rule has timed out                                 -> CLEAR
    CLEAR      STRIP       carries a Beamer codepoint that no rule set: set to 0           -> ROUTE
               KEEP        any other                                                       -> ROUTE
    ROUTE      SHADOW      a pair's packet, by the address that names its plane and destination
               ADDRESS     any other packet, by destination: IPv4 by IP address, IPv6 by the Ethernet address of its host
               ARP         by the address asked for, so that a broadcast follows one path and floods nothing
               NEIGHBOUR   the same for what IPv6 has instead, a neighbour solicitation to a group (RFC 4861)

Rules that look at a codepoint exist once for each family of addresses, those of IPv6 only where a host has such an address. An
IPv6 packet to a host needs one rule whatever addresses it has, those of its link included, by which hosts also ask and answer
each other (RFC 4861, section 7.2.2). What asks for an address that no file names, and all else to groups, is dropped.

Per pair and class there is one MARKED and one PAIR rule, and both count: the host's mark is a hint that keeps the counts of
classes apart while a class changes, never an entitlement. The rules of the class before stay for a moment, for packets on
their way.

Acknowledgements do not wait in their job's class: that is seldom served on a busy link, and what they acknowledge would stand
still on links that are free. A switch cannot tell them from data, so only a host with an agent is believed, which clears their
codepoint from anything else. What a job gains that has it nevertheless is class 0 for packets of its own connections.

A *host pair*, or pair, is a job's traffic from one host to another. Its packets carry a *shadow* address as Ethernet
destination, from which every switch on the way knows the plane; the last one puts the host's own back. ECN bits are never
written. Nothing but the controller's own probes is sent to it, and all but MARKED and PAIR rules stay when it dies.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from itertools import chain, product
from types import MappingProxyType

from beamer.network.addresses import is_ipv6
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.connection import FourTuple
from beamer.network.fabric import PATH_MACS, Fabric
from beamer.network.next_hops import NextHops

COOKIE_PREFIX = 0xBEA3
COOKIE_MASK = 0xFFFF << 48
NO_CLASS = 0xFF
IDLE_S = 60  # Traffic refreshes the time-out.
HARD_S = 300  # The controller restarts the time-out.

IPV4 = 0x0800
IPV6 = 0x86DD
ARP = 0x0806
ARP_REPLY = 2
LLDP = 0x88CC
TCP = 6
ICMPV6 = 58
NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT = 135, 136
CONTROLLER = 0xFFFFFFFD  # the port that stands for it
PROBE_MAC = f"{PATH_MACS}00:01:00:00"
"""The controller's own Ethernet address, which stands for no host on a plane."""


class Table(IntEnum):
    """The pipeline's tables, in order."""

    ADMISSION = 0
    CLASS = 1
    CLEAR = 2
    ROUTE = 3


class Band(Enum):
    """Rules of one purpose: their table, their number in cookies, their lowest priority."""

    ACCESS = (Table.ADMISSION, 1, 0)
    CONNECTION = (Table.ADMISSION, 2, 1000)
    TRUNK = (Table.ADMISSION, 3, 2000)
    TRUNK_CLASS = (Table.ADMISSION, 4, 3000)
    EXPIRED = (Table.CLASS, 5, 0)
    PAIR = (Table.CLASS, 6, 1000)  # Priorities go upwards from here: a pair's newest rule is its highest.
    MARKED = (Table.CLASS, 12, 50_000)
    ACKNOWLEDGE = (Table.CLASS, 13, 60_000)
    KEEP = (Table.CLEAR, 7, 0)
    STRIP = (Table.CLEAR, 8, 1000)
    ARP = (Table.ROUTE, 9, 1000)
    NEIGHBOUR = (Table.ROUTE, 15, 1500)
    ADDRESS = (Table.ROUTE, 10, 2000)
    SHADOW = (Table.ROUTE, 11, 3000)
    PROBE = (Table.ADMISSION, 14, 4000)

    def __init__(self, table: Table, number: int, priority: int) -> None:
        self.table = table
        self.number = number
        self.priority = priority


@dataclass(frozen=True)
class SetField:
    """Rewrite a header field, named as os-ken names it."""

    field: str
    value: int | str


@dataclass(frozen=True)
class SetQueue:
    """Choose the queue of whatever port the packet leaves by."""

    queue: int


@dataclass(frozen=True)
class Output:
    """Send the packet out of a port."""

    port: int


RuleAction = SetField | SetQueue | Output
Match = tuple[tuple[str, int | str], ...]
RuleKey = tuple[int, int, Match]
Slot = tuple[int, Match]
"""A table and a match. Of the rules of a slot, which differ in priority, one at most is wanted."""


@dataclass(frozen=True)
class Rule:
    """One flow entry, as wanted or as read from a switch.

    match: fields by os-ken's names, sorted. metadata: what it writes. goto: the table it continues in. meter: passed first.
    idle_s, hard_s: time-outs in seconds, 0 for none. announced: whether its removal is reported with its final counts.
    """

    cookie: int
    table: int
    priority: int
    match: Match
    actions: tuple[RuleAction, ...] = ()
    metadata: int | None = None
    goto: int | None = None
    idle_s: int = 0
    hard_s: int = 0
    announced: bool = False
    meter: int | None = None

    @property
    def key(self) -> RuleKey:
        """What identifies it on a switch."""
        return self.table, self.priority, self.match

    @property
    def slot(self) -> Slot:
        """Where it supersedes, or is superseded by, others."""
        return self.table, self.match

    @property
    def klass(self) -> int:
        """The class that its cookie names, `NO_CLASS` if none."""
        return self.cookie >> 32 & 0xFF

    @property
    def counts(self) -> bool:
        """Whether it counts a pair's traffic: a switch may hold rules of such a band that name no pair."""
        return self.band in _COUNTING and any(name == "metadata" and isinstance(value, int) for name, value in self.match)

    @property
    def pair(self) -> "HostPair | None":
        """The pair that it counts, if it does."""
        return HostPair.of(int(dict(self.match)["metadata"])) if self.counts else None

    @property
    def family(self) -> int:
        """`IPV4` or `IPV6`, or whatever else of Ethernet it matches; 0 for anything."""
        return int(dict(self.match).get("eth_type", 0))

    @property
    def climbs(self) -> bool:
        """Whether it supersedes an equal match by its priority."""
        return self.band == Band.PAIR.number

    @property
    def band(self) -> int:
        """The number of its band, as its cookie has it."""
        return self.cookie >> 40 & 0xFF


@dataclass(frozen=True)
class JobRules:
    """A job's data in the switches' rules.

    seq: its registration number. plane: selects its paths. connections: both directions of each. caps: bit/s that hosts without
    an agent may send for it, by host; edges meter these.
    """

    key: str
    seq: int
    plane: int
    klass: int
    connections: frozenset[FourTuple]
    caps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class HostPair:
    """A job's traffic from one host to another; hosts are positions in `Fabric.hosts`."""

    job_seq: int
    src: int
    dst: int

    @property
    def metadata(self) -> int:
        """The pair as a packet carries it from ADMISSION to CLASS."""
        return self.job_seq << 32 | self.src << 16 | self.dst

    def slot(self, family: int = IPV4) -> Slot:
        """Return the slot of the rules for its packets of `IPV4` or `IPV6` without their class's mark."""
        return int(Table.CLASS), match(eth_type=family, metadata=self.metadata)

    @classmethod
    def of(cls, metadata: int) -> "HostPair":
        """Return the pair that `metadata` names."""
        return cls(metadata >> 32, metadata >> 16 & 0xFFFF, metadata & 0xFFFF)


def match(**fields: int | str) -> Match:
    """Return a match in canonical form."""
    return tuple(sorted(fields.items()))


def shadow(plane: int, host: int) -> str:
    """Return the locally administered Ethernet address that stands for a host on a plane."""
    return f"{PATH_MACS}{plane:02x}:00:{host >> 8:02x}:{host & 0xFF:02x}"


def static_rules(fabric: Fabric, codepoints: Codepoints = LOCAL) -> dict[str, frozenset[Rule]]:
    """Return by switch the rules that no plan changes: forwarding, and clearing of codepoints."""
    hops, found = fabric.next_hops, {}
    for name in fabric.switch:
        forwarding = (routes(fabric, name, position, hops) for position in range(len(fabric.hosts)))
        found[name] = frozenset((*entry_rules(fabric, name, codepoints), *chain.from_iterable(forwarding)))
    return found


def family_of(connection: FourTuple) -> int:
    """Return `IPV4` or `IPV6`, as of a connection's addresses."""
    return IPV6 if is_ipv6(connection[0]) else IPV4


def connection_rule(fabric: Fabric, connection: FourTuple, pair: HostPair) -> tuple[str, Rule]:
    """Return the switch at whose edge a connection's sender is, and the rule that gives its packets their pair."""
    host = fabric.hosts[pair.src].name
    edge = fabric.edge_of[host]
    src_ip, src_port, dst_ip, dst_port = connection
    family = family_of(connection)
    prefix = "ipv6" if family == IPV6 else "ipv4"
    fields = match(
        in_port=_port(fabric, edge, host),
        eth_type=family,
        ip_proto=TCP,
        tcp_src=src_port,
        tcp_dst=dst_port,
        **{f"{prefix}_src": src_ip, f"{prefix}_dst": dst_ip},
    )
    return edge, _rule(Band.CONNECTION, fields, goto=Table.CLASS, job_seq=pair.job_seq, metadata=pair.metadata)


def pair_rules(
    fabric: Fabric, pair: HostPair, job: JobRules, meter: int | None, codepoints: Codepoints = LOCAL, family: int = IPV4
) -> Iterable[Rule]:
    """Yield the rules that give a pair's packets of a family their class and path, at the switch at its sender's edge."""
    klass = job.klass
    bands = [(Band.PAIR, pair.slot(family)[1], klass), (Band.MARKED, _marked(pair, codepoints.of(klass), family), klass)]
    if fabric.hosts[pair.src].agent is not None:
        bands.append((Band.ACKNOWLEDGE, _marked(pair, codepoints.acknowledgement, family), 0))
    path = SetField("eth_dst", shadow(job.plane % fabric.planes, pair.dst))
    for band, fields, given in bands:
        actions = (SetField("ip_dscp", codepoints.of(given)), SetQueue(given + 1), path)
        rule = _rule(band, fields, actions, Table.ROUTE, klass=given, job_seq=pair.job_seq)
        yield replace(rule, idle_s=IDLE_S, hard_s=HARD_S, announced=True, meter=meter)


def _rule(
    band: Band,
    fields: Match,
    actions: tuple[RuleAction, ...] = (),
    goto: Table | None = None,
    *,
    klass: int = NO_CLASS,
    job_seq: int = 0,
    metadata: int | None = None,
) -> Rule:
    cookie = COOKIE_PREFIX << 48 | band.number << 40 | klass << 32 | job_seq
    return Rule(cookie, int(band.table), band.priority, fields, actions, metadata, None if goto is None else int(goto))


def _marked(pair: HostPair, dscp: int, family: int) -> Match:
    return match(eth_type=family, metadata=pair.metadata, ip_dscp=dscp)


def entry_rules(fabric: Fabric, switch: str, codepoints: Codepoints) -> Iterable[Rule]:
    """Yield how packets enter: trusted from another switch, cleared from a host."""
    families = (IPV4, IPV6) if fabric.has_ipv6 else (IPV4,)
    for link in fabric.links:
        if link.src == switch and link.dst in fabric.switch:
            yield _rule(Band.PROBE, match(in_port=link.port, eth_type=IPV4, eth_dst=PROBE_MAC), (Output(CONTROLLER),))
            yield _rule(Band.TRUNK, match(in_port=link.port), goto=Table.ROUTE)
            for family, (klass, dscp) in product(families, enumerate(codepoints.classes)):
                marked = match(in_port=link.port, eth_type=family, ip_dscp=dscp)
                yield _rule(Band.TRUNK_CLASS, marked, (SetQueue(klass + 1),), Table.ROUTE, klass=klass)
    yield from probe_rules(ipv6=fabric.asks_ipv6)
    yield ACCESS_RULE
    yield _rule(Band.EXPIRED, match(), goto=Table.CLEAR)
    yield _rule(Band.KEEP, match(), goto=Table.ROUTE)
    for family, dscp in product(families, codepoints.all):
        yield _rule(Band.STRIP, match(eth_type=family, ip_dscp=dscp), (SetField("ip_dscp", 0),), Table.ROUTE)


def probe_rules(*, ipv6: bool = False) -> Iterator[Rule]:
    """Yield how LLDP and hosts' answers reach the controller. ipv6: also the answers of hosts that are asked over IPv6.

    By any port: what comes by one that the file does not name says where the cable really leads.
    """
    yield _rule(Band.PROBE, match(eth_type=LLDP, eth_src=PROBE_MAC), (Output(CONTROLLER),))
    yield _rule(Band.PROBE, match(eth_type=ARP, eth_dst=PROBE_MAC, arp_op=ARP_REPLY), (Output(CONTROLLER),))
    if ipv6:
        answer = match(eth_type=IPV6, eth_dst=PROBE_MAC, ip_proto=ICMPV6, icmpv6_type=NEIGHBOUR_ADVERTISEMENT)
        yield _rule(Band.PROBE, answer, (Output(CONTROLLER),))


def routes(fabric: Fabric, switch: str, position: int, hops: NextHops) -> Iterable[Rule]:
    """Yield the output port towards a host, as of `Fabric.hosts`: on every plane, and on the one of unregistered traffic.

    Where no path leads there, what the file says stays: what is known of a network may be wrong.
    """
    host = fabric.hosts[position]
    onward = [hops.of(switch, host.name, plane) or fabric.next_hop(switch, host.name, plane) for plane in range(fabric.planes)]
    outputs = [Output(_port(fabric, switch, neighbour)) for neighbour in onward]
    arrived = (SetField("eth_dst", host.mac),) if fabric.edge_of[host.name] == switch else ()
    for plane, output in enumerate(outputs):
        yield _rule(Band.SHADOW, match(eth_dst=shadow(plane, position)), (*arrived, output))
    output = outputs[position % fabric.planes]
    for address in host.every_address:
        if is_ipv6(address):
            asked = match(eth_type=IPV6, ip_proto=ICMPV6, icmpv6_type=NEIGHBOUR_SOLICITATION, ipv6_nd_target=address)
            yield _rule(Band.NEIGHBOUR, asked, (output,))
        else:
            yield _rule(Band.ADDRESS, match(eth_type=IPV4, ipv4_dst=address), (output,))
            yield _rule(Band.ARP, match(eth_type=ARP, arp_tpa=address), (output,))
    if any(map(is_ipv6, host.every_address)):
        yield _rule(Band.ADDRESS, match(eth_type=IPV6, eth_dst=host.mac), (output,))


def _port(fabric: Fabric, switch: str, neighbour: str) -> int:
    return fabric.links[fabric.link_index[switch, neighbour]].port


_COUNTING = frozenset(band.number for band in (Band.PAIR, Band.MARKED, Band.ACKNOWLEDGE))

ACCESS_RULE = _rule(Band.ACCESS, match(), goto=Table.CLEAR)
