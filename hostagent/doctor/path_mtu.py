"""Which packets reach another host whole: ICMP echo requests that no router may cut (RFC 1191), of ever closer sizes.

A router that passes only less says so; a switch drops without a word. So a size passes when an answer of it arrives, however
late. Most sizes are given little time. The size that a fault would rest on is asked for again, with much: on a busy machine
this process may wait for a processor for longer than an answer takes.
"""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from beamer.doctor.findings import Finding, fault, not_checked, ok
from beamer.errors import PlatformError

LEAST_BYTES = 576  # Every host takes packets of this size (RFC 791).
MOST_BYTES = 65_535
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3  # linux/in.h: do not cut, whatever was learnt of the path
_ECHO, _ECHO_REPLY = 8, 0
_HEADERS_BYTES = 20 + 8  # IPv4 and ICMP
_ICMP = struct.Struct("!BBHHH")
_TRIES, _SURE_TRIES = 2, 3
_FIRST_PATIENCE_S, _LEAST_PATIENCE_S = 1.0, 0.15
_SURE_PATIENCE_S = 2.0  # Ten times what processes on busy cores were seen to wait.
_ROUND_TRIPS = 5


@dataclass(frozen=True)
class PathMtu:
    """What reaches a peer. sends: bytes of the interface's packets. passes: of the largest that arrive, 0: none does."""

    peer: str
    interface: str
    sends: int
    passes: int


def largest(most: int, passes: Callable[[int], bool], least: int = LEAST_BYTES) -> int:
    """Return the largest size from `least` to `most` that passes, 0 if not even the least does. Asks 18 times at most."""
    if not passes(min(least, most)):
        return 0
    if passes(most):
        return most
    low, high = min(least, most), most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low


def settled(most: int, quickly: Callable[[int], bool], surely: Callable[[int], bool]) -> int:
    """Return the largest size that passes, 0 if none does, where a size that does not pass `quickly` may pass `surely`.

    Asks `surely` twice where `quickly` errs nowhere, and 20 times at most.
    """
    least = min(LEAST_BYTES, most)
    if not surely(least):
        return 0
    found = max(least, largest(most, quickly))
    return largest(most, surely, found + 1) if found < most and surely(found + 1) else found


def measure(peer: str, interface: str, sends: int) -> PathMtu:
    """Return which packets of an interface reach a peer. Raises `PlatformError` where this process may not ask, `OSError`."""
    sock, is_raw = _icmp_socket()
    with closing(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        sock.connect((peer, 0))
        prober, most = EchoProber(sock, is_raw), min(sends, MOST_BYTES)
        return PathMtu(peer, interface, most, settled(most, prober.passes_quickly, prober.passes))


def judge_path(path: PathMtu) -> Iterator[Finding]:
    """Yield whether packets as large as the interface sends them arrive."""
    if not path.passes:
        yield not_checked(f"{path.peer} answers no ICMP echo request; name a host that does with --peer")
    elif path.passes < path.sends:
        text = f"packets of {path.sends} bytes do not pass from {path.interface} to {path.peer}, and those of {path.passes} do"
        raise_it = f"raise the MTU of the ports on the way to {path.sends}"
        lower = f"ip link set {path.interface} mtu {path.passes} on all hosts, and mtu: {path.passes} in the network's file"
        yield fault(text, f"{raise_it}, or: {lower}")
    else:
        yield ok(f"packets of {path.sends} bytes pass from {path.interface} to {path.peer}")


class EchoSocket(Protocol):
    """What is used of a socket of ICMP that is connected to a peer."""

    def settimeout(self, value: float | None, /) -> None:
        """Wait so many seconds, 0: not at all."""

    def send(self, data: bytes, /) -> int:
        """Send a packet without its header of IPv4."""

    def recv(self, size: int, /) -> bytes:
        """Return a packet, with its header of IPv4 where the socket is a raw one."""


class EchoProber:
    """Sends echo requests to one peer. clock: returns seconds."""

    def __init__(self, sock: EchoSocket, is_raw: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._sock, self._is_raw, self._clock = sock, is_raw, clock
        self._token = os.urandom(8)
        self._number = 0
        self._patience_s = _FIRST_PATIENCE_S
        self._arrived = 0  # bytes of the largest packet that was answered

    def passes(self, size: int) -> bool:
        """Return whether a packet of `size` bytes is answered, within some seconds."""
        return any(self._try(size, _SURE_PATIENCE_S) for _ in range(_SURE_TRIES))

    def passes_quickly(self, size: int) -> bool:
        """Return whether a packet of `size` bytes is answered within some of the shortest round trip so far."""
        return any(self._try(size, self._patience_s) for _ in range(_TRIES))

    def _try(self, size: int, patience_s: float) -> bool:
        if self._arrived >= size:
            return True
        began_s = self._clock()
        try:
            self._send(size)
            self._read(size, self._clock() + patience_s)
        except OSError:  # The interface or a router says that it is too large; of which size it says so is not known.
            return False
        if self._arrived < size:
            return False
        self._patience_s = min(self._patience_s, max(_LEAST_PATIENCE_S, _ROUND_TRIPS * (self._clock() - began_s)))
        return True

    def _send(self, size: int) -> None:
        self._number += 1
        content = self._token.ljust(size - _HEADERS_BYTES, b"\0")
        head = _ICMP.pack(_ECHO, 0, 0, os.getpid() & 0xFFFF, self._number)
        self._sock.settimeout(_SURE_PATIENCE_S)
        self._sock.send(_ICMP.pack(_ECHO, 0, _checksum(head + content), os.getpid() & 0xFFFF, self._number) + content)

    def _read(self, size: int, until_s: float) -> None:
        """Take in answers until one is as large as `size` or the time is over; then those that have arrived already."""
        while self._arrived < size:
            self._sock.settimeout(max(0.0, until_s - self._clock()))
            try:
                data = self._sock.recv(MOST_BYTES)
            except (TimeoutError, BlockingIOError):
                return
            at = 4 * (data[0] & 0x0F) if self._is_raw else 0
            if len(data) < at + _ICMP.size + len(self._token):
                continue
            kind, *_ = _ICMP.unpack_from(data, at)
            if kind == _ECHO_REPLY and data[at + _ICMP.size :].startswith(self._token):
                self._arrived = max(self._arrived, _HEADERS_BYTES - _ICMP.size + len(data) - at)


def _icmp_socket() -> tuple[socket.socket, bool]:
    """Return a socket of ICMP, and whether it is a raw one: unprivileged ones are allowed to groups by a setting (icmp(7))."""
    try:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP), False
    except PermissionError:
        try:
            return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), True
        except PermissionError as error:
            missing = "this user may send no ICMP echo requests"
            raise PlatformError(missing, "run it as root, or widen net.ipv4.ping_group_range") from error


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total
