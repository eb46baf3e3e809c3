"""What an interface is made of, from the kernel's list of links: members of a bond or a bridge, the parent of a VLAN
interface or a macvlan, the tag.

Attributes and values are those of linux/if_link.h and linux/if_bonding.h (rtnetlink(7)). Tests read recorded messages: it has
not been tried on a kernel with bonds and VLANs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from beamer.network.interface_fitness import ACTIVE_BACKUP, BOND, BRIDGE, ON_ANOTHER, TEAM, VLAN
from beamer.network.protocol import MAX_MEMBERS, InterfaceMember

_MODES = ("balance-rr", ACTIVE_BACKUP, "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb")
"""By the numbers of linux/if_bonding.h."""
_CARRYING = 0  # BOND_STATE_ACTIVE of linux/if_bonding.h
_PROTOCOLS = {0x8100: "802.1Q", 0x88A8: "802.1ad"}  # ETH_P_8021Q, ETH_P_8021AD of linux/if_ether.h
_MAC_CHARACTERS = 17


def composition(link: Any, by_index: Mapping[int, Any]) -> dict[str, Any]:
    """Return the fields of an `Interface` that say what it is made of. by_index: the links of its network namespace."""
    info = link.get_attr("IFLA_LINKINFO")
    kind = _attribute(info, "IFLA_INFO_KIND") or ""
    data = _attribute(info, "IFLA_INFO_DATA") if kind in (BOND, VLAN) else None
    if kind == BOND:
        number = _attribute(data, "IFLA_BOND_MODE")
        mode = "" if number is None else _MODES[number] if number < len(_MODES) else f"mode {number}"
        return {"kind": kind, "mode": mode, "members": tuple(_members(link["index"], by_index))[:MAX_MEMBERS]}
    if kind in (BRIDGE, TEAM):
        return {"kind": kind, "members": tuple(_members(link["index"], by_index))[:MAX_MEMBERS]}
    if kind == VLAN:
        tag, protocol = _attribute(data, "IFLA_VLAN_ID"), _attribute(data, "IFLA_VLAN_PROTOCOL")
        said = "" if protocol is None else _PROTOCOLS.get(protocol, f"{protocol:#06x}")
        return {"kind": kind, "vlan_id": tag, "vlan_protocol": said, "parent": _parent(link, by_index)}
    if kind in ON_ANOTHER:
        return {"kind": kind, "parent": _parent(link, by_index)}
    return {"kind": kind}


def _members(of: int, by_index: Mapping[int, Any]) -> Iterator[InterfaceMember]:
    """Yield the links whose master is a link, by its number."""
    for link in by_index.values():
        mac = link.get_attr("IFLA_ADDRESS")
        if link.get_attr("IFLA_MASTER") != of or mac is None or len(mac) != _MAC_CHARACTERS:
            continue
        info = link.get_attr("IFLA_LINKINFO")
        is_of_bond = _attribute(info, "IFLA_INFO_SLAVE_KIND") == BOND
        of_bond = _attribute(info, "IFLA_INFO_SLAVE_DATA") if is_of_bond else None
        state, permanent = _attribute(of_bond, "IFLA_BOND_SLAVE_STATE"), _attribute(of_bond, "IFLA_BOND_SLAVE_PERM_HWADDR")
        yield InterfaceMember(
            name=link.get_attr("IFLA_IFNAME"),
            mac=mac.lower(),
            permanent_mac=(permanent or link.get_attr("IFLA_PERM_ADDRESS") or "").lower() or None,
            carries=state in (None, _CARRYING),
        )


def _attribute(of: Any, name: str) -> Any:
    """Return an attribute within another one, None where the kernel gives either of them not."""
    return None if of is None else of.get_attr(name)


def _parent(link: Any, by_index: Mapping[int, Any]) -> str | None:
    """Return the name of the link below, None where it is in another network namespace: its number is one there."""
    below = by_index.get(link.get_attr("IFLA_LINK")) if link.get_attr("IFLA_LINK_NETNSID") is None else None
    return None if below is None else str(below.get_attr("IFLA_IFNAME"))
