"""A network that is documented in NetBox: its devices, and the cables between their interfaces.

Roles and tags tell hosts from switches, by their slugs; devices that are neither are left out, and so are their cables, cables
that are only planned, and interfaces for management alone. What NetBox has no field of its own for is in custom fields: of a
switch its `datapath_id`, of its interfaces their `openflow_port`, of either kind of device its `agent`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from beamer.errors import InputError, nearest
from beamer.network.addresses import canonical, is_ipv6, is_of_one_link
from beamer.network.fabric_sources.netbox_lists import (
    NetBoxAddress,
    NetBoxCable,
    NetBoxDevice,
    NetBoxExport,
    NetBoxInterface,
    NetBoxTermination,
    read_lists,
)
from beamer.network.fabric_sources.rows import ENDS, HOST, SWITCH, SourceRow, SourceTables

DATAPATH_ID, OPENFLOW_PORT, AGENT = "datapath_id", "openflow_port", "agent"

_INTERFACE = "dcim.interface"
_CONNECTED = "connected"
_KBIT = 1000


def netbox_tables(pages: Mapping[str, Sequence[Any]], hosts: Sequence[str] = (), switches: Sequence[str] = ()) -> SourceTables:
    """Return the network in the decoded pages of each list of `LISTS`.

    hosts, switches: the slugs of roles or tags that such devices have. Raises `InputError` that names the record and the field.
    """
    export = read_lists(pages)
    return _Site(export, _kinds(export.devices, {HOST: ("--hosts", hosts), SWITCH: ("--switches", switches)})).tables()


def _kinds(devices: Mapping[int, NetBoxDevice], chosen: Mapping[str, tuple[str, Sequence[str]]]) -> dict[int, str]:
    """Return whether a device is a host or a switch, by its id; those that are neither are left out."""
    known = frozenset[str]().union(*(device.slugs for device in devices.values()))
    for option, slugs in chosen.values():
        if not slugs:
            raise InputError(option, None, f"the slug of a role or a tag that they have, {nearest('', known)}")
        for slug in slugs:
            if slug not in known:
                raise InputError(option, slug, f"a role or a tag that a device has, {nearest(slug, known)}")
    found = {}
    for device in devices.values():
        kinds = [kind for kind, (_, slugs) in chosen.items() if device.slugs.intersection(slugs)]
        if len(kinds) > 1:
            raise InputError(f"{device.where}: role, tags", sorted(device.slugs), "those of a host or of a switch, not of both")
        if kinds:
            found[device.id] = kinds[0]
    return found


@dataclass(frozen=True)
class _Site:
    """An export, and the kind of each device of it that belongs to the network."""

    export: NetBoxExport
    kinds: Mapping[int, str]

    def tables(self) -> SourceTables:
        links = list(self._links())
        cabled: dict[int, list[NetBoxInterface]] = defaultdict(list)
        for _, ends in links:
            for interface in ends:
                cabled[interface.device.id].append(interface)
        devices = [self.export.devices[device] for device in self.kinds]
        nodes = [
            self._host(device, cabled[device.id]) if self.kinds[device.id] == HOST else self._switch(device)
            for device in devices
        ]
        return SourceTables(nodes, [self._cable(cable, ends) for cable, ends in links])

    def _switch(self, device: NetBoxDevice) -> SourceRow:
        values = {"name": device.name, "kind": SWITCH, "dpid": _custom(device, DATAPATH_ID), "agent": _custom(device, AGENT)}
        return SourceRow(device.where, values, _custom_names(device.where, dpid=DATAPATH_ID, agent=AGENT))

    def _host(self, device: NetBoxDevice, cabled: Sequence[NetBoxInterface]) -> SourceRow:
        if len(cabled) != 1:
            expected = (
                "one interface with a cable to a switch; a device that is no host of this network needs another role or tag"
            )
            raise InputError(f"{device.where}: interfaces", [one.name for one in cabled], expected)
        (interface,) = cabled
        at = self._at(interface)
        ip = self._ip(device, interface)
        further = [_without_prefix(one) for one in self._every_address.get(interface.id, ())]
        addresses = [one for one in map(canonical, further) if one != ip and not is_of_one_link(one)]
        values = {"name": device.name, "kind": HOST, "ip": ip, "mac": interface.mac, "addresses": addresses or None}
        called = {"ip": f"{at}: address", "mac": f"{at}: mac_address", **_custom_names(device.where, agent=AGENT)}
        needed = {"ip": "an IPv4 address that is assigned to it, or a primary one of its device"}
        return SourceRow(device.where, {**values, "agent": _custom(device, AGENT)}, called, needed)

    def _ip(self, device: NetBoxDevice, interface: NetBoxInterface) -> str | None:
        """Return the address of an interface: its only one, or its device's primary one."""
        own, primary = self._addresses.get(interface.id, ()), device.primary_ip4
        if len(own) == 1:
            return _without_prefix(own[0])
        if own:
            if primary is not None and primary.id in [one.id for one in own]:
                return _without_prefix(primary)
            expected = "one IPv4 address, or one that is the primary one of the device"
            raise InputError(f"{self._at(interface)}: address", [one.address for one in own], expected)
        if primary is None:
            return None
        assigned = self.export.addresses.get(primary.id, primary)
        other = self.export.interfaces.get(assigned.assigned_object_id or 0)
        # A bond, a bridge or a VLAN has the address of what is below it; another port with a cable is on another network.
        if assigned.assigned_object_type == _INTERFACE and other is not None and (other.mgmt_only or other.cable is not None):
            expected = f"an IPv4 address of {interface.name}; this one is that of {other.name}"
            raise InputError(f"{device.where}: primary_ip4", primary.address, expected)
        return _without_prefix(primary)

    def _cable(self, cable: NetBoxCable, ends: tuple[NetBoxInterface, NetBoxInterface]) -> SourceRow:
        speeds = [one.speed for one in ends if one.speed is not None]
        a, b = ends
        if len(set(speeds)) > 1:
            raise InputError(f"{self._at(b)}: speed", b.speed, f"the speed at the other end, {a.speed} kbit/s")
        values: dict[str, Any] = {"rate": speeds[0] * _KBIT if speeds else None}
        called = {"rate": f"{self._at(a)}: speed"}
        for end, interface in zip(ENDS, ends, strict=True):
            device, at = self.export.devices[interface.device.id], self._at(interface)
            values |= {f"{end}_node": device.name, f"{end}_interface": interface.name}
            called |= {f"{end}_node": f"{device.where}: name", f"{end}_interface": f"{at}: name"}
            if self.kinds[device.id] == SWITCH:
                values[f"{end}_port"] = interface.custom_fields.get(OPENFLOW_PORT)
                called |= _custom_names(at, **{f"{end}_port": OPENFLOW_PORT})
        return SourceRow(
            cable.where, values, called, {"rate": "its operating speed in kbit/s, here, at the other end or by --rate"}
        )

    def _links(self) -> Iterator[tuple[NetBoxCable, tuple[NetBoxInterface, NetBoxInterface]]]:
        """Yield the interfaces at both ends of each connection between devices of the network, with a cable of it."""
        seen = set[frozenset[int]]()
        for cable in self.export.cables.values():
            if cable.status is not None and cable.status.value != _CONNECTED:
                continue
            sides = (cable.a_terminations, cable.b_terminations)
            if not any(self._in_network(one) for side in sides for one in side):
                continue
            for side, name in zip(sides, ("a_terminations", "b_terminations"), strict=True):
                if len(side) != 1:
                    expected = "one interface at each end; a breakout cable is one cable for each of its lanes"
                    raise InputError(f"{cable.where}: {name}", len(side), expected)
            ends = self._ends(cable, sides[0][0], sides[1][0])
            pair = frozenset(interface.id for interface in ends)
            if all(one.device.id in self.kinds and not one.mgmt_only for one in ends) and pair not in seen:
                seen.add(pair)
                yield cable, ends

    def _ends(
        self, cable: NetBoxCable, a: NetBoxTermination, b: NetBoxTermination
    ) -> tuple[NetBoxInterface, NetBoxInterface]:  # fmt: skip
        if a.object_type == _INTERFACE and b.object_type == _INTERFACE:
            return self._interface(cable, "a", a), self._interface(cable, "b", b)
        if a.object_type == _INTERFACE:
            near = self._interface(cable, "a", a)
            return near, self._far(cable, near, b)
        near = self._interface(cable, "b", b)
        return self._far(cable, near, a), near

    def _far(self, cable: NetBoxCable, near: NetBoxInterface, through: NetBoxTermination) -> NetBoxInterface:
        """Return the interface at the end of a path over patch panels, which NetBox has followed."""
        peers = near.connected_endpoints or ()
        if near.connected_endpoints_type != _INTERFACE or len(peers) != 1:
            expected = f"one interface as connected_endpoints, as {cable.where} leads to a {through.object_type}"
            raise InputError(f"{self._at(near)}: connected_endpoints", [one.id for one in peers], expected)
        return self._exported(f"{self._at(near)}: connected_endpoints", peers[0].id)

    def _interface(self, cable: NetBoxCable, end: str, termination: NetBoxTermination) -> NetBoxInterface:
        return self._exported(f"{cable.where}: {end}_terminations[0].object_id", termination.object_id)

    def _exported(self, field: str, interface: int) -> NetBoxInterface:
        """Return an interface whose device is known, too."""
        if interface not in self.export.interfaces:
            raise InputError(field, interface, "the id of an interface of the export, which has to have both ends of a cable")
        found = self.export.interfaces[interface]
        if found.device.id not in self.export.devices:
            expected = "the id of a device of the export; one that is neither host nor switch is left out later"
            raise InputError(f"interfaces id {interface} ({found.name}): device.id", found.device.id, expected)
        return found

    def _in_network(self, termination: NetBoxTermination) -> bool:
        found = self.export.interfaces.get(termination.object_id) if termination.object_type == _INTERFACE else None
        return found is not None and found.device.id in self.kinds and not found.mgmt_only

    def _at(self, interface: NetBoxInterface) -> str:
        return f"interfaces id {interface.id} ({self.export.devices[interface.device.id].name} {interface.name})"

    @cached_property
    def _addresses(self) -> Mapping[int, Sequence[NetBoxAddress]]:
        """The IPv4 addresses of each interface by its id."""
        return {key: [one for one in of if not is_ipv6(one.address)] for key, of in self._every_address.items()}

    @cached_property
    def _every_address(self) -> Mapping[int, Sequence[NetBoxAddress]]:
        """The addresses of each interface by its id."""
        found: dict[int, list[NetBoxAddress]] = defaultdict(list)
        for one in self.export.addresses.values():
            if one.assigned_object_type == _INTERFACE and one.assigned_object_id is not None:
                found[one.assigned_object_id].append(one)
        return found


def _custom(device: NetBoxDevice, name: str) -> Any:
    value = device.custom_fields.get(name)
    return None if value == "" else value


def _custom_names(where: str, **names: str) -> dict[str, str]:
    return {column: f"{where}: custom_fields.{name}" for column, name in names.items()}


def _without_prefix(address: NetBoxAddress) -> str:
    return address.address.partition("/")[0]
