"""Interfaces whose queues an agent is to make: their root queueing discipline, their MTU and what is left to the card."""

import ctypes
import fcntl
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field

from beamer.doctor.findings import Finding, fault, ok, warning
from beamer.errors import InputError
from hostagent.interfaces import interfaces
from hostagent.queues.htb import Queues

DEFAULT, AGENTS = "the kernel's default", "an agent's HTB tree"
LEAST_TX_QUEUE = 100
"""Packets that a queue should hold at least. HTB's classes hold as many as the interface's queue (net/sched/sch_htb.c)."""
_SIOCETHTOOL, _SIOCGIFTXQLEN = 0x8946, 0x8942  # linux/sockios.h
_GET_DRIVER, _GET_FLAGS = 0x03, 0x25  # linux/ethtool.h
_FEATURES = {"tx": 0x16, "gro": 0x2B}  # ETHTOOL_GTXCSUM, ETHTOOL_GGRO
_LRO = 1 << 15  # ETH_FLAG_LRO
_VIRTUAL = ("veth", "tun")
_NAME = struct.Struct("16sP8x")  # struct ifreq with a pointer
_LENGTH = struct.Struct("16si20x")  # struct ifreq with a number
_DRIVER_BYTES, _VALUE_BYTES = 196, 8  # struct ethtool_drvinfo, struct ethtool_value
_NAME_BYTES = 32


@dataclass(frozen=True)
class InterfaceFacts:
    """An interface. root: `DEFAULT`, `AGENTS`, or the discipline that another program has put there; empty: it is absent.

    mtu: bytes without the Ethernet header. tx_queue: packets that it may hold. driver: of its card. left_to_card: of `tx`,
    `gro` and `lro`, those that are on.
    """

    name: str
    root: str = DEFAULT
    mtu: int = 0
    tx_queue: int = LEAST_TX_QUEUE
    driver: str = ""
    left_to_card: frozenset[str] = field(default=frozenset())


def read_interfaces(names: Iterable[str]) -> tuple[InterfaceFacts, ...]:
    """Return what is known of these interfaces. Raises `PlatformError` where the kernel refuses to tell."""
    with closing(Queues()) as queues, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return tuple(_read(name, queues, asking) for name in dict.fromkeys(names))


def interfaces_with(addresses: Collection[str]) -> tuple[str, ...]:
    """Return the Ethernet interfaces that have one of these addresses."""
    return tuple(one.name for one in interfaces() if not set(one.addresses).isdisjoint(addresses))


def judge_roots(found: Iterable[InterfaceFacts]) -> Iterator[Finding]:
    """Yield whether the agent can make its queues at each interface."""
    for one in found:
        if not one.root:
            fix = "name it as `ip link` shows it, in the network's file as well, or run this command in its network namespace"
            yield fault(f"there is no interface {one.name} in this network namespace", fix)
        elif one.root in (DEFAULT, AGENTS):
            yield ok(f"{one.name} has {one.root}")
        else:
            fix = f"tc qdisc del dev {one.name} root, and keep what has made it from making it again"
            yield fault(f"{one.name} has a root queueing discipline of another program ({one.root})", fix)


def judge_host_offloads(found: Iterable[InterfaceFacts]) -> Iterator[Finding]:
    """Yield where packets leave a host without their checksums, as no card computes them."""
    for one in (one for one in found if one.root):
        if "tx" not in one.left_to_card:
            yield ok(f"transmit checksum offload is off at {one.name}: the kernel computes checksums")
        elif one.driver in _VIRTUAL:
            text = (
                f"transmit checksum offload is on at {one.name}, and no card computes checksums for its driver {one.driver}:"
                " TCP stalls across Open vSwitch's userspace datapath, which forwards packets with wrong checksums"
            )
            yield warning(text, f"ethtool -K {one.name} tx off, where Open vSwitch's userspace datapath is behind it")
        else:
            yield ok(f"transmit checksum offload is on at {one.name}: its card computes checksums")


def judge_port_offloads(found: Iterable[InterfaceFacts]) -> Iterator[Finding]:
    """Yield where the card of a userspace datapath's port joins packets to larger ones than it forwards."""
    for one in (one for one in found if one.root):
        if joined := sorted(one.left_to_card & {"gro", "lro"}):
            off = " ".join(f"{name} off" for name in joined)
            text = f"{one.name} joins received packets ({', '.join(joined)}) to larger ones, which the userspace datapath drops"
            yield warning(text, f"ethtool -K {one.name} {off}")
        else:
            yield ok(f"{one.name} hands on packets as they arrive")


def judge_lengths(found: Iterable[InterfaceFacts]) -> Iterator[Finding]:
    """Yield whether queues can hold packets: their length is that of the interface."""
    for one in (one for one in found if one.root):
        fix = f"ip link set {one.name} txqueuelen 1000, then start the agent again"
        if not one.tx_queue:
            yield fault(f"{one.name} has a txqueuelen of 0: each queue holds a single packet", fix)
        elif one.tx_queue < LEAST_TX_QUEUE:
            yield warning(f"{one.name} has a txqueuelen of {one.tx_queue}: queues drop packets early", fix)
        else:
            yield ok(f"{one.name} has queues of {one.tx_queue} packets")


def judge_equal_mtu(found: Iterable[InterfaceFacts]) -> Iterator[Finding]:
    """Yield where the ports of one switch differ in the packets that they carry."""
    present = [one for one in found if one.root]
    by_mtu = {mtu: [one.name for one in present if one.mtu == mtu] for mtu in sorted({one.mtu for one in present})}
    if len(by_mtu) > 1:
        least, most = min(by_mtu), max(by_mtu)
        small = by_mtu[least]
        text = (
            f"{', '.join(small)} carry packets of {least} bytes, {', '.join(by_mtu[most])} of {most}: the larger ones are lost"
        )
        yield fault(text, "; ".join(f"ip link set {name} mtu {most}" for name in small))
    elif by_mtu:
        yield ok(f"all ports carry packets of {min(by_mtu)} bytes")


def _read(name: str, queues: Queues, asking: socket.socket) -> InterfaceFacts:
    try:
        queues.index(name)
    except InputError:
        return InterfaceFacts(name, "")
    try:
        root = DEFAULT if queues.observe(name) is None else AGENTS
    except InputError as error:
        root = str(error.value)
    return InterfaceFacts(
        name, root, queues.mtu(name), _tx_queue(asking, name), _driver(asking, name), _left_to_card(asking, name)
    )


def _tx_queue(asking: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(asking, _SIOCGIFTXQLEN, _LENGTH.pack(name.encode(), 0))
    return int(_LENGTH.unpack(answer)[1])


def _driver(asking: socket.socket, name: str) -> str:
    with suppress(OSError):
        return _ethtool(asking, name, _GET_DRIVER, _DRIVER_BYTES)[4 : 4 + _NAME_BYTES].split(b"\0")[0].decode()
    return ""


def _left_to_card(asking: socket.socket, name: str) -> frozenset[str]:
    found = set()
    for feature, command in _FEATURES.items():
        with suppress(OSError):  # A card that cannot do it says so.
            if _value(_ethtool(asking, name, command, _VALUE_BYTES)):
                found.add(feature)
    with suppress(OSError):
        if _value(_ethtool(asking, name, _GET_FLAGS, _VALUE_BYTES)) & _LRO:
            found.add("lro")
    return frozenset(found)


def _value(answer: bytes) -> int:
    return int.from_bytes(answer[4:8], "little" if struct.pack("=H", 1)[0] else "big")


def _ethtool(asking: socket.socket, name: str, command: int, size: int) -> bytes:
    """Return the kernel's answer to a request of ethtool(8)."""
    content = ctypes.create_string_buffer(struct.pack("=I", command).ljust(size, b"\0"), size)
    fcntl.ioctl(asking, _SIOCETHTOOL, _NAME.pack(name.encode(), ctypes.addressof(content)))
    return content.raw
