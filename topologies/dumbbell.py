"""Two switches joined by one link that everything between the two sides shares."""

from beamer.network.fabric import Fabric
from beamer.units import ETHERNET_MTU, parse_rate
from topologies.cabling import Cable, check_count, numbered, wire


def build(
    hosts_per_side: int = 4, rate: str | int = "20mbit", trunk_rate: str | int | None = None, mtu: int = ETHERNET_MTU
) -> Fabric:
    """Return two switches with `hosts_per_side` hosts each at `rate`, joined at `trunk_rate` (default `rate`)."""
    bps = parse_rate(rate, "topology.rate")
    trunk = bps if trunk_rate is None else parse_rate(trunk_rate, "topology.trunk_rate")
    side = check_count(hosts_per_side, "topology.hosts_per_side")
    names = numbered("h", 2 * side)
    cables = [Cable("s1", "s2", trunk)] + [Cable(h, "s1" if i < side else "s2", bps) for i, h in enumerate(names)]
    return wire("dumbbell", names, ["s1", "s2"], cables, mtu=mtu)
