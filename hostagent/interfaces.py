"""The interfaces of this machine, as an agent names them: a network is found by them, see `beamer.network.discovery`."""

import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pyroute2.iproute import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from beamer.errors import PlatformError
from beamer.network.protocol import MAX_ADDRESSES, MAX_INTERFACES, Interface
from hostagent.link_composition import composition

_ETHERNET, _LOOPBACK = 1, 8  # ARPHRD_ETHER of linux/if_arp.h, IFF_LOOPBACK of linux/if.h
_TEMPORARY = 0x01  # IFA_F_TEMPORARY of linux/if_addr.h
_MAC_CHARACTERS = 17
_MOST_ADDRESSES = 4096  # of a machine: so many take 200 kB of a hello, of which a controller takes 1 MiB
_MOST_MEMBERS = 1024  # of bonds and bridges of a machine: so many take 100 kB
_LINK_SCOPE = 253  # RT_SCOPE_LINK of linux/rtnetlink.h: an address that no other network reaches


def interfaces() -> tuple[Interface, ...]:
    """Return the Ethernet interfaces of this network namespace, those with addresses first, as many as a hello takes.

    Raises `PlatformError` where the kernel does not tell, or tells of one that cannot be.
    """
    try:
        with IPRoute() as kernel:
            links, addresses = list(kernel.get_links()), list(kernel.get_addr())
    except (NetlinkError, OSError) as error:
        raise PlatformError(f"the kernel does not list interfaces ({error})", "run the agent where it may read them") from error
    of: dict[int, list[str]] = defaultdict(list)
    for message in addresses:
        if message["scope"] < _LINK_SCOPE and not _is_temporary(message):
            of[message["index"]].append(message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS"))
    try:
        by_index = {link["index"]: link for link in links}
        found = [_interface(link, of[link["index"]], by_index) for link in links if _is_ethernet(link)]
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        what = f"the kernel lists an interface whose {first['loc'][0]} is {first['input']!r}"
        raise PlatformError(what, "remove the interface, or run the agent in a network namespace without it") from error
    return sendable(found)


def sendable(found: Iterable[Interface]) -> tuple[Interface, ...]:
    """Return as many interfaces, addresses and members of them as a hello takes: interfaces with addresses first."""
    addresses, members = _MOST_ADDRESSES, _MOST_MEMBERS
    taken = []
    for one in sorted(found, key=lambda one: not one.addresses)[:MAX_INTERFACES]:
        taken.append(one.model_copy(update={"addresses": one.addresses[:addresses], "members": one.members[:members]}))
        addresses -= len(taken[-1].addresses)
        members -= len(taken[-1].members)
    return tuple(taken)


def _is_temporary(message: Any) -> bool:
    """Say whether the kernel replaces an IPv6 address after a while (RFC 8981); of IPv4 the flag means another thing."""
    flags = message.get_attr("IFA_FLAGS") or message["flags"]
    return message["family"] == socket.AF_INET6 and bool(flags & _TEMPORARY)


def _is_ethernet(link: Any) -> bool:
    mac = link.get_attr("IFLA_ADDRESS")
    return link["ifi_type"] == _ETHERNET and not link["flags"] & _LOOPBACK and mac is not None and len(mac) == _MAC_CHARACTERS


def _interface(link: Any, addresses: list[str], by_index: Mapping[int, Any]) -> Interface:
    return Interface(
        name=link.get_attr("IFLA_IFNAME"),
        mac=link.get_attr("IFLA_ADDRESS").lower(),
        addresses=tuple(addresses[:MAX_ADDRESSES]),
        mtu=link.get_attr("IFLA_MTU"),
        **composition(link, by_index),
    )
