"""Lists that the kernel gives over netlink(7), for messages of fixed layouts.

A general decoder of netlink takes ten times as long, most of it for what is not asked. Such lists are read with every report.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, kind
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_BUFFER_BYTES = 1 << 18  # the kernel fills at most 32 KiB at once
_PATIENCE_S = 5.0


class ListedEntry(NamedTuple):
    """An entry of a list: `data[at:end]`, without netlink's header."""

    data: bytes
    at: int
    end: int


class NetlinkLists:
    """A netlink socket to ask; it stays in the network namespace of the thread that made it. family: such as NETLINK_ROUTE."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        self._socket.settimeout(_PATIENCE_S)
        self._request = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def ask(self, kind: int, query: bytes) -> Iterator[ListedEntry]:
        """Yield the entries that the kernel lists. kind: of the request. Raises `OSError` where it refuses or is silent."""
        self._request += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(query), kind, _REQUEST_DUMP, self._request, 0) + query)
        while True:
            data = self._socket.recv(_BUFFER_BYTES)
            at = 0
            while at < len(data):
                length, answer, _, request, _ = _HEADER.unpack_from(data, at)
                if request == self._request:  # Answers to a request that was broken off are skipped.
                    if answer == _DONE:
                        return
                    if answer == _ERROR:
                        (code,) = struct.unpack_from("=i", data, at + _HEADER.size)
                        raise OSError(-code or errno.EIO, os.strerror(-code or errno.EIO))
                    yield ListedEntry(data, at + _HEADER.size, at + length)
                at += aligned(length)


def aligned(length: int) -> int:
    """Return how far after the beginning of a message or an attribute of this length the next one begins."""
    return length + 3 & ~3
