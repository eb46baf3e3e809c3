"""What Open vSwitch's database says of its bridges, read by ovs-vsctl(8) as an operator would."""

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamer.doctor.findings import Unseen, observe
from hostagent.marks.socket_marks import borrow, socket_descriptors

_PATIENCE_S = 10.0
_RUN_DIRECTORY = "/var/run/openvswitch"
_COLUMNS = {
    "Bridge": "_uuid,name,datapath_id,datapath_type,fail_mode,protocols,other_config,controller,ports",
    "Controller": "_uuid,target,is_connected,connection_mode,status",
    "Port": "_uuid,name,interfaces",
    "Interface": "_uuid,name,type,error",
    "SSL": "certificate,ca_cert",
}
_CARDLESS = ("internal", "patch")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BridgeController:
    """A controller that a bridge is to connect to. problem: of the last attempt."""

    target: str
    is_connected: bool
    mode: str = ""
    problem: str = ""


@dataclass(frozen=True)
class BridgeFacts:
    """A bridge. is_id_set: whether its datapath id was given. broken: why interfaces cannot be used, by name."""

    name: str
    datapath_id: str = ""
    is_id_set: bool = True
    datapath_type: str = ""
    fail_mode: str = ""
    protocols: frozenset[str] = frozenset()
    controllers: tuple[BridgeController, ...] = ()
    ports: tuple[str, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SwitchDatabase:
    """What the database holds. certificate, authority: the files of TLS, None where none are set."""

    bridges: tuple[BridgeFacts, ...]
    certificate: str | None = None
    authority: str | None = None


@dataclass(frozen=True)
class PacketBuffers:
    """Bytes of the smallest buffers of the packet sockets of the switch's daemon."""

    send: int
    receive: int


def version() -> str:
    """Return the version of Open vSwitch's tools."""
    return _run("ovs-vsctl", "--version").split("\n")[0].rpartition(" ")[2]


def daemon_version() -> str:
    """Return what the switch's daemon says of itself. Raises `CalledProcessError` where it does not run."""
    return _run("ovs-appctl", "-T", f"{_PATIENCE_S:.0f}", "-t", "ovs-vswitchd", "version").split("\n")[0]


def read_database() -> SwitchDatabase:
    """Return what the database holds. Raises `CalledProcessError` where it is not served, `ValueError` for other output."""
    return database_of({table: _table(table, columns) for table, columns in _COLUMNS.items()})


def database_of(tables: Mapping[str, Sequence[Row]]) -> SwitchDatabase:
    """Return what tables hold. Raises `ValueError` for tables that lack a column."""
    try:
        controllers = {row["_uuid"]: row for row in tables["Controller"]}
        ports = {row["_uuid"]: row for row in tables["Port"]}
        interfaces = {row["_uuid"]: row for row in tables["Interface"]}
        bridges = tuple(_bridge(row, controllers, ports, interfaces) for row in tables["Bridge"])
        tls = next(iter(tables["SSL"]), None)
    except KeyError as error:
        raise ValueError(f"Open vSwitch's database has no {error}") from error
    if tls is None:
        return SwitchDatabase(bridges)
    return SwitchDatabase(bridges, tls["certificate"] or None, tls["ca_cert"] or None)


def packet_buffers() -> PacketBuffers | Unseen:
    """Return the buffers of the daemon's packet sockets, by its process id file."""

    def read() -> PacketBuffers | Unseen:
        pid = int((Path(os.environ.get("OVS_RUNDIR") or _RUN_DIRECTORY) / "ovs-vswitchd.pid").read_text())
        sizes = []
        for inode, descriptor in socket_descriptors(pid).items():
            borrowed = borrow(pid, descriptor, inode)
            if borrowed is None:
                continue
            with borrowed:
                if borrowed.family == socket.AF_PACKET:
                    sizes.append([borrowed.getsockopt(socket.SOL_SOCKET, one) for one in (socket.SO_SNDBUF, socket.SO_RCVBUF)])
        if not sizes:
            return Unseen("ovs-vswitchd has no packet sockets yet: its bridges have no ports")
        return PacketBuffers(*(min(column) for column in zip(*sizes, strict=True)))

    return observe(read)


def rows_of(text: str) -> list[Row]:
    """Return the rows of a table as ovs-vsctl writes it in JSON (RFC 7047, section 5.1). Raises `ValueError`."""
    document = json.loads(text)
    try:
        return [dict(zip(document["headings"], map(_value, row), strict=True)) for row in document["data"]]
    except (TypeError, LookupError) as error:
        raise ValueError(f"ovs-vsctl prints no table: {text[:80]!r}") from error


def _bridge(row: Row, controllers: Mapping[str, Row], ports: Mapping[str, Row], interfaces: Mapping[str, Row]) -> BridgeFacts:
    targets = [controllers[one] for one in _listed(row["controller"]) if one in controllers]
    of_ports = [one for port in _listed(row["ports"]) if port in ports for one in _listed(ports[port]["interfaces"])]
    carried = [interfaces[one] for one in of_ports if one in interfaces and interfaces[one]["type"] not in _CARDLESS]
    return BridgeFacts(
        row["name"],
        _text(row["datapath_id"]),
        "datapath-id" in row["other_config"],
        _text(row["datapath_type"]),
        _text(row["fail_mode"]),
        frozenset(_listed(row["protocols"])),
        tuple(
            BridgeController(
                one["target"], one["is_connected"], _text(one["connection_mode"]), one["status"].get("last_error", "")
            )
            for one in targets
        ),
        tuple(one["name"] for one in carried),
        tuple((one["name"], text) for one in carried if (text := _text(one["error"]))),
    )


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    """Return a column of one text or none."""
    return next(iter(_listed(value)), "")


def _value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, content = value
    match kind:
        case "map":
            return {key: _value(one) for key, one in content}
        case "set":
            return [_value(one) for one in content]
        case _:
            return content


def _table(table: str, columns: str) -> list[Row]:
    return rows_of(_run("ovs-vsctl", "-t", f"{_PATIENCE_S:.0f}", "--format=json", f"--columns={columns}", "list", table))


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=2 * _PATIENCE_S).stdout
