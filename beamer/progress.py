"""Shows on a terminal that a command is at work, and how far it is; nothing else, and nowhere else.

It is written to standard error, so that what a command prints may be kept, and it is gone when the work is done.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

REFRESHES_PER_S = 4


class Work:
    """Work that goes on, in as many parts as it has; without a terminal its methods do nothing."""

    def __init__(self, bars: Progress | None, task: TaskID | None) -> None:
        self._bars = bars
        self._task = task

    def begin(self, part: str) -> None:
        """Say what is done now."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, description=escape(part))

    def advance(self, count: int = 1) -> None:
        """Take in that so many more parts are done."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, count)


@contextmanager
def work(description: str, parts: int | None = None) -> Iterator[Work]:
    """Show work while the context lasts. parts: how many it has; None: not known, and they are not counted."""
    if not sys.stderr.isatty():
        yield Work(None, None)
        return
    counted = (BarColumn(), MofNCompleteColumn()) if parts is not None else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn())
    # What the command prints meanwhile goes where it would have gone; few refreshes take little from what is measured.
    shown = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, refresh_per_second=REFRESHES_PER_S
    )
    with shown as bars:
        yield Work(bars, bars.add_task(escape(description), total=parts))
