"""What switches and hosts show of a network, and in what that differs from its file.

Pure: whoever asks switches (`controller.openflow.survey`) fills an `Observation`. Nothing is a mismatch that was not seen: of
the ports of a switch that is not connected nothing is said. A cable that was found dead stays so until a probe has passed it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from beamer.network.fabric import Fabric, Link
from beamer.network.next_hops import Cable
from beamer.units import rate_text

PortKey = tuple[str, int]
"""A switch, and the OpenFlow number of one of its ports."""


@dataclass(frozen=True)
class PortState:
    """A port as its switch describes it.

    up: whether it has a link. bps: the link's speed in bit/s, 0 where not known. mac: its Ethernet address, in lower case.
    """

    name: str
    up: bool
    bps: int = 0
    mac: str = ""


@dataclass(frozen=True)
class Mismatch:
    """A port at which a network is not as its file says. kind: one of `KINDS`. text: a sentence for people.

    port: 0 stands for the switch as a whole.
    """

    kind: str
    switch: str
    port: int
    text: str


@dataclass(frozen=True)
class Observation:
    """What is known of a network.

    ports: of each switch that is connected, by number. leads_to: where what a switch's port sends arrives. silent: ports to
    other switches whose probes arrive nowhere, also of switches that are not connected any more. answers: the Ethernet address
    by which a host's IP address answers at a port. mute: ports at which nothing answers. unqueued: ports that lack queues, of
    switches that say what queues they have. foreign: by switch, the rules of other programs that packets meet before Beamer's.
    disobeyed: ports whose queues count no packet that a queue was chosen for. databases: why switches with databases do not
    get their queues. datapaths: the types that these databases name, by switch.
    """

    ports: Mapping[str, Mapping[int, PortState]] = field(default_factory=dict)
    leads_to: Mapping[PortKey, PortKey] = field(default_factory=dict)
    silent: frozenset[PortKey] = frozenset()
    answers: Mapping[PortKey, Mapping[str, str]] = field(default_factory=dict)
    mute: frozenset[PortKey] = frozenset()
    unqueued: frozenset[PortKey] = frozenset()
    foreign: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    disobeyed: frozenset[PortKey] = frozenset()
    databases: tuple[Mismatch, ...] = ()
    datapaths: Mapping[str, str] = field(default_factory=dict)


KINDS = (
    "no port",
    "no link",
    "wrong cable",
    "no path",
    "wrong name",
    "no queues",
    "foreign queues",
    "not queued",
    "no database",
    "slower",
    "wrong host",
    "no host",
)
"""What a mismatch may be: a port that does not exist, or has no link; a cable that leads elsewhere, or nowhere; an
interface of another name than its agent shapes; a port that has no queues, or those of another program, or does not use them; a
database by which no queues can be made; a link below the file's rate; another host, another address of it, or none."""
USERSPACE = "netdev"
"""The type of Open vSwitch's userspace datapath."""
FASTER = 2.0
"""A link this many times as fast as its file says is remarked on: a rate above the true one by less may be meant."""
_SHOWN = 3  # So many ports are named in a sentence.
CUT = frozenset({"no port", "no link", "wrong cable", "no path"})
"""The mismatches with which nothing passes a cable."""


def mismatches(fabric: Fabric, seen: Observation) -> tuple[Mismatch, ...]:
    """Return in what a network differs from its file, by switch and port."""
    where: dict[str, list[PortKey]] = {}
    for end, answers in seen.answers.items():
        for ip in answers:
            where.setdefault(ip, []).append(end)
    causes = _QueueCauses(frozenset((one.switch, one.port) for one in seen.databases), _disobedient(fabric, seen))
    found = [one for link in fabric.links if link.src in seen.ports for one in _of_port(fabric, link, seen, where, causes)]
    found += (_disobeys(seen, (name, 0), name) for name in causes.disobedient)
    found += seen.databases
    return tuple(sorted(found, key=lambda one: (one.switch, one.port)))


@dataclass(frozen=True)
class _QueueCauses:
    """What is known of queues beyond single ports. faulty: databases, port 0, and their ports. disobedient: whole switches."""

    faulty: frozenset[PortKey]
    disobedient: frozenset[str]


def remarks(fabric: Fabric, seen: Observation) -> tuple[str, ...]:
    """Return what is odd and no mismatch, a sentence each.

    Links that are much faster than their file says, and rules of other programs.
    """
    of: dict[tuple[int, int], list[str]] = {}
    for link in fabric.links:
        state = seen.ports.get(link.src, {}).get(link.port)
        if state is not None and state.up and state.bps >= FASTER * link.rate_bps:
            of.setdefault((state.bps, link.rate_bps), []).append(f"{link.src} port {link.port}")
    faster = [
        f"{_listed(ports)} could carry {rate_text(bps)}, and carries the {rate_text(rate_bps)} of the file"
        for (bps, rate_bps), ports in sorted(of.items())
    ]
    foreign = [
        f"{switch} has rules of other programs that come before Beamer's, {len(rules)} in all: "
        + "; ".join(tuple(dict.fromkeys(rules))[:_SHOWN])
        for switch, rules in sorted(seen.foreign.items())
    ]
    return (*faster, *foreign)


def _listed(ports: list[str]) -> str:
    more = f" and {len(ports) - _SHOWN} more ports" if len(ports) > _SHOWN else ""
    return ", ".join(ports[:_SHOWN]) + more + (": each" if len(ports) > 1 else "")


def dead_cables(fabric: Fabric, found: tuple[Mismatch, ...], silent: frozenset[PortKey] = frozenset()) -> frozenset[Cable]:
    """Return the cables between switches that nothing passes, in one order of their ends. silent: as of `Observation`."""
    leads = {(link.src, link.port): link.dst for link in fabric.links}
    ports = {(one.switch, one.port) for one in found if one.kind in CUT} | silent
    ends = {(port[0], leads[port]) for port in ports}
    return frozenset((min(a, b), max(a, b)) for a, b in ends if b in fabric.switch)


def cut_off(fabric: Fabric, dead: frozenset[Cable]) -> tuple[str, ...]:
    """Return the hosts that some other one has no path to around dead cables, but for those of the largest part."""
    parts = [part & fabric.host.keys() for part in fabric.next_hops.around(dead).parts()]
    largest: set[str] = max(parts, key=len, default=set())
    return tuple(host for host in fabric.host if host not in largest)


def _of_port(
    fabric: Fabric, link: Link, seen: Observation, where: Mapping[str, list[PortKey]], causes: _QueueCauses
) -> Iterator[Mismatch]:
    """Yield what is wrong at the port of a switch from which a link leads."""
    end = link.src, link.port
    here = f"{link.src} port {link.port}"
    state = seen.ports[link.src].get(link.port)
    if state is None:
        has = ", ".join(map(str, sorted(seen.ports[link.src]))) or "none"
        yield Mismatch(
            "no port", *end, f"{link.src} has no port {link.port}, to which the file connects {link.dst}; it has {has}"
        )
        return
    if not state.up:
        yield Mismatch("no link", *end, f"{here} has no link; the file connects it to {link.dst}")
        return
    if fabric.switch[link.src].agent is not None and state.name != link.interface:
        yield Mismatch(
            "wrong name", *end, f"{here} is {state.name}; the file says {link.interface}, whose queues its agent makes"
        )
    yield from _of_queues(fabric, end, here, seen, causes)
    if 0 < state.bps < link.rate_bps:
        yield Mismatch(
            "slower",
            *end,
            f"{here} runs at {rate_text(state.bps)}; the file says {rate_text(link.rate_bps)}, so that no queue forms",
        )
    yield from _of_host(fabric, link, seen, where) if link.dst in fabric.host else _of_trunk(fabric, link, seen)


def _of_queues(fabric: Fabric, end: PortKey, here: str, seen: Observation, causes: _QueueCauses) -> Iterator[Mismatch]:
    """Yield what is wrong with a port's queues. Where its database has a fault, that is the cause."""
    if {(end[0], 0), end} & causes.faulty:
        return
    if end in seen.unqueued:
        made = end[0] in fabric.with_databases
        why = "although its database has them: see the log of ovs-vswitchd" if made else "and no agent makes any"
        yield Mismatch("no queues", *end, f"{here} has no queues, {why}: no class goes before another there")
    elif end in seen.disobeyed and end[0] not in causes.disobedient:
        yield _disobeys(seen, end, here)


def _disobedient(fabric: Fabric, seen: Observation) -> frozenset[str]:
    """Return the switches that use the queues of no port with a link."""
    named = {switch for switch, _ in seen.disobeyed} & seen.ports.keys()
    ends = [(link.src, link.port) for link in fabric.links if link.src in named]
    used = {key[0] for key in ends if key not in seen.disobeyed and _is_up(seen, key)}
    return frozenset(named - used - {one.switch for one in seen.databases})


def _is_up(seen: Observation, end: PortKey) -> bool:
    state = seen.ports[end[0]].get(end[1])
    return state is not None and state.up


def _disobeys(seen: Observation, end: PortKey, here: str) -> Mismatch:
    why = ""
    if seen.datapaths.get(end[0]) == USERSPACE:
        why = "; Open vSwitch's userspace datapath ignores set_queue, so let an agent make the queues"
    text = f"{here} does not queue as told: its queues count none of the packets that rules choose a queue for{why}"
    return Mismatch("not queued", *end, text)


def _of_trunk(fabric: Fabric, link: Link, seen: Observation) -> Iterator[Mismatch]:
    end = link.src, link.port
    back = fabric.links[fabric.link_index[link.dst, link.src]]
    said = back.src, back.port
    where = seen.leads_to.get(end)
    if where is not None and where != said:
        text = f"{_named(end)} leads to {_named(where)}; the file says {_named(said)}"
        yield Mismatch("wrong cable", *end, text)
    elif where is None and end in seen.silent:
        yield Mismatch("no path", *end, f"what {_named(end)} sends arrives nowhere; the file says at {_named(said)}")


def _of_host(fabric: Fabric, link: Link, seen: Observation, where: Mapping[str, list[PortKey]]) -> Iterator[Mismatch]:
    end = link.src, link.port
    host = fabric.host[link.dst]
    answers = seen.answers.get(end, {})
    mac = answers.get(host.ip)
    if mac == host.mac:
        return
    if mac is not None:
        yield Mismatch("wrong host", *end, f"{host.name} ({host.ip}) has the Ethernet address {mac}; the file says {host.mac}")
        return
    others = [other.name for other in fabric.hosts if other.ip in answers] if answers else []
    elsewhere = [_named(at) for at in where.get(host.ip, ())]
    if others:
        yield Mismatch("wrong host", *end, f"at {_named(end)} is {', '.join(others)}; the file says {host.name}")
    elif elsewhere:
        yield Mismatch("wrong host", *end, f"{host.name} is at {', '.join(elsewhere)}; the file says at {_named(end)}")
    elif end in seen.leads_to:
        yield Mismatch("wrong cable", *end, f"{_named(end)} leads to {_named(seen.leads_to[end])}; the file says {host.name}")
    elif end in seen.mute:
        yield Mismatch("no host", *end, f"{host.name} ({host.ip}) does not answer at {_named(end)}")


def _named(end: PortKey) -> str:
    return f"{end[0]} port {end[1]}"
