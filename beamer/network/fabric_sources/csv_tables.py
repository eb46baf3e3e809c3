"""A network in two CSV tables, `nodes.csv` and `cables.csv`, whose first line names their columns, in any order.

An empty cell is no value, and empty columns behind all others are none. The columns are those of `rows`: a host has an ip and
a mac, a switch a dpid, and either may have an agent. A host may have further addresses, with spaces between them. A cable's
port is empty at a host.
"""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO

from beamer.errors import InputError
from beamer.network.fabric_sources.rows import CABLE_COLUMNS, NODE_COLUMNS, SourceRow, SourceTables, check_columns

NODES, CABLES = "nodes.csv", "cables.csv"

_REQUIRED = ("name", "kind", "a_node", "a_interface", "b_node", "b_interface")  # Of the others, rows say which they lack.
_OTHER_SEPARATORS = (";", "\t")  # As spreadsheets write them in other languages, and as text.


def csv_tables(texts: Mapping[str, str]) -> SourceTables:
    """Return the network in the texts of both files, by their names. Raises `InputError` that names the line and the column."""
    return SourceTables(
        _rows(NODES, texts[NODES], NODE_COLUMNS),
        _rows(CABLES, texts[CABLES], CABLE_COLUMNS),
    )


def _rows(table: str, text: str, columns: Sequence[str]) -> list[SourceRow]:
    reader = csv.reader(StringIO(text.removeprefix("\ufeff")), strict=True)  # Spreadsheets write a byte-order mark.
    header: list[str] = []
    found = []
    try:
        for cells in reader:
            values = [cell.strip() for cell in cells]
            where = f"{table} line {reader.line_num}"
            if not any(values):
                continue
            if not header:
                header = _without_empty_end(values, 0)
                _check_header(table, header, columns)
                continue
            if len(values) > len(header):
                values = _without_empty_end(values, len(header))
            if len(values) != len(header):
                raise InputError(where, len(values), f"{len(header)} cells, one for each column")
            found.append(SourceRow(where, {name: cell or None for name, cell in zip(header, values, strict=True)}))
    except csv.Error as error:
        raise InputError(f"{table} line {reader.line_num}", None, f"valid CSV ({error})") from error
    if not header:
        raise InputError(table, "", f"a first line with the columns {', '.join(columns)}")
    return found


def _without_empty_end(values: list[str], least: int) -> list[str]:
    """Return cells without those at the end that are empty, `least` at least: spreadsheets write such columns."""
    count = len(values)
    while count > least and not values[count - 1]:
        count -= 1
    return values[:count]


def _check_header(table: str, header: Sequence[str], columns: Sequence[str]) -> None:
    for separator in _OTHER_SEPARATORS:
        if len(header) == 1 and separator in header[0]:
            raise InputError(table, header[0], f"columns that are separated by commas, not by {separator!r}")
    if "" in header:
        raise InputError(f"{table}: column {header.index('') + 1}", "", f"its name, one of {', '.join(columns)}")
    check_columns(table, header, columns)
    for column in columns:
        if column in _REQUIRED and column not in header:
            raise InputError(f"{table}: {column}", None, f"a column of this name, beside {', '.join(header)}")
