"""A Mininet topology as the rows of a network: nodes, ports, rates and addresses as Mininet has or would assign them.

Mininet numbers the hosts of a `Topo` that are given no address in the order of their names, from 10.0.0.1. Without
`autoSetMacs` (`mn --mac`) it draws Ethernet addresses at random at each start, so that they have to be given. A switch without
a `dpid` has the first number in its name. Interfaces are called NODE-ethPORT; `bw` is in Mbit/s.
[Mininet 2.3, `mininet/net.py` and `mininet/node.py`: `addHost`, `defaultDpid`]
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mininet.net import Mininet
from mininet.topo import Topo
from mininet.util import ipAdd, macColonHex, netParse

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_sources.rows import ENDS, HOST, SWITCH, FabricSettings, SourceRow, SourceTables, fabric_of
from beamer.units import parse_rate

IP_BASE = "10.0.0.0/8"
"""From which Mininet numbers hosts unless it is given another."""

_MBIT = 10**6
_NEEDED = {
    "mac": "mac= of addHost; or say that the network is started with autoSetMacs (--auto-macs, as mn --mac)",
    "dpid": "dpid= of addSwitch, as the name has no number",
    "rate": "bw= of addLink, or --rate",
}


def from_mininet(
    net: Any,
    *,
    auto_macs: bool = False,
    ip_base: str = IP_BASE,
    name: str | None = None,
    rate: str | int | None = None,
    planes: int | None = None,
    mtu: int | None = None,
) -> Fabric:
    """Return the network of a `mininet.topo.Topo`, or of a `mininet.net.Mininet` that has been built.

    auto_macs, ip_base: what a `Mininet` of this `Topo` is given as autoSetMacs and ipBase. name: by default that of its class.
    rate: of every link without `bw`, such as `100mbit`, or in bit/s. Raises `InputError` that names the node or link.
    """
    settings = FabricSettings(name, None if rate is None else parse_rate(rate), planes, mtu)
    return fabric_of(mininet_tables(net, auto_macs, ip_base), settings)


def mininet_tables(net: Any, auto_macs: bool = False, ip_base: str = IP_BASE) -> SourceTables:
    """Return the network of a topology, or of a network that has been built. Raises `InputError` for anything else."""
    settings = FabricSettings(type(net).__name__)
    if isinstance(net, Topo):
        return SourceTables([*_topo_nodes(net, auto_macs, ip_base)], [*_topo_links(net)], settings)
    if isinstance(net, Mininet):
        return SourceTables([*_net_nodes(net)], [*_net_links(net)], settings)
    raise InputError("topology", type(net).__name__, "a mininet.topo.Topo, or a mininet.net.Mininet")


def _topo_nodes(topo: Any, auto_macs: bool, ip_base: str) -> Iterator[SourceRow]:
    base, length = netParse(ip_base)
    first = (0xFFFFFFFF >> length) & base or 1
    numbers = {host: first + i for i, host in enumerate(topo.hosts())}
    macs = _link_macs(topo)
    for node in topo.nodes(sort=False):
        options = topo.nodeInfo(node)
        if node not in numbers:
            values = {"kind": SWITCH, "dpid": _dpid(node, options.get("dpid"))}
        else:
            ip = options["ip"] if "ip" in options else ipAdd(numbers[node], prefixLen=length, ipBaseNum=base)
            mac = options.get("mac") or (macColonHex(numbers[node]) if auto_macs else macs.get(node))
            values = {"kind": HOST, "ip": ip and str(ip).partition("/")[0], "mac": mac}
        yield _node(node, {**values, "agent": options.get("agent")})


def _link_macs(topo: Any) -> dict[str, str]:
    """Return the Ethernet addresses that links give the interfaces at their ends, by the node."""
    links = topo.links(withInfo=True)
    found = [(info[f"node{i}"], info.get(f"addr{i}")) for _, _, info in links for i in (1, 2)]
    return {node: address for node, address in found if address}


def _topo_links(topo: Any) -> Iterator[SourceRow]:
    for _, _, info in topo.links(withInfo=True):
        ends = []
        for i in (1, 2):
            node, port, own = info[f"node{i}"], info[f"port{i}"], info.get(f"params{i}") or {}
            interface = info.get(f"intfName{i}") or f"{node}-eth{port}"
            ends.append((node, interface, port if topo.isSwitch(node) else None, info.get("bw", own.get("bw"))))
        yield _link(*ends)


def _net_nodes(net: Any) -> Iterator[SourceRow]:
    for host in net.hosts:
        values = {"kind": HOST, **_addresses(host), "agent": host.params.get("agent")}
        yield _node(host.name, values)
    for switch in net.switches:
        yield _node(switch.name, {"kind": SWITCH, "dpid": _dpid(switch.name, switch.dpid), "agent": switch.params.get("agent")})


def _addresses(host: Any) -> dict[str, Any]:
    return {"ip": host.IP(), "mac": host.MAC()} if host.intfList() else {}  # Mininet fails for a host without an interface.


def _net_links(net: Any) -> Iterator[SourceRow]:
    switches = {switch.name for switch in net.switches}
    for link in net.links:
        yield _link(
            *(
                (one.node.name, one.name, one.node.ports[one] if one.node.name in switches else None, one.params.get("bw"))
                for one in (link.intf1, link.intf2)
            )
        )


def _node(name: str, values: Mapping[str, Any]) -> SourceRow:
    return SourceRow(f"node {name}", {"name": name, **values}, needed=_NEEDED)


def _link(a: tuple[Any, ...], b: tuple[Any, ...]) -> SourceRow:
    """Return the row of a link; an end: node, interface, port, bw."""
    where = f"link {a[0]}-{b[0]}"
    values: dict[str, Any] = {}
    for end, (node, interface, port, _) in zip(ENDS, (a, b), strict=True):
        values |= {f"{end}_node": node, f"{end}_interface": interface, f"{end}_port": port}
    speed, other = a[3], b[3]
    if speed != other:
        raise InputError(f"{where}: bw", other, f"the bandwidth at the other end, {speed}")
    if speed is not None:
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < float("inf"):
            raise InputError(f"{where}: bw", speed, "a number of Mbit/s above 0")
        values["rate"] = round(speed * _MBIT)
    return SourceRow(where, values, {"rate": f"{where}: bw"}, _NEEDED)


def _dpid(name: str, given: Any) -> str | None:
    """Return a datapath id with the prefix that tells it from a decimal number; None: it is not given, nor in the name."""
    if given:
        digits = str(given).replace(":", "")
        if not re.fullmatch("[0-9a-fA-F]{1,16}", digits):
            raise InputError(f"node {name}: dpid", given, "up to 16 hexadecimal digits, as Mininet takes it")
        return f"0x{digits}"
    number = re.search(r"\d+", name)
    return None if number is None else hex(int(number[0]))
