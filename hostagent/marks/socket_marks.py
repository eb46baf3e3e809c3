"""The sockets that another process holds: which they are, one of them borrowed, its mark set from outside."""

import ctypes
import errno
import os
import re
import socket
from dataclasses import dataclass

from beamer.errors import PlatformError
from beamer.network.codepoints import ANY_PROFILES
from hostagent.capabilities import DAC_READ_SEARCH, SEE_DOCS, SYS_PTRACE
from hostagent.marks import timeouts
from hostagent.queues.tree import is_managed
from hostagent.workers.procfs import Procfs

_PIDFD_GETFD = 438
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_IPV4_IN_IPV6 = "::ffff:"
_PROC = Procfs()
_libc = ctypes.CDLL(None, use_errno=True)


def socket_descriptors(pid: int) -> dict[int, int]:
    """Return the sockets that process `pid` holds: a descriptor of it by inode. Empty if it is gone.

    Raises `PlatformError` where that is not allowed.
    """
    found: dict[int, int] = {}
    try:
        directory = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError as error:
        raise _unreachable(pid, DAC_READ_SEARCH) from error
    except (FileNotFoundError, ProcessLookupError):
        return found
    try:
        for name in os.listdir(directory):
            try:
                match = _SOCKET.match(os.readlink(name, dir_fd=directory))
            except FileNotFoundError:  # The descriptor was closed since.
                continue
            if match:
                found[int(match[1])] = int(name)
    except ProcessLookupError:  # The process has ended since.
        pass
    except PermissionError as error:
        raise _unreachable(pid, SYS_PTRACE) from error
    finally:
        os.close(directory)
    return found


def borrow(pid: int, descriptor: int, inode: int, start: int | None = None) -> socket.socket | None:
    """Return another process's socket as one of our own, None if it is gone.

    start: of the process; of one that started at another time nothing is borrowed. Close the socket soon: it keeps the
    connection open. Raises `PlatformError` where that is not allowed.
    """
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        # This is checked after opening: an earlier process of this id has ended and lends nothing.
        if start is not None and ((status := _PROC.status(pid)) is None or status.start != start):
            return None
        ours = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if ours < 0:
        if ctypes.get_errno() == errno.EPERM:
            raise _unreachable(pid, SYS_PTRACE)
        return None
    if os.fstat(ours).st_ino != inode:  # The number of the descriptor has been reused.
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

    @property
    def is_managed(self) -> bool:
        """Whether agents give it; others are of the connection's program."""
        return self.dscp in ANY_PROFILES and is_managed(self.priority)


UNMARKED = Mark(0, 0)


def mark(sock: socket.socket, wanted: Mark) -> bool:
    """Set a socket's mark and read it back; return whether it had to be changed. While it has one, its time-outs are bounded.

    Raises `PlatformError` where it reads back otherwise than written.
    """
    if mark_of(sock) == wanted:
        return False
    if wanted == UNMARKED:
        timeouts.restore(sock)
    else:
        timeouts.bound(sock)
    # The order matters: the kernel derives a priority of its own from the TOS byte. It keeps TCP's ECN bits itself.
    sock.setsockopt(*_codepoint_option(sock), wanted.dscp << 2)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, wanted.priority)
    if (found := mark_of(sock)) != wanted:
        raise PlatformError(
            f"the socket at {sock.getsockname()} carries {found} instead of {wanted}", "let no other program set its mark"
        )
    return True


def mark_of(sock: socket.socket) -> Mark:
    """Return a socket's mark."""
    return Mark(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY), sock.getsockopt(*_codepoint_option(sock)) >> 2)


def _codepoint_option(sock: socket.socket) -> tuple[int, int]:
    """Return the level and name of the option that a socket's packets have their DSCP of: an IPv6 socket may carry IPv4."""
    if sock.family == socket.AF_INET6 and not sock.getsockname()[0].startswith(_IPV4_IN_IPV6):
        return socket.IPPROTO_IPV6, socket.IPV6_TCLASS
    return socket.IPPROTO_IP, socket.IP_TOS


def _unreachable(pid: int, capability: str) -> PlatformError:
    return PlatformError(f"the sockets of process {pid} cannot be reached", f"give the agent {capability}; {SEE_DOCS}")
