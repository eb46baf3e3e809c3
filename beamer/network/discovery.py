"""A network from what its switches and agents show of it, so that nobody has to write its file.

    switches    those that connect; the name of each is its bridge's
    cables      by the probes that arrive at another switch
    hosts       the agents one of whose addresses answers at a port; IPv6 addresses are those of the interface that answers
    queues      the agent that has a switch's ports among its interfaces makes them

Pure: whoever asks switches and agents (`controller.discovery`) fills a `SeenNetwork`. What is seen and does not fit into a
`Fabric` is left out, and named.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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
from beamer.network.observed_fabric import PortState
from beamer.network.protocol import Interface
from beamer.units import ETHERNET_MTU

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

    further: addresses of the interface beside the first one, IPv4 that answers there and IPv6.
    """

    agent: str
    interface: Interface
    ip: str
    end: End
    further: tuple[str, ...]


def discovered(seen: SeenNetwork, name: str, rate_bps: int | None = None) -> DiscoveredNetwork:
    """Return the network that is seen.

    rate_bps: of every cable; None: as switches say of their ports. Raises `InputError` where there is no host or switch, where
    a rate is not known, and where no controller could lead what is seen.
    """
    return _Discovery(seen).network(name, rate_bps)


class _Discovery:
    def __init__(self, seen: SeenNetwork) -> None:
        self._seen = seen
        self._left_out: list[str] = []
        self._names = self._switch_names()
        self._owners = {dpid: self._owner(dpid) for dpid in seen.switches}

    def network(self, name: str, rate_bps: int | None) -> DiscoveredNetwork:
        if not self._seen.switches:
            raise InputError("switches", 0, "a switch that has this address as its controller, and speaks OpenFlow 1.3")
        trunks, attached = list(self._trunks()), list(self._attached())
        if not attached:
            text = "; ".join(self._left_out) or "no agent has connected"
            raise InputError(
                "hosts", 0, f"an agent on each host, one of whose IPv4 addresses answers at a switch's port: {text}"
            )
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
        switches = tuple(
            Switch(names[dpid], dpid, self._owners[dpid]) for dpid in sorted(names, key=lambda one: _natural(names[one]))
        )
        fabric = Fabric(
            name,
            tuple(hosts[agent] for agent in sorted(hosts, key=_natural)),
            switches,
            tuple(links),
            mtu=self._mtu([one.interface for one in attached]),
        )
        check_deployable(fabric)
        planes = min(fabric.next_hops.choices(fabric.host), MAX_PLANES)
        return DiscoveredNetwork(Fabric(name, fabric.hosts, switches, fabric.links, planes, fabric.mtu), tuple(self._left_out))

    def _host(self, one: _Attached, owners: Mapping[str, int]) -> Host:
        """Return a host without addresses that others have as well. owners: how many hosts have an address."""
        shared = [address for address in one.further if owners[address] > 1]
        for address in shared:
            self._left_out.append(f"{one.agent} has {address}, and so has another host: no host has it in the file")
        further = tuple(address for address in one.further if address not in shared)
        return Host(one.agent, one.ip, one.interface.mac, one.agent, further)

    def _owner(self, dpid: int) -> str | None:
        """Return the agent on the machine of a switch: it has all of its ports."""
        ports = {(port.name, port.mac): number for number, port in self._seen.switches[dpid].ports.items()}
        for agent, found in sorted(self._seen.agents.items()):
            missing = sorted(number for key, number in ports.items() if key not in {(one.name, one.mac) for one in found})
            if ports and not missing:
                return agent
            if len(missing) < len(ports):
                lacking = ", ".join(map(str, missing))
                self._left_out.append(
                    f"agent {agent} has ports of {self._names[dpid]} but for {lacking}: it does not make its queues"
                )
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
                self._left_out.append(f"what {self._said(a)} sends arrives at {self._said(b)}, and nothing the other way")
            elif a < b:
                pair = a[0], b[0]
                if a[0] == b[0]:
                    self._left_out.append(f"a cable leads from {self._said(a)} to {self._said(b)}, which is the same switch")
                elif pair in found:
                    first = self._said(found[pair][0])
                    self._left_out.append(f"a second cable beside {first}: {self._said(a)} to {self._said(b)}; one is used")
                else:
                    found[pair] = a, b
                    yield a, b

    def _attached(self) -> Iterator[_Attached]:
        """Yield the hosts, each at its first port."""
        of_mac = {one.mac: (agent, one) for agent, found in sorted(self._seen.agents.items()) for one in found}
        at: dict[str, list[tuple[End, Interface]]] = defaultdict(list)
        trunks = self._seen.leads_to.keys() | set(self._seen.leads_to.values())
        for end, answers in sorted(self._seen.answers.items()):
            if end in trunks:  # The kernel of a switch's machine answers there for its other addresses.
                continue
            for mac in sorted(set(answers.values())):
                agent, interface = of_mac.get(mac, ("", None))
                if interface is None:
                    known = ", ".join(sorted(ip for ip, other in answers.items() if other == mac))
                    self._left_out.append(
                        f"{known} ({mac}) answers at {self._said(end)}, and no agent has that interface: start one there"
                    )
                else:
                    at[agent].append((end, interface))
        for agent in self._seen.agents:
            if agent not in at and agent not in self._owners.values():
                self._left_out.append(f"agent {agent}: no address of its machine answers at a port of a switch")
        for agent, places in at.items():
            end, interface = places[0]
            ips = [ip for ip in interface.addresses if ip in self._seen.answers[end]]
            if not ips:
                self._left_out.append(
                    f"agent {agent}: {interface.name} answers at {self._said(end)} for others' addresses alone"
                )
                continue
            for other, second in places[1:]:
                self._left_out.append(
                    f"{agent} is at {self._said(other)} as well ({second.name}): one interface of a host is used"
                )
            ipv6 = {canonical(ip): None for ip in interface.addresses if is_ipv6(ip)}
            further = [
                *ips[1:],
                *(ip for ip in ipv6 if is_canonical(ip) and is_of_one_interface(ip) and not is_of_one_link(ip)),
            ]
            yield _Attached(agent, interface, ips[0], end, tuple(further[:MAX_HOST_ADDRESSES]))

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
            self._left_out.append(f"MTUs differ, {several}: the file has the smallest, and larger ones of hosts lose packets")
        return min(of, default=ETHERNET_MTU)

    def _port(self, end: End) -> PortState:
        return self._seen.switches[end[0]].ports[end[1]]

    def _said(self, end: End) -> str:
        return f"{self._names[end[0]]} port {end[1]}"


def _natural(name: str) -> tuple[str, int, str]:
    """Return by what names are sorted: h2 comes before h10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name
