"""The network: hosts, switches, directed links with capacities, and the paths between hosts.

Several shortest paths between two hosts are distinguished by a *plane* (`beamer.network.next_hops`), so a pair of hosts and a
plane name exactly one path. Simulator, policies, controller and the byte accounting all ask `Fabric.path`.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from beamer.errors import InputError, nearest
from beamer.network.addresses import MAX_HOST_ADDRESSES, is_canonical, is_ipv6
from beamer.network.arrays import Floats
from beamer.network.next_hops import NextHops
from beamer.network.ovsdb_address import parse_ovsdb_address
from beamer.units import ETHERNET_MTU, whole
from beamer.validation import input_error

MIN_MTU, MAX_MTU = 576, 9216
MAX_PLANES = 256  # The shadow address of a path has one byte for its plane.
PATH_MACS = "02:be:"
"""How the Ethernet addresses begin that stand for a host on a plane."""

_ADDRESS = "an address such as '10.77.1.1' or, as RFC 5952 writes it, 'fd00::1'; no prefix, no zone"
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")  # Addresses are in lower case, as switches report them.

# At this rate the largest synchronisation takes 8 ms; at faster ones it would take less than times are exact to.
MAX_RATE_BPS = 10**18

# A value may be 20 or 1e9; it is strict, as "20" and true would otherwise pass for numbers.
_Whole = Annotated[int, Strict(), BeforeValidator(whole)]
Number = Annotated[_Whole, Field(ge=1)]
DatapathId = Annotated[_Whole, Field(ge=1, lt=2**64)]  # OpenFlow's range of identifiers
PortNumber = Annotated[_Whole, Field(ge=1, le=0xFFFFFF00)]  # The limit is OpenFlow's OFPP_MAX.
Rate = Annotated[_Whole, Field(ge=1, le=MAX_RATE_BPS)]


@dataclass(frozen=True)
class Host:
    """A machine that runs workers.

    ip, mac: of its data interface; IPv6 as RFC 5952 writes it. agent: the name of the host agent that owns that interface, or
    None where there is none: its connections are then known from their other ends, and its edge switch alone holds it to a
    plan. addresses: further ones of the same interface, of either family.
    """

    name: str
    ip: str
    mac: str
    agent: str | None = None
    addresses: tuple[str, ...] = ()

    @property
    def every_address(self) -> tuple[str, ...]:
        """All its addresses, `ip` first."""
        return self.ip, *self.addresses


@dataclass(frozen=True)
class Switch:
    """An OpenFlow switch.

    dpid: its datapath id. agent: the host agent that owns its ports' queues, or None where its datapath honours `set_queue`.
    ovsdb: where its database is, by which the controller makes these queues; None where an agent or the operator does.
    """

    name: str
    dpid: DatapathId
    agent: str | None = None
    ovsdb: str | None = None


@dataclass(frozen=True)
class Link:
    """One direction of a cable.

    port: OpenFlow number of the port at `src` (1 on a host). interface: the kernel's name of that port.
    rate_bps: capacity in bit/s.
    """

    src: str
    dst: str
    rate_bps: Rate
    port: PortNumber
    interface: str


@dataclass(frozen=True)
class Fabric:
    """A network of hosts and switches; `links` holds both directions of every cable.

    planes: how many paths are distinguished. mtu: of every link, in bytes without the Ethernet header.

    Raises `InputError` for a name, address or port that is taken, a cable between hosts or in one direction only, a link of no
    capacity and a host that is not attached exactly once.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    planes: Number = 1
    mtu: Number = ETHERNET_MTU

    def __post_init__(self) -> None:
        self._check_nodes()
        self._check_links()
        if not 1 <= self.planes <= MAX_PLANES:
            raise InputError("fabric.planes", self.planes, f"1 to {MAX_PLANES}")
        if not MIN_MTU <= self.mtu <= MAX_MTU:
            raise InputError("fabric.mtu", self.mtu, f"{MIN_MTU} to {MAX_MTU} bytes")

    def _check_nodes(self) -> None:
        _distinct("hosts", "name", (h.name for h in self.hosts))
        _distinct("hosts", "ip", (h.ip for h in self.hosts))
        _distinct("hosts", "mac", (h.mac for h in self.hosts))
        _distinct("switches", "name", (s.name for s in self.switches))
        _distinct("switches", "dpid", (s.dpid for s in self.switches))
        for i, host in enumerate(self.hosts):
            if not is_canonical(host.ip):
                raise InputError(f"fabric.hosts[{i}].ip", host.ip, _ADDRESS)
            if not _MAC.fullmatch(host.mac):
                raise InputError(f"fabric.hosts[{i}].mac", host.mac, "a MAC address such as '02:00:00:00:00:0a', in lower case")
        self._check_further_addresses()
        for i, switch in enumerate(self.switches):
            if switch.name in self.host:
                raise InputError(f"fabric.switches[{i}].name", switch.name, "a name that no host has")
            if switch.ovsdb is not None:
                parse_ovsdb_address(switch.ovsdb, f"fabric.switches[{i}].ovsdb")
                if switch.agent is not None:
                    expected = f"none beside agent {switch.agent}: one of the two makes the queues of {switch.name}"
                    raise InputError(f"fabric.switches[{i}].ovsdb", switch.ovsdb, expected)

    def _check_further_addresses(self) -> None:
        taken = {host.ip for host in self.hosts}
        for i, host in enumerate(self.hosts):
            if len(host.addresses) > MAX_HOST_ADDRESSES:
                raise InputError(f"fabric.hosts[{i}].addresses", len(host.addresses), f"at most {MAX_HOST_ADDRESSES}")
            for k, address in enumerate(host.addresses):
                if not is_canonical(address):
                    raise InputError(f"fabric.hosts[{i}].addresses[{k}]", address, _ADDRESS)
                if address in taken:
                    raise InputError(f"fabric.hosts[{i}].addresses[{k}]", address, "one that is not taken")
                taken.add(address)

    def _check_links(self) -> None:
        for i, link in enumerate(self.links):
            for end, node in (("src", link.src), ("dst", link.dst)):
                if node not in self.host and node not in self.switch:
                    raise InputError(f"fabric.links[{i}].{end}", node, nearest(node, [*self.host, *self.switch]))
            if link.src == link.dst or (link.src in self.host and link.dst in self.host):
                raise InputError(f"fabric.links[{i}].dst", link.dst, "another node, one of the two a switch")
            if not 0 < link.rate_bps <= MAX_RATE_BPS:
                raise InputError(f"fabric.links[{i}].rate_bps", link.rate_bps, f"a rate above 0 bit/s, at most {MAX_RATE_BPS}")
            if (link.dst, link.src) not in self.link_index:
                raise InputError(f"fabric.links[{i}]", f"{link.src}-{link.dst}", f"its reverse {link.dst}-{link.src}, too")
        _distinct("links", "dst", ((link.src, link.dst) for link in self.links))
        _distinct("links", "port", ((link.src, link.port) for link in self.links))
        cables = Counter(link.src for link in self.links)
        for i, host in enumerate(self.hosts):
            if cables[host.name] != 1:
                raise InputError(f"fabric.hosts[{i}]", host.name, "a host with exactly one link to a switch")

    @cached_property
    def host(self) -> dict[str, Host]:
        """Hosts by name."""
        return {h.name: h for h in self.hosts}

    @cached_property
    def position_at(self) -> dict[str, int]:
        """Position in `hosts` by any of a host's addresses."""
        return {address: i for i, host in enumerate(self.hosts) for address in host.every_address}

    @cached_property
    def has_ipv6(self) -> bool:
        """Whether a host has an IPv6 address."""
        return any(map(is_ipv6, self.position_at))

    @cached_property
    def asks_ipv6(self) -> bool:
        """Whether a host is known by an IPv6 address first, so that it is asked for by that."""
        return any(is_ipv6(host.ip) for host in self.hosts)

    @cached_property
    def switch(self) -> dict[str, Switch]:
        """Switches by name."""
        return {s.name: s for s in self.switches}

    @cached_property
    def agents(self) -> frozenset[str]:
        """The names of all host agents, those of switches included."""
        found = {host.agent for host in self.hosts} | {switch.agent for switch in self.switches}
        return frozenset(agent for agent in found if agent is not None)

    @cached_property
    def with_databases(self) -> frozenset[str]:
        """The names of the switches whose queues the controller makes by their databases."""
        return frozenset(switch.name for switch in self.switches if switch.ovsdb is not None)

    @cached_property
    def link_index(self) -> dict[tuple[str, str], int]:
        """Position in `links` by (source, destination)."""
        return {(link.src, link.dst): i for i, link in enumerate(self.links)}

    @property
    def cables(self) -> list[tuple[Link, Link]]:
        """Both directions of every cable, the one that comes first in `links` first."""
        backs = [self.link_index[link.dst, link.src] for link in self.links]
        return [(link, self.links[back]) for i, (link, back) in enumerate(zip(self.links, backs, strict=True)) if i < back]

    @cached_property
    def capacity_bps(self) -> Floats:
        """The rate of every link of `links`, bit/s; not to be written to."""
        rates = np.array([link.rate_bps for link in self.links], np.float64)
        rates.flags.writeable = False
        return rates

    @cached_property
    def edge_of(self) -> dict[str, str]:
        """The edge switch of every host."""
        return {link.src: link.dst for link in self.links if link.src in self.host}

    @cached_property
    def uplink(self) -> dict[str, int]:
        """The position in `links` of every host's link to its edge switch."""
        return {link.src: i for i, link in enumerate(self.links) if link.src in self.host}

    @cached_property
    def next_hops(self) -> NextHops:
        """Where every node sends what is for a host."""
        return NextHops(((link.src, link.dst) for link in self.links), self.host)

    @cached_property
    def _paths(self) -> dict[tuple[str, str, int], tuple[int, ...]]:
        return {}  # The dictionary is a cache.

    def next_hop(self, node: str, destination: str, plane: int, hops: NextHops | None = None) -> str:
        """Return the neighbour that `node` forwards to for host `destination` on `plane`. Raises `InputError` if none.

        hops: None: those without dead cables.
        """
        found = (hops or self.next_hops).of(node, self._known(destination), plane)
        if found is None:
            raise InputError("fabric.path", f"{node} to {destination}", "connected nodes")
        return found

    def plane_of(self, seq: int) -> int:
        """Return the plane that the `seq`-th registered job, from 1, is given: planes take turns."""
        return (seq - 1) % self.planes

    def path(self, src: str, dst: str, plane: int = 0, hops: NextHops | None = None) -> tuple[int, ...]:
        """Return the path from host `src` to host `dst` as positions in `links`; empty on one host.

        hops: None: those without dead cables. Raises `InputError` where no path leads there.
        """
        if hops is not None:
            return self._path(src, dst, plane % self.planes, hops)
        key = (src, dst, plane % self.planes)
        if key not in self._paths:
            self._paths[key] = self._path(*key, self.next_hops)
        return self._paths[key]

    def _path(self, src: str, dst: str, plane: int, hops: NextHops) -> tuple[int, ...]:
        links: list[int] = []
        node = self._known(src)
        while node != self._known(dst):
            onward = self.next_hop(node, dst, plane, hops)
            links.append(self.link_index[node, onward])
            node = onward
        return tuple(links)

    def _known(self, host: str) -> str:
        if host not in self.host:
            raise InputError("host", host, nearest(host, self.host))
        return host

    def to_dict(self) -> dict[str, Any]:
        """Return the fabric as plain data for a JSON or YAML file."""
        data = asdict(self)
        for host in data["hosts"]:
            if not host["addresses"]:  # A program that knows of no further addresses takes the file of a network without any.
                del host["addresses"]
        for switch in data["switches"]:
            if switch["ovsdb"] is None:  # The same of one that knows of no databases.
                del switch["ovsdb"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Fabric":
        """Build a fabric from what `to_dict` returned. Raises `InputError` naming the part that does not fit."""
        try:
            return _PLAIN_FORM.validate_python(data)
        except ValidationError as error:
            raise input_error(error, cls, "fabric") from error


_PLAIN_FORM: TypeAdapter[Fabric] = TypeAdapter(Fabric)


def _distinct(part: str, key: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for i, value in enumerate(values):
        if value in seen:
            raise InputError(f"fabric.{part}[{i}].{key}", value, "one that is not taken")
        seen.add(value)
