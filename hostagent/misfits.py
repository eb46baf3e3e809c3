"""Interfaces that an agent is assigned and that do not carry the network's packets as they should: it names them."""

from collections.abc import Callable, Iterable, Mapping

from beamer.errors import PlatformError
from beamer.network.interface_fitness import InterfaceFault, bond_of, misnaming, unfitness
from beamer.network.protocol import Interface, Port
from beamer.units import ETHERNET_HEADER
from hostagent.interfaces import interfaces


class InterfaceMisfits:
    """Why interfaces do not fit the network. mtu: of an interface, in bytes. Belongs to one thread.

    members: the interfaces that are assigned and belong to bonds, on which no queues are made.
    """

    def __init__(self, mtu: Callable[[str], int]) -> None:
        self.members: frozenset[str] = frozenset()
        self._mtu = mtu
        self._ports: Mapping[str, Port] = {}
        self._addresses: tuple[str, ...] = ()
        self._of_size: dict[str, str] = {}
        self._of_composition: dict[str, str] = {}

    @property
    def found(self) -> Mapping[str, str]:
        """Why interfaces do not fit, by name."""
        both = sorted(self._of_size.keys() | self._of_composition.keys())
        reasons = {name: (self._of_composition.get(name), self._of_size.get(name)) for name in both}
        return {name: "; ".join(filter(None, why)) for name, why in reasons.items()}

    def assign(self, ports: Iterable[Port], addresses: tuple[str, ...]) -> None:
        """Take in what is assigned. addresses: of hosts. What interfaces are made of is read again where that may matter."""
        by_name = {port.interface: port for port in ports}
        is_new = (by_name, addresses) != (self._ports, self._addresses)
        self._ports, self._addresses = by_name, addresses
        self._of_size = {name: why for name, why in self._of_size.items() if name in by_name}
        if is_new or self._of_composition:
            self.check_composition()

    def check_size(self, interface: str) -> None:
        """Note where a host sends larger packets than the network carries, or a switch's port carries none so large."""
        self._of_size.pop(interface, None)
        if (port := self._ports.get(interface)) is None:
            return
        mtu, of_network = self._mtu(interface), port.frame_bytes - ETHERNET_HEADER
        mend = f"ip link set {interface} mtu {of_network}, or change mtu in the network's file"
        if port.classify == "mark" and mtu > of_network:
            self._of_size[interface] = f"{interface} sends packets of {mtu} bytes, and the network carries {of_network}: {mend}"
        elif port.classify == "dscp" and mtu < of_network:
            text = f"{interface} carries packets of {mtu} bytes, and the network's have {of_network}: {mend}"
            self._of_size[interface] = text

    def check_composition(self) -> None:
        """Note the interfaces of hosts that are made of others, or that others are made of, so that they are not a host's."""
        names = [port.interface for port in self._ports.values() if port.classify == "mark"]
        try:
            machine = interfaces() if names else ()
        except PlatformError:  # The agent's hello says so. What was found before stands: a member of a bond is one still.
            return
        named = {one.name: one for one in machine}
        found = {name: self._why_not(name, named.get(name), machine) for name in names}
        self._of_composition = {name: str(why) for name, why in found.items() if why is not None}
        self.members = frozenset(name for name in names if bond_of(name, machine) is not None)

    def _why_not(self, name: str, interface: Interface | None, machine: tuple[Interface, ...]) -> InterfaceFault | None:
        if (meant := misnaming(name, machine, self._addresses)) is not None or interface is None:
            return meant
        return unfitness(interface, machine)
