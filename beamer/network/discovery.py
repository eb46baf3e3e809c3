"""A network from what its switches and agents show of it, so that nobody has to write its file.

    switches    those that connect; the name of each is its bridge's
    cables      by the probes that arrive at another switch
    hosts       the agents one of whose addresses answers at a port: IPv4, or of interfaces that have none, IPv6; further IPv6
                addresses are those of the interface that answers. Not those whose packets are tagged, or pass by several ports
    queues      the agent that has a switch's ports among its interfaces makes them

Pure: whoever asks switches and agents (`controller.discovery`) fills a `SeenNetwork`. What is seen and does not fit into a
`Fabric` is left out, and named.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

import networkx as nx

from beamer.errors import InputError
from beamer.network.addresses import (
    MAX_HOST_ADDRESSES,
    canonical,
    is_canonical,
    is_ipv6,
    is_of_one_interface,
    is_of_one_link,
)
from beamer.network.fabric import MAX_PLANES, Fabric, Host, Link, Switch
from beamer.network.fabric_checks import check_deployable
from beamer.network.interface_fitness import InterfaceFault, dependence, description, made_of, unfitness
from beamer.network.observed_fabric import PortState
from beamer.network.protocol import Interface
from beamer.units import ETHERNET_MTU

_SHOWN = 3  # So many hosts are named in a sentence.
End = tuple[int, int]
"""A switch, by its datapath id, and the OpenFlow number of one of its ports."""


@dataclass(frozen=True)
class SeenSwitch:
    """A switch that has connected. bridge: its own name. ports: by number, without the one that stands for itself."""

    bridge: str
    ports: Mapping[int, PortState]


@dataclass(frozen=True)
class SeenNetwork:
    """What is seen of a network.

    switches: by datapath id. leads_to: where what a port sends arrives. answers: the Ethernet address by which an IP address
    answers at a port. agents: the interfaces of each agent's machine.
    """

    switches: Mapping[int, SeenSwitch] = field(default_factory=dict)
    leads_to: Mapping[End, End] = field(default_factory=dict)
    answers: Mapping[End, Mapping[str, str]] = field(default_factory=dict)
    agents: Mapping[str, tuple[Interface, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class DiscoveredNetwork:
    """A network that a controller may lead. left_out: a sentence for each thing that was seen and is not in it."""

    fabric: Fabric
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Attached:
    """A host at a port of a switch: the agent of its machine, and the interface that answers there.

    further: addresses of the interface beside `ip`, IPv4 that answers there and IPv6.
    """

    agent: str
    interface: Interface
    ip: str
    end: End
    further: tuple[str, ...]


def discovered(seen: SeenNetwork, name: str, rate_bps: int | None = None) -> DiscoveredNetwork:
    """Return the network that is seen.

    rate_bps: of every cable; None: as switches say of their ports. Raises `InputError` where there is no host or switch, where
    a rate is not known, and where no controller could lead what is seen; it says what was left out as well.
    """
    discovery = _Discovery(seen)
    try:
        return discovery.network(name, rate_bps)
    except InputError as error:
        if not discovery.left_out:
            raise
        expected = f"{error.expected}; left out: {'; '.join(discovery.left_out)}"
        raise InputError(error.field, error.value, expected) from error


class _Discovery:
    def __init__(self, seen: SeenNetwork) -> None:
        self.left_out: list[str] = []
        self._seen = seen
        self._names = self._switch_names()
        self._owners: dict[int, str | None] = {dpid: self._owner(dpid) for dpid in seen.switches}

    def network(self, name: str, rate_bps: int | None) -> DiscoveredNetwork:
        if not self._seen.switches:
            raise InputError("switches", 0, "a switch that has this address as its controller, and speaks OpenFlow 1.3")
        trunks = list(self._trunks())
        attached = self._connected(self._first_of_each(self._by_one_cable(self._attached())), trunks)
        if not attached:
            expected = "an agent on each host, one of whose addresses answers at a switch's port"
            raise InputError("hosts", 0, expected if self._seen.agents else f"{expected}; no agent has connected")
        owners = Counter(address for one in attached for address in (one.ip, *one.further))
        hosts = {one.agent: self._host(one, owners) for one in attached}
        taken = hosts.keys() & set(self._names.values())
        names = {dpid: f"{bridge}-{dpid:x}" if bridge in taken else bridge for dpid, bridge in self._names.items()}
        links: list[Link] = []
        for one in attached:
            rate = self._rate(rate_bps, one.end)
            links.append(Link(one.agent, names[one.end[0]], rate, 1, one.interface.name))
            links.append(Link(names[one.end[0]], one.agent, rate, one.end[1], self._port(one.end).name))
        for a, b in trunks:
            rate = self._rate(rate_bps, a, b)
            links += [Link(names[src[0]], names[dst[0]], rate, src[1], self._port(src).name) for src, dst in ((a, b), (b, a))]
        switches = [Switch(names[dpid], dpid, self._owners[dpid]) for dpid in names]
        fabric = Fabric(
            name,
            tuple(hosts[agent] for agent in sorted(hosts, key=_natural)),
            tuple(sorted(switches, key=lambda one: _natural(one.name))),
            tuple(links),
            mtu=self._mtu([one.interface for one in attached]),
        )
        check_deployable(fabric)
        planes = min(fabric.next_hops.choices(fabric.host), MAX_PLANES)
        return DiscoveredNetwork(replace(fabric, planes=planes), tuple(self.left_out))

    def _host(self, one: _Attached, owners: Mapping[str, int]) -> Host:
        """Return a host without addresses that others have as well. owners: how many hosts have an address."""
        shared = [address for address in one.further if owners[address] > 1]
        for address in shared:
            self.left_out.append(f"{one.agent} has {address}, and so has another host: no host has it in the file")
        further = tuple(address for address in one.further if address not in shared)
        return Host(one.agent, one.ip, one.interface.mac, one.agent, further)

    def _owner(self, dpid: int) -> str | None:
        """Return the agent on the machine of a switch: it has all of its ports that anything was seen at."""
        used = self._seen.leads_to.keys() | set(self._seen.leads_to.values()) | self._seen.answers.keys()
        ports = {
            (port.name, port.mac): number for number, port in self._seen.switches[dpid].ports.items() if (dpid, number) in used
        }
        for agent, found in sorted(self._seen.agents.items()):
            missing = sorted(number for key, number in ports.items() if key not in {(one.name, one.mac) for one in found})
            if ports and not missing:
                return agent
            if len(missing) < len(ports):
                lacking = ", ".join(map(str, missing))
                text = f"agent {agent} has ports of {self._names[dpid]} but for {lacking}, and so does not make its queues"
                self.left_out.append(f"{text}: run an agent where all are")
        return None

    def _switch_names(self) -> dict[int, str]:
        """Return a name for each switch: its bridge's, with its datapath id where several have that."""
        bridges = Counter(switch.bridge for switch in self._seen.switches.values())
        return {
            dpid: switch.bridge if switch.bridge and bridges[switch.bridge] == 1 else f"{switch.bridge or 'switch'}-{dpid:x}"
            for dpid, switch in self._seen.switches.items()
        }

    def _trunks(self) -> Iterator[tuple[End, End]]:
        """Yield the cables between switches."""
        leads, found = self._seen.leads_to, dict[tuple[int, int], tuple[End, End]]()
        for a, b in sorted(leads.items()):
            if leads.get(b) != a:
                self.left_out.append(f"what {self._said(a)} sends arrives at {self._said(b)}, and nothing the other way")
            elif a < b:
                pair = a[0], b[0]
                if a[0] == b[0]:
                    self.left_out.append(f"a cable leads from {self._said(a)} to {self._said(b)}, which is the same switch")
                elif pair in found:
                    first = self._said(found[pair][0])
                    self.left_out.append(f"a second cable beside {first}: {self._said(a)} to {self._said(b)}; one is used")
                else:
                    found[pair] = a, b
                    yield a, b

    def _attached(self) -> Iterator[_Attached]:
        """Yield the hosts at ports, each with an interface that has an address which answers there."""
        of_mac: dict[str, list[tuple[str, Interface]]] = defaultdict(list)
        for agent, found in sorted(self._seen.agents.items()):
            for one in found:
                of_mac[one.mac].append((agent, one))
        trunks = self._seen.leads_to.keys() | set(self._seen.leads_to.values())
        met = set(self._owners.values())
        for end, answers in sorted(self._seen.answers.items()):
            if end in trunks:  # The kernel of a switch's machine answers there for its other addresses.
                continue
            for mac in sorted(set(answers.values())):
                ips = {ip for ip, other in answers.items() if other == mac}
                known = of_mac.get(mac, [])
                met |= {agent for agent, _ in known}
                fitting = self._with_address(known, ips)
                agents = sorted({agent for agent, _ in fitting})
                if len(agents) > 1:
                    self.left_out.append(f"agents {', '.join(agents)} have one Ethernet address, {mac}: one of them is used")
                if fitting:
                    agent, interface = fitting[0]
                    own = [ip for ip in probed_addresses(interface) if ip in ips]
                    further = [*own[1:], *(ip for ip in _lasting_ipv6(interface) if ip not in own)]
                    yield _Attached(agent, interface, own[0], end, tuple(further[:MAX_HOST_ADDRESSES]))
                elif known:
                    agent, interface = known[0]
                    text = f"agent {agent}: {interface.name} answers at {self._said(end)} for others' addresses alone"
                    self.left_out.append(text)
                else:
                    listed = ", ".join(sorted(ips))
                    text = f"{listed} ({mac}) answers at {self._said(end)}, and no agent has that interface: start one there"
                    self.left_out.append(text)
        for agent in self._seen.agents:
            if agent not in met:
                self.left_out.append(f"agent {agent}: no address of its machine answers at a port of a switch")

    def _with_address(self, known: Iterable[tuple[str, Interface]], ips: Set[str]) -> list[tuple[str, Interface]]:
        """Return the interfaces that have one of these addresses, of agents with interfaces whose Ethernet address answers.

        A bond, a VLAN or a bridge mostly has the Ethernet address of what is below it; one of them has the address. Those by
        which no host can be in a network come last, and are found where only what is below them answers, too: an ARP request
        without a tag is answered by what a VLAN interface is on.
        """
        direct = [(agent, one) for agent, one in known if ips & set(probed_addresses(one))]
        if direct:
            return sorted(direct, key=lambda found: self._unfitness(*found) is not None)
        above = (
            (agent, one, below)
            for agent, below in known
            for one in self._seen.agents[agent]
            if ips & set(probed_addresses(one))
        )
        return [
            (agent, one)
            for agent, one, below in above
            if below in made_of(one, self._seen.agents[agent]) and self._unfitness(agent, one) is not None
        ]

    def _unfitness(self, agent: str, interface: Interface) -> InterfaceFault | None:
        return unfitness(interface, self._seen.agents[agent])

    def _by_one_cable(self, attached: Iterable[_Attached]) -> Iterator[_Attached]:
        """Yield the hosts all of whose packets pass by the port where they answer; name each other one with its ports."""
        of: dict[tuple[str, str], list[_Attached]] = defaultdict(list)
        for one in attached:
            of[one.agent, one.interface.name].append(one)
        for (agent, _), places in of.items():
            interface = places[0].interface
            ports = " and ".join(self._said(one.end) for one in places)
            why, depends = self._unfitness(agent, interface), dependence(interface, self._seen.agents[agent])
            if why is None and depends is not None and len(places) > 1:
                found = f"{description(interface)}: a host has one port"
                why = InterfaceFault(found, "see that the same member carries packets all the time")
            if why is not None:
                self.left_out.append(f"{agent}, which answers at {ports}, is not used: {why}")
                continue
            if depends is not None:
                self.left_out.append(f"{agent} at {ports}: {depends}")
            yield from places

    def _first_of_each(self, attached: Iterable[_Attached]) -> list[_Attached]:
        """Return a place for each host, an address and a port for one host each."""
        places: dict[str, _Attached] = {}
        at: dict[End, str] = {}
        ips: dict[str, str] = {}
        for one in attached:
            if one.agent in places:
                text = (
                    f"{one.agent} is at {self._said(one.end)} as well ({one.interface.name}): one interface of a host is used"
                )
            elif one.end in at:
                text = f"{one.agent} is at {self._said(one.end)} behind which {at[one.end]} is: one host has a port to itself"
            elif one.ip in ips:
                text = f"{one.agent} has the address {one.ip} of {ips[one.ip]}: give it another one"
            else:
                places[one.agent], at[one.end], ips[one.ip] = one, one.agent, one.agent
                continue
            self.left_out.append(text)
        return list(places.values())

    def _connected(self, attached: list[_Attached], trunks: list[tuple[End, End]]) -> list[_Attached]:
        """Return the hosts of the largest part that cables connect."""
        graph: nx.Graph[int] = nx.Graph((a[0], b[0]) for a, b in trunks)
        graph.add_nodes_from(self._seen.switches)
        parts = [[one for one in attached if one.end[0] in part] for part in nx.connected_components(graph)]
        largest: list[_Attached] = max(parts, key=len, default=[])
        for one in attached:
            if one not in largest:
                others = ", ".join(sorted(other.agent for other in largest)[:_SHOWN])
                text = f"{one.agent} at {self._said(one.end)}: no cable is seen that leads to {others}"
                self.left_out.append(text)
        return largest

    def _rate(self, rate_bps: int | None, *ends: End) -> int:
        """Return the rate of a cable, of its slower end."""
        if rate_bps is not None:
            return rate_bps
        for end in ends:
            if not self._port(end).bps:
                raise InputError("--rate", None, f"the rate of cables, as {self._said(end)} does not say its own")
        return min(self._port(end).bps for end in ends)

    def _mtu(self, used: list[Interface]) -> int:
        """Return the smallest MTU of all ports that agents see."""
        ports = {(port.name, port.mac) for switch in self._seen.switches.values() for port in switch.ports.values()}
        owned = [one for agent in self._owners.values() if agent for one in self._seen.agents[agent]]
        of = {one.mtu: one.name for one in [*used, *(one for one in owned if (one.name, one.mac) in ports)]}
        if len(of) > 1:
            several = ", ".join(f"{mtu} ({name})" for mtu, name in sorted(of.items()))
            self.left_out.append(f"MTUs differ, {several}: the file has the smallest, and larger ones of hosts lose packets")
        return min(of, default=ETHERNET_MTU)

    def _port(self, end: End) -> PortState:
        return self._seen.switches[end[0]].ports[end[1]]

    def _said(self, end: End) -> str:
        return f"{self._names[end[0]]} port {end[1]}"


def probed_addresses(interface: Interface) -> tuple[str, ...]:
    """Return the addresses by which an interface is looked for: those of IPv4, and of IPv6 where it has none of these."""
    return tuple(ip for ip in interface.addresses if not is_ipv6(ip)) or tuple(_lasting_ipv6(interface))


def _lasting_ipv6(interface: Interface) -> Iterator[str]:
    """Yield the IPv6 addresses of an interface that hosts on other links reach."""
    for ip in {canonical(ip): None for ip in interface.addresses if is_ipv6(ip)}:
        if is_canonical(ip) and is_of_one_interface(ip) and not is_of_one_link(ip):
            yield ip


def _natural(name: str) -> tuple[str, int, str]:
    """Return by what names are sorted: h2 comes before h10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name
