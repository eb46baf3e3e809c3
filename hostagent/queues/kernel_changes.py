"""Which interfaces and queues of this network namespace the kernel says have changed, whoever changed them.

The kernel's own notifications (rtnetlink(7)) cost nothing while nothing changes, and reading each port's whole tree again and
again does. Only which interface a notification is about is read of it.
"""

import errno
import socket
import struct
from dataclasses import dataclass

_GROUPS = 0x1 | 0x8  # RTMGRP_LINK, RTMGRP_TC
_HEADER = struct.Struct("=IHHII")
_INDEX = struct.Struct("=i")
_INDEX_AT = _HEADER.size + 4  # of `ifinfomsg` as well as of `tcmsg`
_LINK = frozenset({16, 17})  # RTM_NEWLINK, RTM_DELLINK
_QUEUES = frozenset({36, 37, 40, 41, 44, 45})  # RTM_NEW and RTM_DEL of QDISC, TCLASS and TFILTER
_PART_BYTES = 1 << 16


@dataclass(frozen=True)
class Changed:
    """The indices of interfaces that have changed, and of those whose queues have. everything: it may be any of them."""

    links: frozenset[int] = frozenset()
    queues: frozenset[int] = frozenset()
    everything: bool = False

    def __or__(self, later: "Changed") -> "Changed":
        """Return what has changed by either."""
        return Changed(self.links | later.links, self.queues | later.queues, self.everything or later.everything)


class KernelChanges:
    """Listens from its making on. Belongs to the network namespace of the thread that made it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setblocking(False)
        self._socket.bind((0, _GROUPS))

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()

    def take(self) -> Changed:
        """Return what has changed since this was asked last."""
        links, queues, everything = set[int](), set[int](), False
        while True:
            try:
                part = self._socket.recv(_PART_BYTES)
            except BlockingIOError:
                return Changed(frozenset(links), frozenset(queues), everything)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                everything = True  # More has changed than was kept.
                continue
            at = 0
            while at + _INDEX_AT + _INDEX.size <= len(part):
                length, kind, *_ = _HEADER.unpack_from(part, at)
                (index,) = _INDEX.unpack_from(part, at + _INDEX_AT)
                if kind in _LINK:
                    links.add(index)
                elif kind in _QUEUES:
                    queues.add(index)
                at += max(_HEADER.size, length + -length % 4)
