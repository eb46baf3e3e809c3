"""`beamer fabric remove-queues`: removes what a controller has made in the databases of switches."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from beamer.network.fabric import Switch
from beamer.network.fabric_file import read_fabric
from beamer.network.ovsdb_address import parse_ovsdb_address
from beamer.terminal_text import one_line
from controller.identity.credentials import Credentials, check_databases, read_credentials
from controller.ovsdb.messages import OvsdbError
from controller.ovsdb.removal import RemovedQueues
from controller.ovsdb.removal import remove_queues as remove

_TLS = "PEM, as beamer-controller has it."


def remove_queues(
    file: Annotated[Path, typer.Argument(help="The network's file, with the databases of its switches.", metavar="FILE")],
    switch: Annotated[list[str] | None, typer.Option(help="A switch of the file; repeatable.  [default: all]")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help=f"The controller's certificate, {_TLS}")] = None,
    tls_key: Annotated[Path | None, typer.Option(help=f"The certificate's key, {_TLS}")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help=f"The authority of switches' certificates, {_TLS}")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Use tcp: to other machines' databases.")] = False,
) -> None:
    """Remove the queues that a controller has made in switches' databases, and no others.

    Rows that are marked as Beamer's are removed. Stop the controller first, or take `ovsdb` out of the file that it reads. Ends
    with 1 where queues are left.
    """
    fabric = read_fabric(file, "FILE")
    credentials = read_credentials(tls_cert, tls_key, tls_ca, None)
    check_databases(fabric, "", credentials, insecure)
    for name in switch or ():
        if name not in fabric.with_databases:
            raise InputError("--switch", name, f"a switch with a database: {nearest(name, sorted(fabric.with_databases))}")
    chosen = [one for one in fabric.switches if one.ovsdb is not None and (not switch or one.name in switch)]
    if not chosen:
        raise InputError("FILE", str(file), "a file with ovsdb at a switch; by no other way a controller makes queues")
    sys.exit(max(asyncio.run(_remove_all(chosen, credentials))))


async def _remove_all(switches: list[Switch], credentials: Credentials) -> list[int]:
    return await asyncio.gather(*(_remove_of(one, credentials) for one in switches))


async def _remove_of(switch: Switch, credentials: Credentials) -> int:
    """Remove the queues of a switch, say so, and return whether some are left, as an exit code."""
    assert switch.ovsdb is not None
    address = parse_ovsdb_address(switch.ovsdb, f"fabric.switches[{switch.name}].ovsdb")
    try:
        removed = await remove(address, switch.dpid, credentials.databases)
    except OvsdbError as error:
        said = f"{switch.name}: its queues are not removed, or not all; the database at {switch.ovsdb}: {one_line(str(error))}"
        print(said, file=sys.stderr)
        return 1
    print(f"{switch.name}: {one_line(in_words(removed))}")
    return int(removed.again or removed.left > 0 or removed.strays > 0 or not removed.taken)


def in_words(removed: RemovedQueues) -> str:
    """Return what was removed from a switch's database, and what is left."""
    found = []
    if removed.ports:
        found.append(f"the queues of {', '.join(removed.ports)} are removed")
    if removed.rows:
        found.append(f"rows of Beamer's removed: {removed.rows}")
    if removed.again:
        found.append("they are made again: stop the controller, or take ovsdb out of the file that it reads")
    elif removed.left:
        found.append(f"rows of Beamer's that stay, as others refer to them: {removed.left}")
    found = found or ["has no queues of Beamer's"]
    if removed.strays:
        by = "ovs-vsctl --columns=_uuid,external_ids find queue (and qos) shows them"
        found.append(f"rows of Beamer's for datapath ids that no bridge of this database has: {removed.strays}; {by}")
    if not removed.taken:
        found.append("that is so in the database alone: ovs-vswitchd does not take it over; start it")
    return "; ".join(found)
