"""The counters of a port's classes (rtnetlink(7), RTM_GETTCLASS), which an agent reads of every port with every report.

Read with fixed layouts, linux/rtnetlink.h and linux/pkt_sched.h: a general decoder takes many times as long, most of it
for what is not asked.
"""

import errno
import os
import socket
import struct
from dataclasses import dataclass

_ROUTE = 0  # the netlink family
_GET_CLASSES = 42  # RTM_GETTCLASS
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_MESSAGE = struct.Struct("=B3xiIII")  # tcmsg: family, interface, handle, parent, info
_ATTRIBUTE = struct.Struct("=HH")  # nlattr
_STATS = 3  # TCA_STATS
_COUNTS = struct.Struct("=QII16xI")  # tc_stats: bytes, packets, drops, ..., backlog
_BUFFER_BYTES = 1 << 18  # the kernel fills at most 32 KiB at once
_PATIENCE_S = 5.0


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
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _ROUTE)
        self._socket.settimeout(_PATIENCE_S)
        self._request = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def read(self, index: int) -> dict[int, ClassCount]:
        """Return the counters of every class on the interface of this index, by class id. Raises `OSError`."""
        self._request += 1
        query = _MESSAGE.pack(socket.AF_UNSPEC, index, 0, 0, 0)
        header = _HEADER.pack(_HEADER.size + len(query), _GET_CLASSES, _REQUEST_DUMP, self._request, 0)
        self._socket.send(header + query)
        found: dict[int, ClassCount] = {}
        while True:
            data = self._socket.recv(_BUFFER_BYTES)
            at = 0
            while at < len(data):
                length, kind, _, request, _ = _HEADER.unpack_from(data, at)
                if request == self._request:  # Answers to a request that was broken off are skipped.
                    if kind == _DONE:
                        return found
                    if kind == _ERROR:
                        (code,) = struct.unpack_from("=i", data, at + _HEADER.size)
                        raise OSError(-code or errno.EIO, os.strerror(-code or errno.EIO))
                    handle, count = parse_class(data, at + _HEADER.size, at + length)
                    found[handle] = count
                at += length + 3 & ~3


def parse_class(data: bytes, at: int, end: int) -> tuple[int, ClassCount]:
    """Return the id and the counters of a class that a message describes; at, end: where the message is, without its header."""
    _, _, handle, _, _ = _MESSAGE.unpack_from(data, at)
    at += _MESSAGE.size
    while at < end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if kind == _STATS:
            return handle, ClassCount(*_COUNTS.unpack_from(data, at + _ATTRIBUTE.size))
        at += length + 3 & ~3
    return handle, ClassCount(0, 0, 0, 0)
