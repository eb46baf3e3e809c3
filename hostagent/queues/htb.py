"""The kernel's side of a port's tree: read it, change it, read it back, all through pyroute2, and read its counters."""

import errno
import math
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyroute2.iproute import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT

from beamer.errors import BeamerError, InputError, PlatformError
from hostagent.capabilities import NET_ADMIN, SEE_DOCS
from hostagent.queues.class_counts import ClassCount, ClassCounts
from hostagent.queues.tree import ROOT, Change, DscpFilter, HtbClass, Root, Tree, difference

_ETH_P_IP, _ETH_P_IPV6 = 0x0800, 0x86DD
_TICKS_PER_US = 15.625  # the kernel's packet scheduler counts in 64 ns (PSCHED_SHIFT)
# In the first word of a header, the DSCP: of IPv4 in its second byte, of IPv6 behind the version's four bits. Keys are words.
_DSCP_MASK, _DSCP_SHIFT = 0xFC, 2
_TOS_OFFSET = 1
_IPV6_MASK, _IPV6_SHIFT = 0x0FC00000, 22
# pyroute2 0.9 decodes a u32 key from 4 bytes too early, so the key is read from the message itself: mask and value in
# network order, then the offset in the machine's.
_KEY_AT = 4 + 16  # The key comes behind the attribute's header and the selector's own fields.
_LOOPBACK = 1  # the index of `lo`, which every network namespace has
_UNUSED = 0xFFFE0000  # No discipline has this handle.
_NO_VERSION = 0  # HTB's interface does not have this version, but 3.
_MODULES = {"sch_htb": "HTB queueing discipline", "cls_u32": "u32 classifier"}


class Queues:
    """The queues of this network namespace's interfaces. Belongs to the thread that made it; close it there."""

    def __init__(self) -> None:
        self._ip = IPRoute()
        self._counts: ClassCounts | None = None  # It is made when counters are read first.

    def close(self) -> None:
        """Release the netlink sockets."""
        if self._counts is not None:
            self._counts.close()
        self._ip.close()

    def check(self) -> None:
        """Raise `PlatformError` if queues cannot be managed here: not allowed, or no HTB in the kernel.

        The kernel is asked for an HTB of a version that does not exist. It refuses that before it changes anything, but first
        checks that asking is allowed and that there is HTB (net/sched/sch_api.c, `qdisc_create`; sch_htb.c, `htb_init`).

        The u32 classifier, which ports classified by DSCP need, cannot be asked for without a tree to put it in: where it is
        missing, the first such port's assignment is answered with that.
        """
        try:
            self._ip.tc("replace", "htb", _LOOPBACK, _UNUSED, version=_NO_VERSION)
        except NetlinkError as error:
            if error.code != errno.EINVAL:
                raise _refusal("lo", "sch_htb", error) from error

    def index(self, interface: str) -> int:
        """Return the number that the kernel gave an interface when it was made. Raises `InputError` for an unknown one."""
        try:
            return socket.if_nametoindex(interface)
        except OSError as error:
            raise _unknown(interface) from error

    def mtu(self, interface: str) -> int:
        """Return the most bytes of a packet on an interface, without its Ethernet header. Raises `InputError` as `index`."""
        with _naming(interface):
            (link,) = self._ip.get_links(self.index(interface))
            return int(link.get_attr("IFLA_MTU"))

    def observe(self, interface: str) -> Tree | None:
        """Return the HTB tree at the root of `interface`, None for the kernel's default.

        Raises `InputError` for an unknown interface or a root that is neither.
        """
        index = self.index(interface)
        with _naming(interface):
            root = next((q for q in self._ip.get_qdiscs(index=index) if q["parent"] == TC_H_ROOT), None)
            if root is None or root["handle"] == 0:
                return None
            kind = root.get_attr("TCA_KIND")
            if kind != "htb" or root["handle"] != ROOT:
                name = f"{kind} {root['handle'] >> 16:x}:"
                raise InputError(f"ports[{interface}]", name, "an interface with the kernel's default queueing discipline")
            default = root.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_INIT")["defcls"]
            classes = [_class(message) for message in self._ip.get_classes(index=index)]
            found = [_filter(message) for message in self._ip.get_filters(index=index, parent=ROOT)]
        return Tree({c.id: c for c in classes}, {f.prio: f for f in found if f is not None}, default)

    def reconcile(self, interface: str, desired: Tree | None) -> int:
        """Give `interface` the tree `desired` (None: the default), read it back, and return how many objects were changed.

        Raises `PlatformError` for a discipline that the kernel lacks, or where the tree reads back otherwise than written.
        """
        changes = difference(self.observe(interface), desired)
        if not changes:
            return 0
        index = self.index(interface)
        for change in changes:
            with _naming(interface, "cls_u32" if isinstance(change.what, DscpFilter) else "sch_htb"):
                self._apply(index, change)
        left = difference(self.observe(interface), desired)
        if left:
            raise PlatformError(f"{interface}: {left[0].what} did not take effect", "let no other program manage its queues")
        return len(changes)

    def counts(self, interface: str) -> dict[int, ClassCount]:
        """Return the counters of every class on `interface` by class id, in one request."""
        index = self.index(interface)
        try:
            self._counts = self._counts or ClassCounts()
            return self._counts.read(index)
        except OSError as error:
            raise _refusal(interface, "sch_htb", error) from error

    def _apply(self, index: int, change: Change) -> None:
        what = change.what
        match what:
            case Root():
                if change.verb == "del":
                    self._ip.tc("del", index=index, root=True)
                else:
                    self._ip.tc("add", "htb", index, ROOT, default=what.default)
            case HtbClass():
                if change.verb == "del":
                    self._ip.tc("del-class", index=index, handle=what.id)
                else:
                    self._ip.tc(
                        f"{change.verb}-class",
                        "htb",
                        index,
                        what.id,
                        parent=what.parent,
                        prio=what.prio,
                        rate=what.rate,
                        ceil=what.ceil,
                        burst=_bytes(what.rate, what.burst_us),
                        cburst=_bytes(what.ceil, what.cburst_us),
                        quantum=what.quantum,
                    )
            case DscpFilter():
                key = f"{what.dscp << _DSCP_SHIFT:#04x}/{_DSCP_MASK:#04x}+{_TOS_OFFSET}"
                if what.ipv6:
                    key = f"{what.dscp << _IPV6_SHIFT:#010x}/{_IPV6_MASK:#010x}+0"
                place = {"parent": ROOT, "prio": what.prio, "protocol": _ETH_P_IPV6 if what.ipv6 else _ETH_P_IP}
                self._ip.tc(f"{change.verb}-filter", "u32", index, target=what.target, keys=[key], **place)


def _bytes(rate: int, burst_us: int) -> float:
    """Return the burst in bytes that pyroute2 turns into exactly `burst_us`; it rounds down."""
    return rate * (burst_us + 0.5) / 1_000_000


def _class(message: Any) -> HtbClass:
    options = message.get_attr("TCA_OPTIONS")
    parms = options.get_attr("TCA_HTB_PARMS")
    return HtbClass(
        id=message["handle"],
        parent=ROOT if message["parent"] == TC_H_ROOT else message["parent"],
        prio=parms["prio"],
        rate=options.get_attr("TCA_HTB_RATE64") or parms["rate"],
        ceil=options.get_attr("TCA_HTB_CEIL64") or parms["ceil"],
        burst_us=math.ceil(parms["buffer"] / _TICKS_PER_US),
        cburst_us=math.ceil(parms["cbuffer"] / _TICKS_PER_US),
        quantum=parms["quantum"],
    )


def _filter(message: Any) -> DscpFilter | None:
    """Return the filter that `message` describes; None for the hash table that the kernel lists before it."""
    options = message.get_attr("TCA_OPTIONS")
    selector = options.get_attr("TCA_U32_SEL") if options is not None else None
    if selector is None:
        return None
    mask, value = struct.unpack_from(">II", selector.data, selector.offset + _KEY_AT)
    (offset,) = struct.unpack_from("=i", selector.data, selector.offset + _KEY_AT + 8)
    ipv6 = message["info"] & 0xFFFF == socket.htons(_ETH_P_IPV6)
    expected = (0, _IPV6_MASK) if ipv6 else (_TOS_OFFSET, _DSCP_MASK << 24)
    exact = selector["nkeys"] == 1 and (offset, mask) == expected
    dscp = value >> (_IPV6_SHIFT if ipv6 else 24 + _DSCP_SHIFT) if exact else -1
    return DscpFilter(message["info"] >> 16, dscp, options.get_attr("TCA_U32_CLASSID"), ipv6)


@contextmanager
def _naming(interface: str, module: str = "sch_htb") -> Iterator[None]:
    """Turn the kernel's error numbers into what is missing. module: of the kernel, with what is asked for."""
    try:
        yield
    except NetlinkError as error:
        raise _refusal(interface, module, error) from error


def _refusal(interface: str, module: str, error: NetlinkError | OSError) -> BeamerError:
    match error.code if isinstance(error, NetlinkError) else error.errno:
        case errno.ENODEV:
            return _unknown(interface)
        case errno.ENOENT | errno.EOPNOTSUPP:
            return PlatformError(f"{interface}: the kernel has no {_MODULES[module]} ({error})", f"load {module}")
        case errno.EPERM | errno.EACCES:
            missing = f"{interface}: not allowed to manage queues: no {NET_ADMIN} in this network namespace"
            return PlatformError(missing, f"run as root, or give it {NET_ADMIN}; {SEE_DOCS}")
        case _:
            return PlatformError(f"{interface}: the kernel refused ({error})", "see the kernel's log")


def _unknown(interface: str) -> InputError:
    return InputError("ports.interface", interface, "an interface of this network namespace")
