"""Which host of a controller's network each node of a Ray cluster is. Does not import Ray."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from beamer.errors import InputError, nearest
from beamer.gpu.model import Node
from beamer.log_limit import LogLimit

MAX_SHOWN = 5  # hosts in a message
LOG_AGAIN_S = 600.0

log = logging.getLogger("beamer.gpu")


@dataclass(frozen=True)
class RayNode:
    """A node that is up. node_id: Ray's. address: its IP address. names: its own and its machine's. gpus, cpus: declared."""

    node_id: str
    address: str
    names: tuple[str, ...]
    gpus: int
    cpus: float

    def __str__(self) -> str:
        return f"{' or '.join(name for name in self.names if name != self.address)} at {self.address}"


class NodeHosts:
    """Name Ray's nodes as a controller's network names its hosts.

    addresses: of the hosts, by name. given: hosts by the address or a name of a Ray node, which go before. Raises `InputError`
    for a given one that is no host.
    """

    def __init__(self, addresses: Mapping[str, str], given: Mapping[str, str]) -> None:
        for key, host in given.items():
            if host not in addresses:
                raise InputError(f"hosts[{key!r}]", host, f"a host of the controller's network: {nearest(host, addresses)}")
        self._addresses = dict(addresses)
        self._known = {address: host for host, address in addresses.items()}
        self._given = dict(given)

    def host(self, node: RayNode) -> str:
        """Return a node's host. Raises `InputError`.

        It is the one that was given, or else the one of the same address, or else of the same name, a domain left out.
        """
        keys = (node.address, *node.names)
        for key in keys:
            if key in self._given:
                return self._given[key]
        if node.address in self._known:
            return self._known[node.address]
        for name in node.names:
            for known in (name, name.partition(".")[0]):
                if known in self._addresses:
                    return known
        hosts = [f"{host} at {address}" for host, address in self._addresses.items()]
        more = f" and {len(hosts) - MAX_SHOWN} more" if len(hosts) > MAX_SHOWN else ""
        expected = "a Ray node with the address or the name of a host of the controller's network, or its host in `hosts`"
        raise InputError("Ray node", str(node), f"{expected}: {', '.join(hosts[:MAX_SHOWN])}{more}")

    def by_host(self, nodes: Iterable[RayNode]) -> dict[str, RayNode]:
        """Return the nodes by their hosts, in order of their names. Raises `InputError` as `host`, and for two on one host."""
        found: dict[str, RayNode] = {}
        for node in nodes:
            host = self.host(node)
            if host in found:
                expected = f"a host of its own, as {host} is that of {found[host]}: name its host in `hosts`"
                raise InputError("Ray node", str(node), expected)
            found[host] = node
        return dict(sorted(found.items()))


class SharedNodes:
    """The nodes that a search shares with others, declared once, by their hosts' names.

    nodes: those that are up at the search's begin. Raises `InputError` as `NodeHosts.by_host`, and where there is none.
    """

    def __init__(self, hosts: NodeHosts, nodes: Iterable[RayNode]) -> None:
        self._hosts = hosts
        self.declared = tuple(Node(host, node.gpus, node.cpus) for host, node in hosts.by_host(nodes).items())
        if not self.declared:
            raise InputError("Ray nodes", "none", "at least one that is up and declares GPUs, before the search begins")
        self._limit = LogLimit(1, LOG_AGAIN_S)

    def up(self, nodes: Iterable[RayNode]) -> dict[Node, RayNode]:
        """Return which declared nodes are up; one that was not declared, or is another by now, is logged and left out."""
        found: dict[Node, RayNode] = {}
        for node in nodes:
            try:
                declared = Node(self._hosts.host(node), node.gpus, node.cpus)
            except InputError as error:
                self._leave_out(node, str(error))
                continue
            if declared in self.declared and declared not in found:
                found[declared] = node
            else:
                self._leave_out(node, "it was not there, or was another, when the search began")
        return {node: found[node] for node in self.declared if node in found}

    def _leave_out(self, node: RayNode, reason: str) -> None:
        if self._limit.take((node.node_id, reason)):
            log.warning("%s is not used: %s", node, reason)
