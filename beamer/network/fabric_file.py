"""The file of a network: as people write it, each cable once, or as `Fabric.to_dict` writes it, each direction a link.

A file of a real network is checked for more than a `Fabric` is, which may also be an imagined one: see `fabric_checks`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from beamer.errors import InputError, nearest
from beamer.network.addresses import canonical
from beamer.network.fabric import Fabric, Host, Link, Number, PortNumber, Switch
from beamer.network.fabric_checks import check_deployable
from beamer.units import ETHERNET_MTU, parse_rate, rate_text
from beamer.validation import FileEntry, input_error
from beamer.yaml_files import parse_mapping, read_text

# With 0x, as pairs of digits, or as the 16 digits that Open vSwitch and most others print; 16 decimal digits may be either.
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,16}|(?:[0-9a-fA-F]{2}:){7}[0-9a-fA-F]{2}|(?=0|.*[a-fA-F])[0-9a-fA-F]{16}")
_DECIMAL = re.compile(r"[1-9](?:[0-9]{0,14}|[0-9]{16,19})")
_DATAPATH_ID = (
    "'0x10', 16 hexadecimal digits as switches print them ('0000000000000010'), or a decimal number; "
    "for 16 decimal digits, which may be either, the form with 0x"
)
_CONTENT = "with name, hosts, switches and cables"
_OF_LINK = re.compile(r"fabric\.links\[(\d+)\](?:\.(\w+))?\Z")
_CABLE_OF_LINK = {
    "src": "ends[{here}].node",
    "dst": "ends[{there}].node",
    "port": "ends[{here}].port",
    "interface": "ends[{here}].interface",
    "rate_bps": "rate",
}


def parse_datapath_id(text: Any) -> int:
    """Return a datapath id as people write it. Raises `InputError`, also for what may be two numbers."""
    if isinstance(text, str) and _HEXADECIMAL.fullmatch(text):
        return int(text.replace(":", ""), 16)
    if isinstance(text, str) and _DECIMAL.fullmatch(text):
        return int(text)
    raise InputError("dpid", text, _DATAPATH_ID)


def _mac(text: Any) -> Any:
    """Return an address in lower case and with colons, whichever of its two common forms it has."""
    return text.lower().replace("-", ":") if isinstance(text, str) else text


Rate = Annotated[int, BeforeValidator(parse_rate)]


class WrittenHost(FileEntry):
    """A machine that runs workers."""

    name: str
    """As trials name it."""
    ip: Annotated[str, BeforeValidator(canonical)]
    """Of its data interface, IPv4, or IPv6 where it has no other; by it the controller asks for the host."""
    mac: Annotated[str, BeforeValidator(_mac)]
    """Of its data interface, with colons or hyphens."""
    agent: str | None = None
    """The name of its host agent; none where it has no agent."""
    addresses: tuple[Annotated[str, BeforeValidator(canonical)], ...] = ()
    """Further ones of the same interface, IPv6 or IPv4; an IPv6 address that is not here is not reached."""


class WrittenSwitch(FileEntry):
    """An OpenFlow switch."""

    name: str
    """As cables name it."""
    dpid: Annotated[int, BeforeValidator(parse_datapath_id), Field(ge=1, lt=2**64)]
    """Its datapath id, hexadecimal as switches print it (`0x10`, or 16 digits), or decimal; 16 decimal digits need the `0x`."""
    agent: str | None = None
    """The name of the agent that makes its ports' queues; none where the switch honours `set_queue`."""
    ovsdb: str | None = None
    """Where the database of an Open vSwitch is, such as `ssl:10.0.0.5:6640`: the controller then makes the queues by it."""


class CableEnd(FileEntry):
    """Where a cable is plugged in."""

    node: str
    """The name of a host or switch."""
    interface: str
    """Of the port, as its operating system names it."""
    port: PortNumber | None = None
    """Of a switch: the port's OpenFlow number."""


class WrittenCable(FileEntry):
    """A cable, which carries as much in either direction."""

    ends: tuple[CableEnd, CableEnd]
    """Two, in either order."""
    rate: Rate | None = None
    """Such as `25gbit`; none: that of the file."""


class FabricFile(FileEntry):
    """A network of hosts and switches."""

    name: str
    """Of the network."""
    hosts: tuple[WrittenHost, ...]
    """Every machine that runs workers or that these talk to, as storage."""
    switches: tuple[WrittenSwitch, ...]
    """Every switch between them."""
    cables: tuple[WrittenCable, ...]
    """Each once; a host has one."""
    rate: Rate | None = None
    """Such as `100gbit`, of every cable that has none of its own."""
    planes: Number = 1
    """How many paths between two hosts are told apart: usually the number of spines; more than there are repeat."""
    mtu: Number = ETHERNET_MTU
    """Of every link, in bytes without the Ethernet header."""

    def fabric(self) -> Fabric:
        """Return the network. Raises `InputError` that names the host, switch or cable."""
        hosts, links = {host.name for host in self.hosts}, list[Link]()
        nodes = hosts | {switch.name for switch in self.switches}
        for i, cable in enumerate(self.cables):
            for k, end in enumerate(cable.ends):
                if end.node not in nodes:
                    raise InputError(f"fabric.cables[{i}].ends[{k}].node", end.node, nearest(end.node, sorted(nodes)))
            rate_bps = cable.rate or self.rate
            if rate_bps is None:
                raise InputError(f"fabric.cables[{i}].rate", None, "a rate such as '100gbit', here or once for the file")
            ports = [_port(end, end.node in hosts, f"fabric.cables[{i}].ends[{k}].port") for k, end in enumerate(cable.ends)]
            for here, there in ((0, 1), (1, 0)):
                src, dst = cable.ends[here], cable.ends[there]
                links.append(Link(src.node, dst.node, rate_bps, ports[here], src.interface))
        try:
            return Fabric(
                self.name,
                tuple(Host(host.name, host.ip, host.mac, host.agent, host.addresses) for host in self.hosts),
                tuple(Switch(switch.name, switch.dpid, switch.agent, switch.ovsdb) for switch in self.switches),
                tuple(links),
                self.planes,
                self.mtu,
            )
        except InputError as error:
            raise _of_cable(error) from error


def _port(end: CableEnd, is_host: bool, field: str) -> int:
    if is_host and end.port not in (None, 1):
        raise InputError(field, end.port, "no number: the port of a host has none")
    if end.port is None and not is_host:
        raise InputError(field, None, f"the OpenFlow number of the port of {end.node}")
    return end.port or 1


def _of_cable(error: InputError) -> InputError:
    """Return what is wrong with a link as what is wrong with its cable, whose links follow each other."""
    found = _OF_LINK.fullmatch(error.field)
    if found is None:
        return error
    cable, here = divmod(int(found[1]), 2)
    part = _CABLE_OF_LINK[found[2]].format(here=here, there=1 - here) if found[2] else ""
    return InputError(f"fabric.cables[{cable}]{'.' if part else ''}{part}", error.value, error.expected)


def people_form(fabric: Fabric) -> dict[str, Any]:
    """Return a network as `FabricFile` reads it, as plain data: each cable once, with the rate of most where it has that."""
    rates = Counter(link.rate_bps for link in fabric.links)
    usual_bps = max(rates, key=lambda rate_bps: rates[rate_bps], default=None)

    def end(link: Link) -> dict[str, Any]:
        port = {"port": link.port} if link.src in fabric.switch else {}
        return {"node": link.src, "interface": link.interface, **port}

    cables = []
    for there, back in fabric.cables:
        rate = {} if there.rate_bps == usual_bps else {"rate": rate_text(there.rate_bps)}
        cables.append({"ends": [end(there), end(back)], **rate})
    return {
        "name": fabric.name,
        **({} if usual_bps is None else {"rate": rate_text(usual_bps)}),
        "planes": fabric.planes,
        "mtu": fabric.mtu,
        "hosts": [_host_form(host) for host in fabric.hosts],
        "switches": [_switch_form(switch) for switch in fabric.switches],
        "cables": cables,
    }


def _host_form(host: Host) -> dict[str, Any]:
    form = {key: value for key, value in asdict(host).items() if value is not None}
    addresses = list(form.pop("addresses"))
    return {**form, "addresses": addresses} if addresses else form


def _switch_form(switch: Switch) -> dict[str, Any]:
    form = {key: value for key, value in asdict(switch).items() if value is not None}
    return {**form, "dpid": f"0x{switch.dpid:x}"}


def deployable(data: Mapping[str, Any]) -> Fabric:
    """Return the network of plain data that `FabricFile` reads. Raises `InputError` also where no controller could lead it."""
    try:
        fabric = FabricFile.model_validate(data).fabric()
    except ValidationError as error:
        raise input_error(error, FabricFile, "fabric") from error
    try:
        check_deployable(fabric)
    except InputError as error:
        raise _of_cable(error) from error
    return fabric


def read_fabric(path: Path, field: str = "--fabric") -> Fabric:
    """Read a network that a controller may lead from a JSON or YAML file; field: what named it. Raises `InputError`."""
    text = read_text(path, field)
    # 0000000000000010 is no ten below `switches`, nor is 000052540012e999 a number too large for a float.
    data = parse_mapping(text, field, str(path), _CONTENT, as_written=(("switches",),))
    if "links" in data:
        fabric = Fabric.from_dict(parse_mapping(text, field, str(path), _CONTENT))
        check_deployable(fabric)
        return fabric
    return deployable(data)
