"""Which processes belong to a worker, and which sockets they hold: the part of socket matching that reads /proc.

A process belongs to its nearest registered ancestor, itself included, and keeps belonging when its parents exit.
"""

import ctypes
import errno
import os
import re
import socket
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from beamer.errors import PlatformError

_PIDFD_GETFD = 438
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_TCP_INFO_BYTES_SENT = 200  # offset of tcpi_bytes_sent in struct tcp_info, linux/tcp.h
_libc = ctypes.CDLL(None, use_errno=True)


class ProcessTrees:
    """The processes below a set of registered roots; every process's parent is read once, when it is first seen."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}
        self._owner: dict[int, int] = {}
        self._roots: frozenset[int] = frozenset()

    def members(self, roots: Collection[int]) -> Mapping[int, int]:
        """Return the root that each living process below `roots` belongs to."""
        alive = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        for gone in self._parent.keys() - alive:
            del self._parent[gone]
            self._owner.pop(gone, None)
        unsettled = alive - self._parent.keys()
        for pid in unsettled:
            self._parent[pid] = _parent(pid)
        if self._roots != frozenset(roots):
            self._roots = frozenset(roots)
            self._owner = {pid: root for pid, root in self._owner.items() if root in self._roots}
            unsettled = alive
        for pid in unsettled:
            root = self._nearest_root(pid)
            if root is not None:
                self._owner[pid] = root
        return self._owner

    def _nearest_root(self, pid: int) -> int | None:
        while pid in self._parent:
            if pid in self._roots:
                return pid
            pid = self._parent[pid]
        return None


def socket_descriptors(pid: int) -> dict[int, int]:
    """Return the sockets that process `pid` holds: a descriptor of it by inode. Empty if it is gone."""
    found: dict[int, int] = {}
    try:
        directory = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return found
    try:
        for name in os.listdir(directory):
            try:
                match = _SOCKET.match(os.readlink(name, dir_fd=directory))
            except FileNotFoundError:  # closed since
                continue
            if match:
                found[int(match[1])] = int(name)
    except ProcessLookupError:  # ended since
        pass
    finally:
        os.close(directory)
    return found


def borrow(pid: int, descriptor: int, inode: int) -> socket.socket | None:
    """Return another process's socket as one of our own, None if it is gone.

    Close it at once: it keeps the connection open. Raises `PlatformError` where that is not allowed.
    """
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        ours = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if ours < 0:
        if ctypes.get_errno() == errno.EPERM:
            raise PlatformError(f"the sockets of process {pid} cannot be reached", "run as root, with CAP_SYS_PTRACE")
        return None
    if os.fstat(ours).st_ino != inode:  # the descriptor has been reused
        os.close(ours)
        return None
    return socket.socket(fileno=ours)


def is_tcp(sock: socket.socket) -> bool:
    """Return whether `sock` is a TCP socket."""
    return sock.family in (socket.AF_INET, socket.AF_INET6) and sock.proto == socket.IPPROTO_TCP


@dataclass(frozen=True)
class Mark:
    """A socket's mark. priority: HTB's class on this host. dscp: the class, for the edge switch."""

    priority: int
    dscp: int


UNMARKED = Mark(0, 0)


def mark(sock: socket.socket, wanted: Mark) -> bool:
    """Set a socket's mark and read it back; return whether it had to be changed.

    Raises `PlatformError` where it reads back otherwise than written.
    """
    if _mark_of(sock) == wanted:
        return False
    # The order matters: the kernel derives a priority of its own from the TOS byte. It keeps TCP's ECN bits itself.
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, wanted.dscp << 2)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, wanted.priority)
    if (found := _mark_of(sock)) != wanted:
        raise PlatformError(
            f"the socket at {sock.getsockname()} carries {found} instead of {wanted}", "let no other program set its mark"
        )
    return True


def _mark_of(sock: socket.socket) -> Mark:
    return Mark(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY), sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2)


def bytes_sent(sock: socket.socket) -> int:
    """Return the payload bytes that a TCP socket has sent, retransmissions included."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES_SENT + 8)
    return int(struct.unpack_from("=Q", info, _TCP_INFO_BYTES_SENT)[0]) if len(info) >= _TCP_INFO_BYTES_SENT + 8 else 0


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
