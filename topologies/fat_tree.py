"""A fat-tree of switches with k ports each: k pods of k/2 edge and k/2 aggregation switches under (k/2)^2 cores.

A path takes the same turn at every level, so a plane is one aggregation switch of every pod with one of the cores above it: k/2
planes that share no link between switches. (Al-Fares, Loukissas and Vahdat 2008, "A scalable, commodity data center network
architecture", section 2.2; the planes are ours: the publication spreads packets by two-level routing tables.)
"""

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.units import ETHERNET_MTU, parse_rate
from topologies.cabling import Cable, check_count, numbered, wire

MAX_PORTS = 62  # This is the greatest even number k for which each of k^3/4 hosts has an address.


def build(k: int = 4, rate: str | int = "20mbit", uplink_rate: str | int | None = None, mtu: int = ETHERNET_MTU) -> Fabric:
    """Return a fat-tree of k^3/4 hosts at `rate`, links between switches at `uplink_rate` (default `rate`).

    k: ports of every switch, even. Raises `InputError`.
    """
    bps = parse_rate(rate, "topology.rate")
    uplink = bps if uplink_rate is None else parse_rate(uplink_rate, "topology.uplink_rate")
    if check_count(k, "topology.k", 2, MAX_PORTS) % 2:
        raise InputError("topology.k", k, "an even number: half of a switch's ports lead up, half down")
    half = k // 2
    hosts, edges = numbered("h", k * half * half), numbered("e", k * half)
    aggregations, cores = _sortable("a", k * half), _sortable("c", half * half)
    cables = [Cable(aggregations[i], cores[i % half * half + j], uplink) for i in range(k * half) for j in range(half)]
    cables += [Cable(edge, aggregations[i // half * half + j], uplink) for i, edge in enumerate(edges) for j in range(half)]
    cables += [Cable(host, edges[i // half], bps) for i, host in enumerate(hosts)]
    return wire("fat-tree", hosts, edges + aggregations + cores, cables, planes=half, mtu=mtu)


def _sortable(prefix: str, how_many: int) -> list[str]:
    """Return numbered names in alphabetical order: a plane counts next hops in that order, alike in every pod."""
    return [f"{prefix}{i + 1:0{len(str(how_many))}d}" for i in range(how_many)]
