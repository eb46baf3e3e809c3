"""What a terminal shows of a search while it runs: how many configurations have ended, and a table of the others."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from beamer.gpu.devices import Devices
from beamer.schedule.output import SearchConsole
from beamer.schedule.report import TrialRow, best_of, short_name, values_line, where
from beamer.studies.model import TrialStatus

REFRESH_S = 0.25
LINES_AROUND = 7  # Of the table: its head, the bar, what is left out, the best, and lines that stay empty.
LEAST_ROWS = 3
BAR_COLUMNS = 40
UNENDED = (TrialStatus.RUNNING, TrialStatus.WAITING)


@contextmanager
def shown(console: Console, errors: SearchConsole, made: Callable[[], RenderableType]) -> Iterator[Callable[[], None]]:
    """Show in a terminal, below what is printed, what `made` returns; yields what brings it up to date, where that is due.

    errors: the console of the standard error. Where it is a terminal, it is the same one.
    """
    due_s = time.monotonic()

    def show() -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + REFRESH_S
            live.update(made(), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        console.show_cursor()  # A command that is killed could not show it again.
        errors.through = console if errors.is_terminal else None
        try:
            yield show
        finally:
            errors.through = None


@contextmanager
def nothing_shown() -> Iterator[Callable[[], None]]:
    """Show nothing."""
    yield lambda: None


def frame(found: Sequence[TrialRow], devices: Mapping[str, Devices], count: int, in_rungs: bool, height: int) -> RenderableType:
    """Return what is shown now.

    found: ranked rows. devices: the GPUs of trials, by key. count: how many configurations the search has. height: lines of the
    terminal.
    """
    gpus = {short_name(key): where(held) for key, held in devices.items()}
    left = sorted(
        (row for row in found if row.status in UNENDED), key=lambda row: (row.status != TrialStatus.RUNNING, -row.iterations)
    )
    shown = left[: max(height - LINES_AROUND, LEAST_ROWS)]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("configuration", "status", *(("rung",) if in_rungs else ())):
        made.add_column(name)
    for name in ("iteration", "loss"):
        made.add_column(name, justify="right")
    made.add_column("GPUs")
    for row in shown:
        rung = [row.rung.removeprefix("rung")] if in_rungs else []
        cells = [row.name, row.status, *rung, f"{row.iterations:g}", "" if row.loss is None else f"{row.loss:.4g}"]
        made.add_row(*map(escape, (*cells, gpus.get(row.name, ""))))
    others = [Text(f"and {len(left) - len(shown)} more")] if len(left) > len(shown) else []
    return Group(made, *others, _summary(found, count), *_best(found))


def _summary(found: Sequence[TrialRow], count: int) -> Table:
    statuses = Counter(row.status for row in found)
    ended = len(found) - sum(statuses[status] for status in UNENDED)
    parts = [f"{number} {status}" for status, number in sorted(statuses.items()) if status not in UNENDED]
    line = Table.grid(padding=(0, 1))
    what = f"{ended} of {count} configurations have ended" + (f" ({', '.join(parts)})" if parts else "")
    line.add_row(ProgressBar(total=count, completed=ended, width=BAR_COLUMNS), Text(what))
    return line


def _best(found: Sequence[TrialRow]) -> list[Text]:
    best = best_of(found)
    if best is None:
        return []
    values = values_line(best.values)
    return [Text(f"best so far: {best.name}, loss {best.loss:.4g}" + (f" ({values})" if values else ""))]
