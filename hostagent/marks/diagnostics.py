"""The kernel's list of this network namespace's TCP sockets (sock_diag(7), inet_diag): ends, mark and bytes sent of each.

Read with fixed layouts, linux/inet_diag.h and linux/tcp.h.
"""

import socket
import struct
from typing import NamedTuple

from beamer.errors import PlatformError
from beamer.network.addresses import is_ipv6
from beamer.network.connection import FourTuple
from hostagent.marks.socket_marks import Mark
from hostagent.netlink_lists import ATTRIBUTE, NetlinkLists, aligned

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20  # the netlink family, and its request
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LISTEN = 1, 4, 5, 8, 10
_STATES = sum(1 << state for state in (_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LISTEN))
# The kernel tells the firewall mark to holders of CAP_NET_ADMIN, unasked.
_INFO, _TOS, _TCLASS, _FIREWALL_MARK, _CLASS_ID = 2, 5, 6, 15, 17
# The kernel adds INET_DIAG_CLASS_ID, the priority, if it is asked for INET_DIAG_TCLASS.
_EXTENSIONS = sum(1 << (attribute - 1) for attribute in (_INFO, _TOS, _TCLASS))
_QUERY = struct.Struct("=BBBxI48x")  # inet_diag_req_v2
_SOCKET = struct.Struct("=4x2s2s16s16s28xI")  # inet_diag_msg: ports, addresses, inode
# Offsets in struct tcp_info: tcpi_snd_mss, tcpi_unacked, tcpi_lost; tcpi_bytes_acked, tcpi_bytes_received.
_SEGMENT_AT, _UNACKED_AT, _LOST_AT, _ACKED_AT, _RECEIVED_AT = 16, 24, 32, 120, 128
_COUNT, _BYTES = struct.Struct("=I"), struct.Struct("=Q")
_SENT_AT = 200  # tcpi_bytes_sent in struct tcp_info; tcpi_bytes_retrans follows
_SENT = struct.Struct("=QQ")
_TCP_INFO_BYTES = _SENT_AT + _SENT.size
_MAPPED = bytes(10) + b"\xff\xff"  # an IPv4 end of an IPv6 socket


class TcpSocket(NamedTuple):
    """A TCP socket. ends: the local one first. sent_bytes: as in `SendProgress`. firewall_mark: SO_MARK."""

    inode: int
    ends: FourTuple
    mark: Mark
    sent_bytes: int
    firewall_mark: int = 0


class SendProgress(NamedTuple):
    """What a TCP socket sends, in bytes of payload since its connection began.

    acked: acknowledged by its peer, and one more where the socket has connected. sent: without what was sent again. received:
    from its peer. is_idle: whether everything that was sent is acknowledged. is_losing: whether some counts as lost.
    """

    acked: int
    sent: int
    received: int
    is_idle: bool
    is_losing: bool


def send_progress(sock: socket.socket) -> SendProgress | None:
    """Return what a TCP socket sends, None where the kernel, before 4.19, does not count it."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return None
    packets, lost = (_COUNT.unpack_from(info, at)[0] for at in (_UNACKED_AT, _LOST_AT))
    acked, received = (_BYTES.unpack_from(info, at)[0] for at in (_ACKED_AT, _RECEIVED_AT))
    return SendProgress(acked, _bytes_sent(info), received, not packets, bool(lost))


def bytes_sent(sock: socket.socket) -> int:
    """Return the payload bytes that a TCP socket has sent, as in `SendProgress`; 0 where that is not counted."""
    found = send_progress(sock)
    return 0 if found is None else found.sent


class Diagnostics:
    """A netlink socket to ask; it stays in the network namespace of the thread that made it."""

    def __init__(self) -> None:
        self._lists = NetlinkLists(_SOCK_DIAG)

    def close(self) -> None:
        """Close the socket."""
        self._lists.close()

    def tcp_sockets(self) -> dict[int, TcpSocket]:
        """Return every connected or listening TCP socket by inode. Raises `PlatformError` where the kernel lists none."""
        found = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            query = _QUERY.pack(family, socket.IPPROTO_TCP, _EXTENSIONS, _STATES)
            try:
                for entry in self._lists.ask(_SOCK_DIAG_BY_FAMILY, query):
                    listed = _parse(*entry, family)
                    found[listed.inode] = listed
            except OSError as error:
                raise PlatformError(f"the kernel lists no TCP sockets ({error})", "load inet_diag and tcp_diag") from error
        return found


def _parse(data: bytes, at: int, end: int, family: int) -> TcpSocket:
    local_port, remote_port, local, remote, inode = _SOCKET.unpack_from(data, at)
    ends = _address(local, family), int.from_bytes(local_port), _address(remote, family), int.from_bytes(remote_port)
    at += _SOCKET.size
    priority = tos = sent = firewall_mark = 0
    tos_kind = _TCLASS if is_ipv6(ends[0]) else _TOS  # An IPv6 socket with IPv4 ends sends by its IPv4 option.
    while at < end:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        value = at + ATTRIBUTE.size
        if kind == _CLASS_ID:
            (priority,) = struct.unpack_from("=I", data, value)
        elif kind == _FIREWALL_MARK:
            (firewall_mark,) = struct.unpack_from("=I", data, value)
        elif kind == tos_kind:
            tos = data[value]
        elif kind == _INFO:
            sent = _bytes_sent(data[value : at + length])
        at += aligned(length)
    return TcpSocket(inode, ends, Mark(priority, tos >> 2), sent, firewall_mark)


def _bytes_sent(info: bytes) -> int:
    """Return what a `struct tcp_info` says was sent; 0 where the kernel, before 4.19, does not count it.

    The kernel also counts what the host has refused (`hostagent.marks.holding`). Of a connection that was held this may be too
    much, by a byte, and by what its packets under way are shorter than the longest.
    """
    if len(info) < _TCP_INFO_BYTES:
        return 0
    sent, again = _SENT.unpack_from(info, _SENT_AT)
    segment, packets = (_COUNT.unpack_from(info, at)[0] for at in (_SEGMENT_AT, _UNACKED_AT))
    (acked,) = _BYTES.unpack_from(info, _ACKED_AT)
    return int(min(sent - again, acked + packets * segment))


def _address(field: bytes, family: int) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, field[:4])
    if field.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, field[12:])
    return socket.inet_ntop(socket.AF_INET6, field)
