"""A network as rows of two tables, nodes and cables: what every source is turned into, so that all are checked alike.

A row knows where it comes from. What is wrong with the network is therefore said of the source's own row and field. Nothing is
guessed: where a source lacks what a fabric file needs, the error says what to add.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from beamer.errors import InputError, nearest
from beamer.network.fabric import Fabric
from beamer.network.fabric_file import deployable
from beamer.units import ETHERNET_MTU

HOST, SWITCH = "host", "switch"
NODE_COLUMNS = ("name", "kind", "ip", "mac", "dpid", "agent", "addresses")
CABLE_COLUMNS = ("a_node", "a_interface", "a_port", "b_node", "b_interface", "b_port", "rate")
ENDS = ("a", "b")

_OPTIONAL = ("agent", "addresses")
_KEYS = {HOST: ("name", "ip", "mac", *_OPTIONAL), SWITCH: ("name", "dpid", "agent")}
_NEEDED = {
    "name": "a name",
    "kind": f"'{HOST}' or '{SWITCH}'",
    "ip": "the address of the host's data interface",
    "mac": "the MAC address of the host's data interface",
    "dpid": "the datapath id of the switch, such as '0x10'",
    "node": "the name of the node at this end",
    "interface": "the name of the port, as the node's operating system has it",
    "port": "the OpenFlow number of the switch's port",
    "rate": "a rate such as '100gbit', here or by --rate",
}
"""What to add where a column is empty, by the column without its end."""
_MAX_DIGITS = 10  # The largest OpenFlow port has as many.
_ROW = re.compile(r"fabric\.(hosts|switches|cables)\[(\d+)\](?:\.(.+))?\Z")
_END = re.compile(r"ends\[([01])\]\.(\w+)\Z")


@dataclass(frozen=True)
class SourceRow:
    """A node or a cable of a source.

    where: names it, such as `cables.csv line 3`. values: by column; an empty one is None or left out. called: what the source
    calls a column, its row included, where that is not the column's name. needed: what to add where a column is empty, where
    that is particular to the source.
    """

    where: str
    values: Mapping[str, Any]
    called: Mapping[str, str] = field(default_factory=dict)
    needed: Mapping[str, str] = field(default_factory=dict)

    def get(self, column: str) -> Any:
        """Return a value, None where it is empty."""
        return self.values.get(column)

    def filled(self) -> dict[str, Any]:
        """Return the values that are not empty, by column."""
        return {column: value for column, value in self.values.items() if value is not None}

    def name_of(self, column: str) -> str:
        """Return a column as an error names it."""
        return self.called.get(column, f"{self.where}: {column}")

    def need(self, *columns: str) -> None:
        """Raise `InputError` for the first of these columns that is empty."""
        for column in columns:
            if self.get(column) is None:
                raise InputError(self.name_of(column), None, self.needed.get(column) or _NEEDED[_without_end(column)])


@dataclass(frozen=True)
class FabricSettings:
    """What a network has as a whole; None: not said. rate_bps: of every cable without a rate, in bit/s."""

    name: str | None = None
    rate_bps: int | None = None
    planes: int | None = None
    mtu: int | None = None

    def over(self, other: "FabricSettings") -> "FabricSettings":
        """Return these settings, and those of another where these say nothing."""
        return replace(other, **{key: value for key, value in vars(self).items() if value is not None})


@dataclass(frozen=True)
class SourceTables:
    """A network as a source has it; settings: those that the source itself has."""

    nodes: Sequence[SourceRow]
    cables: Sequence[SourceRow]
    settings: FabricSettings = field(default_factory=FabricSettings)


def check_columns(where: str, columns: Sequence[str], known: Sequence[str]) -> None:
    """Raise `InputError` that names a column which is unknown or there twice. where: the table or row that has it."""
    for i, column in enumerate(columns):
        if column not in known:
            raise InputError(f"{where}: {column}", column, nearest(column, known))
        if column in columns[:i]:
            raise InputError(f"{where}: {column}", column, "each column once")


def fabric_of(tables: SourceTables, settings: FabricSettings) -> Fabric:
    """Return the network of a source; settings: go before the source's own.

    Raises `InputError` that names the row and the field, also where no controller could lead the network.
    """
    rows: dict[str, list[SourceRow]] = {"hosts": [], "switches": [], "cables": list(tables.cables)}
    named: dict[Any, SourceRow] = {}
    for row in tables.nodes:
        row.need("name", "kind")
        if (other := named.setdefault(row.get("name"), row)) is not row:
            raise InputError(row.name_of("name"), row.get("name"), f"another name: that of {other.where}")
        kind = str(row.get("kind"))
        if kind not in _KEYS:
            raise InputError(row.name_of("kind"), row.get("kind"), nearest(kind, _KEYS))
        rows["hosts" if kind == HOST else "switches"].append(row)
    chosen = settings.over(tables.settings)
    data = {
        "name": chosen.name,
        "planes": 1 if chosen.planes is None else chosen.planes,
        "mtu": ETHERNET_MTU if chosen.mtu is None else chosen.mtu,
        "hosts": [_node(row, HOST) for row in rows["hosts"]],
        "switches": [_node(row, SWITCH) for row in rows["switches"]],
        "cables": _cables(tables.cables, [row.get("name") for row in rows["switches"]], chosen.rate_bps),
    }
    try:
        return deployable(data)
    except InputError as error:
        raise _of_row(error, rows) from error


def _node(row: SourceRow, kind: str) -> dict[str, Any]:
    keys = _KEYS[kind]
    for column, value in row.filled().items():
        if column not in (*keys, "kind"):
            raise InputError(row.name_of(column), value, f"no value, as a {kind} has none here")
    row.need(*(key for key in keys if key not in _OPTIONAL))
    found = {key: value for key, value in row.filled().items() if key in keys}
    if isinstance(further := found.get("addresses"), str):
        found["addresses"] = further.split()
    if isinstance(dpid := found.get("dpid"), int) and not isinstance(dpid, bool):
        found["dpid"] = f"0x{dpid:x}"  # A file has datapath ids as text, since one of digits alone may be two numbers.
    return found


def _cables(rows: Sequence[SourceRow], switches: Sequence[Any], rate_bps: int | None) -> list[dict[str, Any]]:
    seen: dict[frozenset[Any], SourceRow] = {}
    found = []
    for row in rows:
        row.need(*(f"{end}_{part}" for end in ENDS for part in ("node", "interface")))
        row.need(*(f"{end}_port" for end in ENDS if row.get(f"{end}_node") in switches))
        pair = frozenset(row.get(f"{end}_node") for end in ENDS)
        if (other := seen.setdefault(pair, row)) is not row:
            expected = f"another node: {other.where} connects both already, and a network has one cable between two nodes"
            raise InputError(row.name_of("b_node"), row.get("b_node"), expected)
        if rate_bps is None:
            row.need("rate")
        rate = row.get("rate")
        found.append({"ends": [_end(row, end) for end in ENDS], "rate": rate_bps if rate is None else rate})
    return found


def _end(row: SourceRow, end: str) -> dict[str, Any]:
    values = {part: row.get(f"{end}_{part}") for part in ("node", "interface", "port")}
    port = values["port"]
    if isinstance(port, str) and port.isascii() and port.isdecimal() and len(port) <= _MAX_DIGITS:
        values["port"] = int(port)  # Text that is no number is left, and refused by its name.
    return {part: value for part, value in values.items() if value is not None}


def _without_end(column: str) -> str:
    end, _, part = column.partition("_")
    return part if end in ENDS and part else column


def _of_row(error: InputError, rows: Mapping[str, Sequence[SourceRow]]) -> InputError:
    """Return what is wrong with an entry of a file as what is wrong with the row that it was made of."""
    found = _ROW.fullmatch(error.field)
    if found is None:
        return error
    row = rows[found[1]][int(found[2])]
    end = _END.fullmatch(found[3] or "")
    column = f"{ENDS[int(end[1])]}_{end[2]}" if end else found[3]
    return InputError(row.name_of(column) if column else row.where, error.value, error.expected)
