"""How the commands write what they read: names, times, rates and tables that fit the terminal.

Names and reasons come from others: characters that would steer a terminal are shown as escapes, and nothing in them is markup.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from beamer.studies.model import TrialStatus
from beamer.terminal_text import one_line

FILE_COLUMNS = 200  # Where no terminal says how wide it is: lines of a file are cut nowhere near what anybody reads.
LEAST = 8  # Cells that a column of names keeps.
GAP = 2  # Cells between two columns.
_UNITS = ("", "k", "M", "G", "T", "P")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def console() -> Console:
    """Return the console of standard output, that prints text as it is."""
    is_terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, width=None if is_terminal else FILE_COLUMNS)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print a JSON document at once."""
    print(json.dumps(value, indent=indent), flush=True)


def shown(value: object) -> str:
    """Return a text of others as one line that steers no terminal; a dash for None."""
    if value is None:
        return "-"
    return one_line(str(value))


def seconds(value: float | None) -> str:
    """Return a duration in the one or two units that say how long it is; a dash for None."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.2g} s" if value >= 0.001 else f"{1e6 * value:.0f} us" if value else "0 s"
    whole = round(value)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def ago(at_s: float | None, now: float | None = None) -> str:
    """Return how long ago a Unix time was. now: None: this moment, by this machine's clock."""
    return "-" if at_s is None else seconds(max((time.time() if now is None else now) - at_s, 0.0))


def quantity(value: float | None, unit: str) -> str:
    """Return a quantity with three digits and a decimal prefix; a dash for None."""
    if value is None:
        return "-"
    scale = 0
    while abs(value) >= 999.5 and scale < len(_UNITS) - 1:
        value, scale = value / 1000, scale + 1
    digits = f"{value:.0f}" if not scale and float(value).is_integer() else f"{value:.3g}"
    return f"{digits} {_UNITS[scale]}{unit}"


def loss(value: float | str | None) -> str:
    """Return a loss as the API has it: a number, or the name of one that is not finite."""
    return f"{value:.5g}" if isinstance(value, int | float) else shown(value)


def several(count: int, what: str, more: str | None = None) -> str:
    """Return a count with its noun, in the plural where it is not 1. more: the plural, None: with an s."""
    return f"{count} {what}" if count == 1 else f"{count} {more or what + 's'}"


def counts(by_status: Mapping[str, int]) -> str:
    """Return how many trials have each status, in the order in which a trial goes through them."""
    order = [*TrialStatus, *(status for status in by_status if status not in list(TrialStatus))]
    return ", ".join(f"{by_status[status]} {shown(status)}" for status in order if by_status.get(status)) or "none"


def few(names: Iterable[str], most: int = 6) -> str:
    """Return names in a row, of many the first few and how many more there are."""
    listed = [shown(name) for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def facts(out: Console, rows: Iterable[tuple[str, str | None]]) -> None:
    """Print what is known of one thing, a name and a value in each line; what is None is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=10, style="bold")
    grid.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            grid.add_row(name, value)
    out.print(grid)


class FittedTable:
    """A table whose columns fit the terminal: where it is narrow, those of names become narrower, and figures stay whole.

    right: columns of figures. names: columns that are cut in the middle. wrapped: those that take several lines.
    """

    def __init__(
        self, *columns: str, right: Iterable[str] = (), names: Iterable[str] = (), wrapped: Iterable[str] = ()
    ) -> None:
        self._columns = columns
        self._right, self._names, self._wrapped = tuple(right), tuple(names), tuple(wrapped)
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
        widths = self._widths(options.max_width)
        for column, width in zip(self._columns, widths, strict=True):
            is_wrapped = column in self._wrapped
            made.add_column(
                column,
                justify="right" if column in self._right else "left",
                no_wrap=not is_wrapped,
                overflow="fold" if is_wrapped else "ellipsis",
                width=width,
            )
        for row in self._rows:
            cells = zip(self._columns, row, widths, strict=True)
            made.add_row(*(_cut(cell, width) if column in self._names else cell for column, cell, width in cells))
        yield made

    def _widths(self, most: int) -> list[int]:
        widths = [max(map(cell_len, cells)) for cells in zip(self._columns, *self._rows, strict=True)]
        narrowed = [i for i, name in enumerate(self._columns) if name in (*self._names, *self._wrapped)]
        over = sum(widths) + GAP * (len(widths) - 1) - most
        while over > 0 and narrowed:
            widest = max(narrowed, key=lambda i: widths[i])
            if widths[widest] <= LEAST:
                break
            widths[widest] -= 1
            over -= 1
        return widths


def _cut(text: str, width: int) -> str:
    """Return a text of at most so many cells: of a longer one its beginning and its end."""
    kept = len(text)
    cut = text
    while cell_len(cut) > width and kept > 1:
        kept -= 1
        cut = f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"
    return cut
