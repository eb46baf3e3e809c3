"""The network: hosts, switches, directed links with capacities, and the paths between hosts.

Several shortest paths between two hosts are told apart by a *plane*: plane `p` takes the `p`-th equal-cost next hop at every
node (modulo their number), so a pair of hosts and a plane name exactly one path. Simulator, policies, controller and the
byte accounting all ask `Fabric.path`.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import networkx as nx

from beamer.errors import InputError, nearest
from beamer.units import ETHERNET_MTU

SMALLEST_MTU, LARGEST_MTU = 576, 9216


@dataclass(frozen=True)
class Host:
    """A machine that runs workers.

    ip, mac: of its data interface. agent: the name of the host agent that owns that interface.
    """

    name: str
    ip: str
    mac: str
    agent: str


@dataclass(frozen=True)
class Switch:
    """An OpenFlow switch.

    dpid: its datapath id. agent: the host agent that owns its ports' queues, or None where its datapath honours `set_queue`.
    """

    name: str
    dpid: int
    agent: str | None = None


@dataclass(frozen=True)
class Link:
    """One direction of a cable.

    port: OpenFlow number of the port at `src` (1 on a host). interface: the kernel's name of that port.
    rate_bps: capacity in bit/s.
    """

    src: str
    dst: str
    rate_bps: int
    port: int
    interface: str


@dataclass(frozen=True)
class Fabric:
    """A network of hosts and switches; `links` holds both directions of every cable.

    planes: how many paths are told apart. mtu: of every link, in bytes without the Ethernet header.

    Raises `InputError` for a link of no capacity, an unknown end or a host that is not attached exactly once.
    """

    name: str
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    planes: int = 1
    mtu: int = ETHERNET_MTU

    def __post_init__(self) -> None:
        nodes = {h.name for h in self.hosts} | {s.name for s in self.switches}
        for link in self.links:
            for end in (link.src, link.dst):
                if end not in nodes:
                    raise InputError(f"fabric.links[{link.src}-{link.dst}]", end, nearest(end, nodes))
            if link.rate_bps <= 0:
                raise InputError(f"fabric.links[{link.src}-{link.dst}].rate_bps", link.rate_bps, "a rate above 0 bit/s")
        for host in self.hosts:
            if sum(link.src == host.name for link in self.links) != 1:
                raise InputError("fabric.hosts", host.name, "a host with exactly one link to a switch")
        if self.planes < 1:
            raise InputError("fabric.planes", self.planes, "at least 1")
        if not SMALLEST_MTU <= self.mtu <= LARGEST_MTU:
            raise InputError("fabric.mtu", self.mtu, f"{SMALLEST_MTU} to {LARGEST_MTU} bytes")

    @cached_property
    def host(self) -> dict[str, Host]:
        """Hosts by name."""
        return {h.name: h for h in self.hosts}

    @cached_property
    def switch(self) -> dict[str, Switch]:
        """Switches by name."""
        return {s.name: s for s in self.switches}

    @cached_property
    def agents(self) -> frozenset[str]:
        """The names of all host agents, those of switches included."""
        return frozenset({h.agent for h in self.hosts} | {s.agent for s in self.switches if s.agent is not None})

    @cached_property
    def link_index(self) -> dict[tuple[str, str], int]:
        """Position in `links` by (source, destination)."""
        return {(link.src, link.dst): i for i, link in enumerate(self.links)}

    @cached_property
    def edge_of(self) -> dict[str, str]:
        """The edge switch of every host."""
        return {link.src: link.dst for link in self.links if link.src in self.host}

    @cached_property
    def _graph(self) -> "nx.DiGraph[str]":
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_edges_from((link.src, link.dst) for link in self.links)
        return graph

    @cached_property
    def _next_hops(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Per destination host: every node's neighbours on a shortest path to it, sorted."""
        table: dict[str, dict[str, tuple[str, ...]]] = {}
        backwards = self._graph.reverse(copy=False)
        for host in self.hosts:
            distance = nx.single_source_shortest_path_length(backwards, host.name)
            table[host.name] = {
                node: tuple(
                    sorted(
                        n
                        for n in self._graph.successors(node)
                        if distance.get(n, node) == d - 1 and self._transits(n, host.name)
                    )
                )
                for node, d in distance.items()
                if d > 0
            }
        return table

    @cached_property
    def _paths(self) -> dict[tuple[str, str, int], tuple[int, ...]]:
        return {}  # filled as paths are asked for

    def _transits(self, node: str, destination: str) -> bool:
        return node == destination or node not in self.host

    def next_hop(self, node: str, destination: str, plane: int) -> str:
        """Return the neighbour that `node` forwards to for host `destination` on `plane`. Raises `InputError` if none."""
        choices = self._next_hops[self._known(destination)].get(node, ())
        if not choices:
            raise InputError("fabric.path", f"{node} to {destination}", "connected nodes")
        return choices[plane % len(choices)]

    def path(self, src: str, dst: str, plane: int = 0) -> tuple[int, ...]:
        """Return the path from host `src` to host `dst` as positions in `links`; empty on one host."""
        key = (src, dst, plane % self.planes)
        if key not in self._paths:
            hops: list[int] = []
            node = self._known(src)
            while node != self._known(dst):
                onward = self.next_hop(node, dst, plane % self.planes)
                hops.append(self.link_index[node, onward])
                node = onward
            self._paths[key] = tuple(hops)
        return self._paths[key]

    def _known(self, host: str) -> str:
        if host not in self.host:
            raise InputError("host", host, nearest(host, self.host))
        return host

    def to_dict(self) -> dict[str, Any]:
        """Return the fabric as plain data for a JSON or YAML file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Fabric":
        """Build a fabric from what `to_dict` returned. Raises `InputError` naming the part that does not fit."""
        known = {"name", "hosts", "switches", "links", "planes", "mtu"}
        for key in data:
            if key not in known:
                raise InputError(f"fabric.{key}", data[key], nearest(key, known))
        try:
            return cls(
                name=data["name"],
                hosts=tuple(Host(**h) for h in data["hosts"]),
                switches=tuple(Switch(**s) for s in data["switches"]),
                links=tuple(Link(**link) for link in data["links"]),
                planes=data.get("planes", 1),
                mtu=data.get("mtu", ETHERNET_MTU),
            )
        except (KeyError, TypeError) as error:
            raise InputError("fabric", str(error), "a mapping with name, hosts, switches and links") from error
