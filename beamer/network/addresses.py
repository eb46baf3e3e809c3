"""Addresses of hosts as text: IPv4, or IPv6 as RFC 5952 writes it, which is how kernels and switches report them."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

MAX_HOST_ADDRESSES = 64
"""How many addresses a host may have beside its first one."""

_EMBEDDED = 96  # In IPv6 addresses whose first so many bits are 0, the last ones are an IPv4 address (RFC 4291, section 2.5.5).


def is_ipv6(address: str) -> bool:
    """Return whether an address is one of IPv6."""
    return ":" in address


def canonical(text: Any) -> Any:
    """Return an address as RFC 5952 writes it; what is none stays as it is, to be refused by its name."""
    if not isinstance(text, str):
        return text
    try:
        return str(ip_address(text))
    except ValueError:
        return text


def is_canonical(text: str) -> bool:
    """Return whether a text is an address, in the one form that equal addresses have, without a zone."""
    try:
        return str(ip_address(text)) == text and "%" not in text
    except ValueError:
        return False


def is_of_one_interface(text: str) -> bool:
    """Return whether others reach an interface by an address: no group, no loopback, nothing that is reserved.

    Nor is an IPv4 address such an address in IPv6 form: sockets report it as IPv4.
    """
    address = ip_address(text)
    odd = address.is_multicast or address.is_loopback or address.is_unspecified or address.is_reserved
    return not (odd or (isinstance(address, IPv6Address) and (address.ipv4_mapped or int(address) >> (128 - _EMBEDDED) == 0)))


def is_of_one_link(text: str) -> bool:
    """Return whether a text is an address that holds on one link alone."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        return False
    return address.is_link_local
