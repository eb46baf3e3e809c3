"""What each class of a port may send: the figures that every maker of queues uses, whatever it makes them with."""

from dataclasses import dataclass

from beamer.errors import InputError
from beamer.network.plan import UNREGISTERED_SHARE, check_queues

LOWEST_PRIORITY = 7  # HTB turns anything above into this


@dataclass(frozen=True)
class ClassRates:
    """What HTB gives a class. priority: 0 is served first. rate: guaranteed, ceil: at most, in bytes per second."""

    priority: int
    rate: int
    ceil: int


@dataclass(frozen=True)
class PortRates:
    """The classes of a port. link: its rate in bytes per second. unregistered: of traffic that nobody registered."""

    link: int
    managed: tuple[ClassRates, ...]
    unregistered: ClassRates


def port_rates(rate_bps: int, queues: int, unregistered_share: float = UNREGISTERED_SHARE) -> PortRates:
    """Return what `queues` managed classes of a port are given, and unregistered traffic beside them.

    rate_bps: of the port's link, at least 8 bit/s. unregistered_share: of it, guaranteed.
    Raises `InputError` for a share or a number of queues that no port can have.
    """
    check_queues(queues)
    if not 0 < unregistered_share < 1:
        raise InputError("unregistered_share", unregistered_share, "a share between 0 and 1")
    link = rate_bps // 8
    token = max(1, link // 1000)  # HTB refuses a class without a rate of its own; a rate this low hardly bends strictness.
    least = max(1, int(link * unregistered_share))
    managed = tuple(ClassRates(k, token, link) for k in range(queues))
    return PortRates(link, managed, ClassRates(LOWEST_PRIORITY, least, link))


def burst_bytes(rate: int, frame: int) -> int:
    """Return how much a class may send at once, so that a timer that fires late costs no throughput.

    rate: in bytes per second. frame: the largest one, in bytes. Two busy cores wake HTB some milliseconds late, so a slow link
    gets 4 ms; a fast one gets 1 ms, enough there and less of a burst; no class gets less than two frames.
    """
    return max(2 * frame, min(rate * 4 // 1000, 64 * 1024), rate // 1000)
