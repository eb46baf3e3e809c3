"""Which host of the fabric a trainer means: it may know a machine by another name than the fabric, or by its address."""

from collections.abc import Collection

from beamer.errors import InputError, hint
from beamer.network.addresses import canonical
from beamer.network.fabric import Fabric


class HostNames:
    """The fabric's hosts by their names and the addresses of their data interfaces."""

    def __init__(self, fabric: Fabric) -> None:
        self._names = frozenset(host.name for host in fabric.hosts)
        self._by_address = {address: fabric.hosts[position].name for address, position in fabric.position_at.items()}

    def find(self, name: str, own_names: Collection[str], own_addresses: Collection[str], field: str) -> str:
        """Return the fabric's name of a host; what nothing is known of is left as it is, for the fabric to refuse.

        name: as the fabric has it, an address of it there, or a name whose first part it is, as in `gpu7.example.org`.
        own_names, own_addresses: of the machine that asks. Raises `InputError` for its own name where none of its addresses,
        or several, are a host's.
        """
        if name in self._names:
            return name
        if found := self._by_address.get(canonical(name)):
            return found
        first = name.partition(".")[0]
        if first in self._names and not name.replace(".", "").isdigit():
            return first
        if name in own_names:
            meant = {self._by_address[address] for address in own_addresses if address in self._by_address}
            if len(meant) == 1:
                return meant.pop()
            which = "the one of its hosts that this machine is" if meant else "a host of the fabric; this machine is none"
            shown = ", ".join(sorted(own_addresses)) or "none that is known"
            raise InputError(field, name, f"{which}, by its addresses ({shown}){hint(name, self._names)}")
        return name
