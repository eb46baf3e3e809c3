"""Leaves with hosts, each leaf connected to every spine; a plane per spine."""

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.units import ETHERNET_MTU, parse_rate
from topologies.cabling import Cable, check_count, numbered, wire


def build(
    leaves: int = 4,
    spines: int = 2,
    hosts_per_leaf: int = 2,
    rate: str | int = "20mbit",
    uplink_rate: str | int | None = None,
    mtu: int = ETHERNET_MTU,
) -> Fabric:
    """Return a leaf-spine fabric, hosts at `rate`, leaf-spine links at `uplink_rate` (default `rate`). Raises `InputError`."""
    bps = parse_rate(rate, "topology.rate")
    uplink = bps if uplink_rate is None else parse_rate(uplink_rate, "topology.uplink_rate")
    leaf_names = numbered("l", check_count(leaves, "topology.leaves"))
    spine_names = numbered("s", check_count(spines, "topology.spines"))
    per_leaf = check_count(hosts_per_leaf, "topology.hosts_per_leaf")
    if leaves * per_leaf < 2:
        raise InputError(
            "topology.hosts_per_leaf", per_leaf, "at least 2 on a single leaf: a network connects two hosts or more"
        )
    names = numbered("h", leaves * per_leaf)
    cables = [Cable(leaf, spine, uplink) for leaf in leaf_names for spine in spine_names]
    cables += [Cable(h, leaf_names[i // per_leaf], bps) for i, h in enumerate(names)]
    return wire("leaf-spine", names, leaf_names + spine_names, cables, planes=spines, mtu=mtu)
