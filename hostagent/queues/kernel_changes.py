"""Which interfaces, queues and tables of nftables of this network namespace the kernel says have changed, whoever did it.

The kernel's own notifications (rtnetlink(7), nfnetlink) cost nothing while nothing changes, and reading each port's whole tree
again and again does. Only which interface, or which table, a notification is about is read of it.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_GROUPS = 0x1 | 0x8  # RTMGRP_LINK, RTMGRP_TC
_HEADER = struct.Struct("=IHHII")
_INDEX = struct.Struct("=i")
_INDEX_AT = _HEADER.size + 4  # of `ifinfomsg` as well as of `tcmsg`
_LINK = frozenset({16, 17})  # RTM_NEWLINK, RTM_DELLINK
_QUEUES = frozenset({36, 37, 40, 41, 44, 45})  # RTM_NEW and RTM_DEL of QDISC, TCLASS and TFILTER
_PART_BYTES = 1 << 16

_NETFILTER, _NFTABLES = 12, 10  # NETLINK_NETFILTER, NFNL_SUBSYS_NFTABLES
_SOL_NETLINK, _ADD_MEMBERSHIP, _NFTABLES_GROUP = 270, 1, 7  # NFNLGRP_NFTABLES
_GENERATIONS = frozenset({15, 16})  # NFT_MSG_NEWGEN and NFT_MSG_GETGEN are about no table.
_ATTRIBUTE = struct.Struct("=HH")
_ATTRIBUTES_AT = _HEADER.size + 4  # behind `nfgenmsg`
_TABLE = 1  # The number of the attribute that names the table of a table, a chain, a rule, a set or its elements.


@dataclass(frozen=True)
class Changed:
    """What has changed: the indices of interfaces, of those whose queues have, and the names of tables of nftables.

    everything: it may be any of them.
    """

    links: frozenset[int] = frozenset()
    queues: frozenset[int] = frozenset()
    everything: bool = False
    tables: frozenset[str] = frozenset()

    def __or__(self, later: "Changed") -> "Changed":
        """Return what has changed by either."""
        everything = self.everything or later.everything
        return Changed(self.links | later.links, self.queues | later.queues, everything, self.tables | later.tables)


class KernelChanges:
    """Listens from its making on. Belongs to the network namespace of the thread that made it.

    Where the kernel has no nftables nothing is said of tables.
    """

    def __init__(self) -> None:
        self._routes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._routes.setblocking(False)
        self._routes.bind((0, _GROUPS))
        self._tables = _listening_for_tables()

    def close(self) -> None:
        """Listen no more."""
        self._routes.close()
        if self._tables is not None:
            self._tables.close()

    def take(self) -> Changed:
        """Return what has changed since this was asked last."""
        links, queues, tables, everything = set[int](), set[int](), set[str](), False
        for message in _received(self._routes):
            if message is None:
                everything = True
            elif len(message) >= _INDEX_AT + _INDEX.size:
                kind, (index,) = _HEADER.unpack_from(message)[1], _INDEX.unpack_from(message, _INDEX_AT)
                if kind in _LINK:
                    links.add(index)
                elif kind in _QUEUES:
                    queues.add(index)
        for message in _received(self._tables) if self._tables is not None else ():
            if message is None:
                everything = True
            elif name := _table_of(message):
                tables.add(name)
        return Changed(frozenset(links), frozenset(queues), everything, frozenset(tables))


def _listening_for_tables() -> socket.socket | None:
    try:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    except OSError:
        return None
    try:
        made.setblocking(False)
        made.bind((0, 0))
        made.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFTABLES_GROUP)
    except OSError:
        made.close()
        return None
    return made


def _received(from_kernel: socket.socket) -> Iterator[bytes | None]:
    """Yield the notifications that have come, and None where more came than were kept."""
    while True:
        try:
            part = from_kernel.recv(_PART_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            yield None
            continue
        at = 0
        while at + _HEADER.size <= len(part):
            (length, *_) = _HEADER.unpack_from(part, at)
            yield part[at : at + length]
            at += max(_HEADER.size, length + -length % 4)


def _table_of(message: bytes) -> str | None:
    """Return the name of the table of nftables that a notification is about."""
    kind = _HEADER.unpack_from(message)[1]
    if kind >> 8 != _NFTABLES or kind & 0xFF in _GENERATIONS:
        return None
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, number = _ATTRIBUTE.unpack_from(message, at)
        if number == _TABLE:
            return message[at + _ATTRIBUTE.size : at + length].rstrip(b"\0").decode("utf-8", "replace")
        at += max(_ATTRIBUTE.size, length + -length % 4)
    return None
