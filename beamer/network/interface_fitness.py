"""Whether an interface can be the one by which a host is in a network: bonds and VLAN interfaces mostly cannot.

A host has one port of a switch. Rules match that port, and queues of switch ports go by the codepoints of untagged packets:
`tests/netns/test_tagged_packets.py` shows it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from beamer.network.protocol import Interface

BOND, TEAM, BRIDGE, VLAN = "bond", "team", "bridge", "vlan"
"""Kinds of interfaces, as the kernel names them."""
ON_ANOTHER = (VLAN, "macvlan", "macvtap", "ipvlan", "ipvtap")
"""Kinds of interfaces whose packets pass by one other interface, their parent."""
ACTIVE_BACKUP = "active-backup"
"""The mode of a bond in which one member at most carries packets."""
_BONDS = (BOND, TEAM)  # A team's mode is in the memory of its daemon, teamd(8), and not in the kernel's list.
_TAGGED = (
    "switches forward its packets with their tag, which hosts outside the VLAN drop, and the queues that agents make at switch"
    " ports give them no class"
)
_ELSEWHERE = "an interface of another network namespace"
_UNTAGGED = "give the address to the interface below it, and have the switch's port take its packets untagged"


@dataclass(frozen=True)
class InterfaceFault:
    """Why an interface is not a host's in a network, and what to do instead."""

    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}: {self.remedy}"


def description(interface: Interface) -> str:
    """Return an interface's name, and what it is made of."""
    members = ", ".join(one.name for one in interface.members) or "no interface"
    if interface.kind in _BONDS:
        return f"{interface.name}, a {interface.kind} ({interface.mode or 'of unknown mode'}) of {members}"
    if interface.kind == BRIDGE:
        return f"{interface.name}, a bridge of {members}"
    if interface.kind == VLAN:
        tag = f"{interface.vlan_protocol or 'of unknown protocol'}, id {interface.vlan_id}"
        return f"{interface.name}, a VLAN interface ({tag}) on {interface.parent or _ELSEWHERE}"
    if interface.kind in ON_ANOTHER:
        return f"{interface.name}, a {interface.kind} on {interface.parent or _ELSEWHERE}"
    return interface.name


def unfitness(interface: Interface, machine: Iterable[Interface]) -> InterfaceFault | None:
    """Return why no host can be in a network by an interface, None where one can.

    machine: the interfaces among which are those that it is made of.
    """
    for one in made_of(interface, machine):
        above = "" if one.name == interface.name else f"{description(interface)}: "
        if one.kind == VLAN:
            return InterfaceFault(f"{above}{description(one)}: {_TAGGED}", _UNTAGGED)
        if one.kind in _BONDS and (fault := _fault_of_bond(one)) is not None:
            return InterfaceFault(f"{above}{description(one)}: {fault.found}", fault.remedy)
    return None


def dependence(interface: Interface, machine: Iterable[Interface]) -> str | None:
    """Return on which member of a bond a host in the network depends, None for an interface without any."""
    for one in made_of(interface, machine):
        carrying = [member.name for member in one.members if member.carries]
        waiting = [member.name for member in one.members if not member.carries]
        if one.kind in _BONDS and len(carrying) == 1 and waiting:
            where = f"where {' or '.join(waiting)} takes over"
            cut_off = f"{where}, the host is cut off until the network's file names that port"
            return f"{description(one)}: the port of {carrying[0]} is used; {cut_off}"
    return None


def misnaming(name: str, machine: Iterable[Interface], addresses: Iterable[str]) -> InterfaceFault | None:
    """Return which interface is meant where one is named that another is made of, None where it is the right one.

    addresses: of hosts. A member of a bond has no packets of its own; what a VLAN interface is on may have some.
    """
    known = tuple(machine)
    if (bond := bond_of(name, known)) is not None:
        return InterfaceFault(f"{name} is a member of {description(bond)}", f"name {bond.name} in the network's file")
    hosts = frozenset(addresses)
    own = next((one for one in known if one.name == name), None)
    if own is None or not hosts.isdisjoint(own.addresses):
        return None
    for one in known:
        if one.kind == VLAN and one.parent == name and (its := sorted(hosts & set(one.addresses))):
            found = f"{name} has no address of the network, and {description(one)}, has {', '.join(its)}"
            return InterfaceFault(found, _UNTAGGED)
    return None


def bond_of(name: str, machine: Iterable[Interface]) -> Interface | None:
    """Return the bond or the team that an interface is a member of."""
    return next((one for one in machine if one.kind in _BONDS and any(member.name == name for member in one.members)), None)


def made_of(interface: Interface, machine: Iterable[Interface]) -> Iterator[Interface]:
    """Yield an interface and all that it is made of, as far as the machine's list has them, each once."""
    named = {one.name: one for one in machine} | {interface.name: interface}
    left, met = [interface.name], set[str]()
    while left:
        name = left.pop(0)
        if name in met or name not in named:
            continue
        met.add(name)
        yield named[name]
        left += (member.name for member in named[name].members)
        if (parent := named[name].parent) is not None:
            left.append(parent)


def _fault_of_bond(bond: Interface) -> InterfaceFault | None:
    """Return why a bond's packets need not all pass by one cable, None where they do."""
    if len(bond.members) == 1:
        return None
    if not bond.members:
        return InterfaceFault("it has no member, so no packet leaves by it", "add one, or give the address to a card")
    if bond.mode != ACTIVE_BACKUP:
        found = "each member may carry packets, and a host has one port: packets by the others would have no class"
        return InterfaceFault(found, f"set its mode to {ACTIVE_BACKUP}, or give the address to one of its members")
    if (carrying := sum(member.carries for member in bond.members)) != 1:
        return InterfaceFault(f"one member has to carry packets, and {carrying} do", "see that one has a link and is active")
    return None
