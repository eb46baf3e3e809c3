"""What a network must be so that a controller can lead it: more than a `Fabric` is, which may be an imagined one."""

import re
from collections import defaultdict

import networkx as nx

from beamer.errors import InputError
from beamer.network.addresses import is_ipv6, is_of_one_interface, is_of_one_link
from beamer.network.fabric import PATH_MACS, Fabric

_INTERFACE = re.compile(r"(?!\.{1,2}\Z)[^\s/:]{1,15}")  # What Linux takes; a colon begins the name of an address.
_OF_ONE = "the address of one interface that others reach"
_SHOWN = 5  # So many hosts are named.


def check_deployable(fabric: Fabric) -> None:
    """Raise `InputError` that names the field of a network that no controller could lead."""
    _check_addresses(fabric)
    _check_interfaces(fabric)
    _check_rates(fabric)
    _check_reach(fabric)


def _check_addresses(fabric: Fabric) -> None:
    for i, host in enumerate(fabric.hosts):
        octet = int(host.mac[:2], 16)
        if octet & 1 or not host.mac.strip("0:"):
            raise InputError(f"fabric.hosts[{i}].mac", host.mac, "a unicast MAC address, not zero")
        if host.mac.startswith(PATH_MACS):
            raise InputError(f"fabric.hosts[{i}].mac", host.mac, f"an address outside {PATH_MACS}…, where each names a path")
        if not is_of_one_interface(host.ip) or (is_ipv6(host.ip) and is_of_one_link(host.ip)):
            raise InputError(f"fabric.hosts[{i}].ip", host.ip, _OF_ONE)
        for k, address in enumerate(host.addresses):
            if not is_of_one_interface(address) or is_of_one_link(address):
                raise InputError(f"fabric.hosts[{i}].addresses[{k}]", address, _OF_ONE)


def _check_interfaces(fabric: Fabric) -> None:
    taken: dict[str, set[str]] = defaultdict(set)
    for i, link in enumerate(fabric.links):
        node = fabric.host.get(link.src) or fabric.switch[link.src]
        if node.agent is None:
            continue
        if not _INTERFACE.fullmatch(link.interface):
            expected = f"a name that Linux takes, as agent {node.agent} looks for it: at most 15 characters, no space, / or :"
            raise InputError(f"fabric.links[{i}].interface", link.interface, expected)
        if link.interface in taken[node.agent]:
            raise InputError(
                f"fabric.links[{i}].interface", link.interface, f"a name that no other port of agent {node.agent} has"
            )
        taken[node.agent].add(link.interface)


def _check_rates(fabric: Fabric) -> None:
    for i, link in enumerate(fabric.links):
        back = fabric.links[fabric.link_index[link.dst, link.src]]
        if back.rate_bps != link.rate_bps:
            expected = f"the rate of the other direction, {back.rate_bps}"
            raise InputError(f"fabric.links[{i}].rate_bps", link.rate_bps, expected)


def _check_reach(fabric: Fabric) -> None:
    if not fabric.hosts:
        return
    first = fabric.hosts[0].name
    reached = nx.node_connected_component(nx.Graph((link.src, link.dst) for link in fabric.links), first)
    lost = [host.name for host in fabric.hosts if host.name not in reached]
    if lost:
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise InputError("fabric", f"{', '.join(lost[:_SHOWN])}{more} apart from {first}", "a path between any two hosts")
