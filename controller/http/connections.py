"""How many HTTP connections may be open, in all and by address, so that descriptors are left for switches and the journal."""

import resource
from collections import Counter

import structlog

from beamer.errors import PlatformError
from beamer.log_limit import LogLimit
from controller.limits import Limits

ACCEPTED_AT_ONCE = 32  # So many connections are accepted before any of them is counted.
OWN_DESCRIPTORS = 64  # the journal, logs, listening sockets, libraries
_BEING_CLOSED = 4 * ACCEPTED_AT_ONCE  # Surplus connections free their descriptors only turns of the loop later.
_PER_ELEMENT = 4  # A switch or an agent takes so many descriptors, with the connection that replaces a dead one.

log = structlog.get_logger("beamer-controller")


def raise_descriptor_limit() -> int:
    """Raise the process's soft limit of descriptors to the hard one, as far as it may be; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # The kernel does not grant the hard limit.
        return soft
    return hard


def connections_within(descriptors: int, limits: Limits, elements: int) -> int:
    """Return how many HTTP connections may be open: what switches, agents and the journal need is kept for them.

    descriptors: that the process may have. elements: switches and agents. Raises `PlatformError` if none is left.
    """
    reserved = OWN_DESCRIPTORS + _BEING_CLOSED + _PER_ELEMENT * elements
    left = descriptors - reserved if descriptors != resource.RLIM_INFINITY else limits.connections
    if left < 1:
        remedy = f"let it open more than {reserved} (ulimit -n)"
        raise PlatformError(f"the controller may open {descriptors} files, too few for its switches and agents", remedy)
    return min(limits.connections, left)


class OpenConnections:
    """Count the connections that are open, in all and by address."""

    def __init__(self, most: int, most_per_address: int, log_limit: LogLimit) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._log_limit = log_limit
        self._by_address: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many there are."""
        return self._by_address.total()

    def admit(self, address: str) -> bool:
        """Count a connection from `address` and return True, or False if there are as many as may be."""
        if self.total >= self._most or self._by_address[address] >= self._most_per_address:
            if self._log_limit.take("connections"):
                log.warning(
                    "surplus connections are closed at once",
                    peer=address,
                    of_peer=self._by_address[address],
                    of_all=self.total,
                    limits=(self._most_per_address, self._most),
                )
            return False
        self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection no more."""
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]
