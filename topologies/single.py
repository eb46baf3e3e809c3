"""One switch with all hosts: the big switch of the coflow literature."""

from beamer.network.fabric import Fabric
from beamer.units import ETHERNET_MTU, parse_rate
from topologies.cabling import Cable, check_count, numbered, wire


def build(hosts: int = 8, rate: str | int = "20mbit", mtu: int = ETHERNET_MTU) -> Fabric:
    """Return `hosts` hosts on one switch, each at `rate`. Raises `InputError`."""
    bps = parse_rate(rate, "topology.rate")
    names = numbered("h", check_count(hosts, "topology.hosts", 2))
    return wire("single", names, ["s1"], [Cable(h, "s1", bps) for h in names], mtu=mtu)
