"""The HTB tree that a port should have, and the smallest difference to the one it has: pure, so no kernel is needed to test it.

    1:        root, unclassified packets go to 1:9
    1:1       the link: rate = ceil = its capacity
    1:10+k    managed class k, priority k: a token rate, all of the link when nobody more urgent wants it
    1:9       unregistered traffic: its guaranteed share, all of the link when nobody else wants it
    1:100+i   a job with a rate cap, in its class's priority

Numbers after the colon are hexadecimal, as `tc` prints them. A class is picked by the socket's mark (SO_PRIORITY = class id,
which HTB honours without a filter) or, on a switch's port, by u32 filters on the DSCP.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from beamer.errors import InputError
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.plan import QUEUES
from beamer.network.protocol import LocalWorker, Port
from beamer.network.queue_rates import burst_bytes, port_rates
from beamer.units import ETHERNET_HEADER, ETHERNET_MTU

ROOT = 0x10000
LINK = 0x10001
UNREGISTERED = 0x10009
_FIRST_MANAGED = 0x10010
_FIRST_CAPPED = 0x10100
_CAPPED = 0xE00  # Capped jobs are spread over so many ids.
MAX_CAPPED = _CAPPED // 2  # At most so many jobs are capped: with half of the ids free, the next free one is near.

# A class with others below it has this quantum, which is not used there and never changed.
_INNER_QUANTUM = ETHERNET_MTU + ETHERNET_HEADER
_MAX_BURST_US = 60_000_000  # HTB remembers no longer than this


@dataclass(frozen=True)
class HtbClass:
    """One class. rate, ceil: bytes per second. burst_us, cburst_us: how long it may send at once, in microseconds at either."""

    id: int
    parent: int
    prio: int
    rate: int
    ceil: int
    burst_us: int
    cburst_us: int
    quantum: int


@dataclass(frozen=True)
class DscpFilter:
    """Packets of codepoint `dscp` go to class `target`. prio: its place among the filters, unique on a port.

    ipv6: those of IPv6, or else of IPv4.
    """

    prio: int
    dscp: int
    target: int
    ipv6: bool = False


@dataclass(frozen=True)
class Tree:
    """An HTB root with its classes by id and its filters by prio. default: where unclassified packets go."""

    classes: Mapping[int, HtbClass]
    filters: Mapping[int, DscpFilter]
    default: int = UNREGISTERED & 0xFFFF


@dataclass(frozen=True)
class Root:
    """The root queueing discipline, as the object of a change."""

    default: int


@dataclass(frozen=True)
class Change:
    """One request to the kernel. verb: as tc(8) has it."""

    verb: Literal["add", "change", "del"]
    what: Root | HtbClass | DscpFilter


@dataclass(frozen=True)
class Cap:
    """A job's rate limit on this host: its class and the rate in bit/s that it may not exceed."""

    klass: int
    rate_bps: int


def class_id(klass: int) -> int:
    """Return the HTB class id of managed class `klass`; it is also the mark of that class's sockets."""
    return _FIRST_MANAGED + klass


def is_managed(priority: int) -> bool:
    """Return whether a socket's mark is the id of a managed class or of a capped job's."""
    return _FIRST_MANAGED <= priority < class_id(QUEUES) or _FIRST_CAPPED <= priority < _FIRST_CAPPED + _CAPPED


def caps_of(workers: Iterable[LocalWorker]) -> dict[str, Cap]:
    """Return the rate limits among `workers`, by job. Raises `InputError` for a limit that is not above 0."""
    caps: dict[str, Cap] = {}
    for worker in workers:
        if worker.cap_bps is None:
            continue
        if worker.cap_bps <= 0:
            raise InputError(f"workers[{worker.job}].cap_bps", worker.cap_bps, "a rate above 0 bit/s")
        caps[worker.job] = Cap(worker.klass, worker.cap_bps)
    return caps


def cap_ids(jobs: Iterable[str]) -> dict[str, int]:
    """Return a class id per capped job: the same for the same set of jobs, and rarely moved when the set changes.

    Raises `InputError` for more jobs than `MAX_CAPPED`.
    """
    ordered = sorted(jobs)
    if len(ordered) > MAX_CAPPED:
        raise InputError("workers.cap_bps", len(ordered), f"at most {MAX_CAPPED} jobs with a cap")
    taken: dict[int, str] = {}
    for job in ordered:
        slot = zlib.crc32(job.encode()) % _CAPPED
        while slot in taken:
            slot = (slot + 1) % _CAPPED
        taken[slot] = job
    return {job: _FIRST_CAPPED + slot for slot, job in taken.items()}


def port_tree(
    port: Port,
    queues: int,
    unregistered_share: float,
    caps: Mapping[str, Cap],
    codepoints: Codepoints = LOCAL,
    *,
    ipv6: bool = False,
) -> Tree:
    """Return the tree that `port` should have for `queues` managed classes.

    unregistered_share: of the link, guaranteed to traffic that nobody registered. caps: only for ports classified by mark.
    ipv6: whether a port that is classified by DSCP also looks at that of IPv6.
    Raises `InputError` for a rate, share, number of queues or class that no tree can have.
    """
    if port.rate_bps < 8:
        raise InputError(f"ports[{port.interface}].rate_bps", port.rate_bps, "a rate of at least 8 bit/s")
    rates, frame = port_rates(port.rate_bps, queues, unregistered_share), port.frame_bytes
    link, least = rates.link, rates.unregistered
    classes = [replace(_htb_class(LINK, ROOT, 0, link, link, frame), quantum=_INNER_QUANTUM)]
    classes += [_htb_class(class_id(k), LINK, one.priority, one.rate, one.ceil, frame) for k, one in enumerate(rates.managed)]
    classes.append(_htb_class(UNREGISTERED, LINK, least.priority, least.rate, least.ceil, frame))
    if port.classify == "mark":
        ids = cap_ids(caps)
        for job, cap in caps.items():
            ceiling = max(1, min(cap.rate_bps // 8, link))
            token = min(rates.managed[0].rate, ceiling)
            classes.append(_htb_class(ids[job], LINK, cap.klass, token, ceiling, frame))
    families = ((False, 0), (True, QUEUES)) if ipv6 else ((False, 0),)  # The kernel wants other places for each.
    filters = (
        [
            *(
                DscpFilter(prio=first + k + 1, dscp=codepoints.of(k), target=class_id(k), ipv6=is_ipv6)
                for is_ipv6, first in families
                for k in range(queues)
            ),
            # Where an edge switch does not give them class 0, acknowledgements still have their host's mark.
            *(
                DscpFilter(prio=2 * QUEUES + 1 + is_ipv6, dscp=codepoints.acknowledgement, target=class_id(0), ipv6=is_ipv6)
                for is_ipv6, _ in families
            ),
        ]
        if port.classify == "dscp"
        else []
    )
    return Tree({c.id: c for c in classes}, {f.prio: f for f in filters})


def difference(observed: Tree | None, desired: Tree | None) -> tuple[Change, ...]:
    """Return the changes that turn `observed` into `desired`, in an order that the kernel takes. None: the kernel's default."""
    if desired is None:
        return () if observed is None else (Change("del", Root(observed.default)),)
    if observed is not None and observed.default != desired.default:
        return (Change("del", Root(observed.default)), *difference(None, desired))
    changes: list[Change] = []
    if observed is None:
        changes.append(Change("add", Root(desired.default)))
        observed = Tree({}, {}, desired.default)
    changes += (Change("del", f) for prio, f in observed.filters.items() if desired.filters.get(prio) != f)
    for wanted in sorted(desired.classes.values(), key=lambda c: (c.parent != ROOT, c.id)):
        found = observed.classes.get(wanted.id)
        if found is None:
            changes.append(Change("add", wanted))
        elif found != wanted:
            changes.append(Change("change", wanted))
    changes += (Change("del", c) for c in observed.classes.values() if c.id not in desired.classes)
    changes += (Change("add", f) for prio, f in desired.filters.items() if observed.filters.get(prio) != f)
    return tuple(changes)


def _htb_class(id_: int, parent: int, prio: int, rate: int, ceil: int, frame: int) -> HtbClass:
    """Return a class; a quantum of one frame makes classes of equal priority take turns packet by packet."""
    return HtbClass(id_, parent, prio, rate, ceil, _burst_us(rate, frame), _burst_us(ceil, frame), frame)


def _burst_us(rate: int, frame: int) -> int:
    """Return for how long a class sends its burst at its rate, in microseconds."""
    return min(max(1, burst_bytes(rate, frame) * 1_000_000 // rate), _MAX_BURST_US)
