"""Which packets reach another host whole: ICMP echo requests that no router may cut (RFC 1191), of ever closer sizes.

A router that passes only less says so; a switch drops without a word. So a size counts as passing when its answer arrives.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from beamer.doctor.findings import Finding, fault, not_checked, ok
from beamer.errors import PlatformError

LEAST_BYTES = 576  # Every host takes packets of this size (RFC 791).
MOST_BYTES = 65_535
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3  # linux/in.h: do not cut, whatever was learnt of the path
_ECHO, _ECHO_REPLY = 8, 0
_HEADERS_BYTES = 20 + 8  # IPv4 and ICMP
_ICMP = struct.Struct("!BBHHH")
_TRIES = 2
_FIRST_PATIENCE_S, _LEAST_PATIENCE_S = 1.0, 0.15
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


def measure(peer: str, interface: str, sends: int) -> PathMtu:
    """Return which packets of an interface reach a peer. Raises `PlatformError` where this process may not ask, `OSError`."""
    with closing(_Prober(peer, interface)) as prober:
        most = min(sends, MOST_BYTES)
        return PathMtu(peer, interface, most, largest(most, prober.passes))


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


class _Prober:
    """Sends echo requests to one peer. Raises `PlatformError` where this process may not."""

    def __init__(self, peer: str, interface: str) -> None:
        self._sock, self._is_raw = _icmp_socket()
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
            self._sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
            self._sock.connect((peer, 0))
        except BaseException:
            self._sock.close()
            raise
        self._token = os.urandom(8)
        self._number = 0
        self._patience_s = _FIRST_PATIENCE_S

    def close(self) -> None:
        self._sock.close()

    def passes(self, size: int) -> bool:
        """Return whether a packet of `size` bytes is answered."""
        for _ in range(_TRIES):
            began_s = time.monotonic()
            try:
                self._send(size)
                arrived = self._answered(began_s + self._patience_s)
            except OSError as error:
                if error.errno == errno.EMSGSIZE:  # The interface, or a router on the way, says that it is too large.
                    return False
                arrived = False
            if arrived:
                took_s = time.monotonic() - began_s
                self._patience_s = min(self._patience_s, max(_LEAST_PATIENCE_S, _ROUND_TRIPS * took_s))
                return True
        return False

    def _send(self, size: int) -> None:
        self._number += 1
        content = self._token.ljust(size - _HEADERS_BYTES, b"\0")
        head = _ICMP.pack(_ECHO, 0, 0, os.getpid() & 0xFFFF, self._number)
        self._sock.send(_ICMP.pack(_ECHO, 0, _checksum(head + content), os.getpid() & 0xFFFF, self._number) + content)

    def _answered(self, until_s: float) -> bool:
        while (left_s := until_s - time.monotonic()) > 0:
            self._sock.settimeout(left_s)
            try:
                data = self._sock.recv(MOST_BYTES)
            except TimeoutError:
                return False
            at = 4 * (data[0] & 0x0F) if self._is_raw else 0
            if len(data) < at + _ICMP.size + len(self._token):
                continue
            kind, _, _, _, number = _ICMP.unpack_from(data, at)
            own = data[at + _ICMP.size :].startswith(self._token)
            if kind == _ECHO_REPLY and number == self._number and own:
                return True
        return False


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
