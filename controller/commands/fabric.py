"""`beamer fabric`: the file of a network, read as a controller reads it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.fabric import Fabric, Link
from beamer.network.fabric_file import people_form, read_fabric
from beamer.units import rate_text
from beamer.yaml_files import dump_yaml


def show(
    file: Annotated[Path, typer.Argument(help="The network's file, as beamer-controller is given it.", metavar="FILE")],
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print it as a file for people: each cable once.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as programs write it: each direction of a cable.")] = False,
) -> None:
    """Check the file of a network and print its hosts, switches and cables, or the same file in another form.

    It does not contact the network: whether that is as its file says remains to be seen.
    """
    if as_yaml and as_json:
        raise InputError("--json", True, "one form, --yaml or --json")
    fabric = read_fabric(file, "FILE")
    if as_yaml:
        put_out(fabric)
    elif as_json:
        print(json.dumps(fabric.to_dict(), indent=1))
    else:
        for line in lines(fabric):
            print(line)


def put_out(fabric: Fabric, output: Path | None = None) -> None:
    """Print a network's file for people, or write it to the file that --output names. Raises `InputError` where it cannot."""
    text = dump_yaml(people_form(fabric), flow=None, width=128)
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        raise InputError("--output", str(output), f"a file that can be written ({error.strerror})") from error


def lines(fabric: Fabric) -> Iterator[str]:
    """Yield what a network is, a line for each host, switch and cable."""
    cables = fabric.cables
    counts = f"hosts {len(fabric.hosts)}, switches {len(fabric.switches)}, cables {len(cables)}"
    yield f"{fabric.name}: {counts}, planes {fabric.planes}, mtu {fabric.mtu}"
    rows = [("host", host.name, host.ip, host.mac, _agent(host.agent), " ".join(host.addresses)) for host in fabric.hosts]
    for switch in fabric.switches:
        maker = _agent(switch.agent) if switch.ovsdb is None else f"database {switch.ovsdb}"
        rows.append(("switch", switch.name, f"{switch.dpid:016x}", "", maker, ""))
    rows += [("cable", _end(fabric, a), _end(fabric, b), "", rate_text(a.rate_bps), "") for a, b in cables]
    for kind in ("host", "switch", "cable"):
        found = [row for row in rows if row[0] == kind]
        widths = [max(map(len, column)) for column in zip(*found, strict=True)]
        for row in found:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip()


def _agent(name: str | None) -> str:
    return "no agent" if name is None else f"agent {name}"


def _end(fabric: Fabric, link: Link) -> str:
    return f"{link.src} port {link.port} ({link.interface})" if link.src in fabric.switch else f"{link.src} ({link.interface})"
