"""The counters of a port's classes (rtnetlink(7), RTM_GETTCLASS), which an agent reads of every port with every report.

Read with fixed layouts, linux/rtnetlink.h and linux/pkt_sched.h.
"""

import socket
import struct
from dataclasses import dataclass

from hostagent.netlink_lists import ATTRIBUTE, NetlinkLists, aligned

_ROUTE, _GET_CLASSES = 0, 42  # NETLINK_ROUTE, RTM_GETTCLASS
_MESSAGE = struct.Struct("=B3xiIII")  # tcmsg: family, interface, handle, parent, info
_STATS = 3  # TCA_STATS
_COUNTS = struct.Struct("=QII16xI")  # tc_stats: bytes, packets, drops, ..., backlog


@dataclass(frozen=True)
class ClassCount:
    """What a class has sent, dropped and holds."""

    sent_bytes: int
    sent_packets: int
    dropped_packets: int
    backlog_bytes: int


class ClassCounts:
    """A netlink socket to ask; it stays in the network namespace of the thread that made it."""

    def __init__(self) -> None:
        self._lists = NetlinkLists(_ROUTE)

    def close(self) -> None:
        """Close the socket."""
        self._lists.close()

    def read(self, index: int) -> dict[int, ClassCount]:
        """Return the counters of every class on the interface of this index, by class id. Raises `OSError`."""
        query = _MESSAGE.pack(socket.AF_UNSPEC, index, 0, 0, 0)
        return dict(parse_class(*entry) for entry in self._lists.ask(_GET_CLASSES, query))


def parse_class(data: bytes, at: int, end: int) -> tuple[int, ClassCount]:
    """Return the id and the counters of a class that a message describes; at, end: where the message is, without its header."""
    _, _, handle, _, _ = _MESSAGE.unpack_from(data, at)
    at += _MESSAGE.size
    while at < end:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if kind == _STATS:
            return handle, ClassCount(*_COUNTS.unpack_from(data, at + ATTRIBUTE.size))
        at += aligned(length)
    return handle, ClassCount(0, 0, 0, 0)
