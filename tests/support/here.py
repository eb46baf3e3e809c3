"""A network whose first host has this machine's own name: that of what a tuner starts in its own process."""

import socket

from beamer.network.fabric import Fabric
from topologies.cabling import Cable, wire

RATE_BPS = 20_000_000


def fabric_here() -> Fabric:
    """Return two hosts at one switch, of which the first is this machine by its name."""
    names = [socket.gethostname(), "elsewhere"]
    return wire("here", names, ["s1"], [Cable(name, "s1", RATE_BPS) for name in names])
