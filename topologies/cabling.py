"""Turns a list of cables into a `Fabric`: port numbers, interface names and addresses by one rule for every shape."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from beamer.errors import InputError
from beamer.network.fabric import MAX_MTU, MIN_MTU, Fabric, Host, Link, Switch
from beamer.units import ETHERNET_MTU

DATA_NETWORK = IPv4Network("10.77.0.0/16")
SWITCH_AGENT = "switches"


@dataclass(frozen=True)
class Cable:
    """A full-duplex cable between two nodes; rate_bps in each direction."""

    a: str
    b: str
    rate_bps: int


def wire(
    name: str, hosts: Sequence[str], switches: Sequence[str], cables: Sequence[Cable], planes: int = 1, mtu: int = ETHERNET_MTU
) -> Fabric:
    """Return the fabric of these cables.

    Ports are numbered from 1 in the order of `cables`; the interface of port P at node N is `N-ethP`, except that hosts count
    from `N-eth0`. Hosts get consecutive addresses; all switches share the host agent `switches`.
    """
    if len(hosts) >= DATA_NETWORK.num_addresses - 2:
        raise InputError("topology.hosts", len(hosts), f"fewer than {DATA_NETWORK.num_addresses - 2} hosts")
    used: Counter[str] = Counter()
    links: list[Link] = []
    host_names = set(hosts)

    def interface(node: str) -> tuple[int, str]:
        used[node] += 1
        return used[node], f"{node}-eth{used[node] - 1 if node in host_names else used[node]}"

    for cable in cables:
        ports: Mapping[str, tuple[int, str]] = {node: interface(node) for node in (cable.a, cable.b)}
        for src, dst in ((cable.a, cable.b), (cable.b, cable.a)):
            links.append(Link(src, dst, cable.rate_bps, *ports[src]))
    return Fabric(
        name=name,
        hosts=tuple(
            Host(h, ip=str(DATA_NETWORK[i + 1]), mac="02:00:00:00:{:02x}:{:02x}".format(*divmod(i + 1, 256)), agent=h)
            for i, h in enumerate(hosts)
        ),
        switches=tuple(Switch(s, dpid=i + 1, agent=SWITCH_AGENT) for i, s in enumerate(switches)),
        links=tuple(links),
        planes=planes,
        mtu=check_count(mtu, "topology.mtu", MIN_MTU, MAX_MTU),
    )


def check_count(value: int, field: str, at_least: int = 1, at_most: int = 256) -> int:
    """Return `value` if it is a whole number within its bounds; raise `InputError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
        raise InputError(field, value, f"a whole number from {at_least} to {at_most}")
    return value


def numbered(prefix: str, how_many: int) -> list[str]:
    """Return `prefix1`, `prefix2`, ..."""
    return [f"{prefix}{i + 1}" for i in range(how_many)]
