"""Small networks for tests of policies, allocators and the simulator."""

from collections.abc import Iterable

from beamer.network.fabric import Fabric, Host, Link, Switch


def _hosts(names: Iterable[str]) -> tuple[Host, ...]:
    return tuple(Host(name, f"10.77.0.{i}", f"02:00:00:00:00:{i:02x}", name) for i, name in enumerate(names, 1))


def _numbered(hosts: int) -> list[str]:
    return [f"h{i}" for i in range(1, hosts + 1)]


def _links(cables: Iterable[tuple[str, str]], rate_bps: int) -> tuple[Link, ...]:
    ports: dict[str, int] = {}
    links: list[Link] = []
    for cable in cables:
        for node in cable:
            ports[node] = ports.get(node, 0) + 1
        for src, dst in (cable, cable[::-1]):
            links.append(Link(src, dst, rate_bps, ports[src], f"{src}-eth{ports[src]}"))
    return tuple(links)


def star(hosts: int, rate_bps: int = 20_000_000) -> Fabric:
    """Return hosts `h1`, `h2`, ... on one switch, at most 254."""
    return star_of(_numbered(hosts), rate_bps)


def star_of(names: Iterable[str], rate_bps: int = 20_000_000) -> Fabric:
    """Return hosts of these names on one switch, at most 254."""
    ends = _hosts(names)
    return Fabric("star", ends, (Switch("s1", 1),), _links(((host.name, "s1") for host in ends), rate_bps))


def two_spines(hosts_per_leaf: int = 2, rate_bps: int = 20_000_000) -> Fabric:
    """Return two leaves, each connected to both of two spines: two planes."""
    ends = _hosts(_numbered(2 * hosts_per_leaf))
    cables = [(leaf, spine) for leaf in ("l1", "l2") for spine in ("s1", "s2")]
    cables += [(host.name, "l1" if i < hosts_per_leaf else "l2") for i, host in enumerate(ends)]
    switches = tuple(Switch(name, i + 1) for i, name in enumerate(("l1", "l2", "s1", "s2")))
    return Fabric("two-spines", ends, switches, _links(cables, rate_bps), planes=2)
