"""What is shown of runs while they go on: bars on a terminal; elsewhere lines, as a log has them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINES = 10  # So many of the runs that end have a line, or all if they are fewer.
BETWEEN_LINES_S = 60.0  # The others have one where the last line is so old.


class RunsProgress(ABC):
    """Shows runs, each by its title; several threads may call it.

    Of a run that nothing is known of before it ends, it is told the end alone.
    """

    @abstractmethod
    def start(self, title: str) -> None:
        """Show that a run has begun."""

    @abstractmethod
    def advance(self, title: str, done: int, total: int) -> None:
        """Show how many of a run's jobs have ended, of how many."""

    @abstractmethod
    def end(self, title: str) -> None:
        """Show that a run has ended."""


class ProgressBars(RunsProgress):
    """A bar for all runs, and one for each that is known to go on."""

    def __init__(self, bars: Progress, title: str, runs: int, known: int) -> None:
        self._bars = bars
        self._title = title
        self._whole = bars.add_task(title, total=runs, completed=known)
        self._tasks: dict[str, TaskID] = {}

    def start(self, title: str) -> None:
        """Add its bar."""
        self._tasks[title] = self._bars.add_task(title, total=None)

    def advance(self, title: str, done: int, total: int) -> None:
        """Move its bar."""
        self._bars.update(self._tasks[title], completed=done, total=total)

    def end(self, title: str) -> None:
        """Remove its bar, and move that of all runs, which names it."""
        if title in self._tasks:
            self._bars.remove_task(self._tasks.pop(title))
        self._bars.update(self._whole, advance=1, description=f"{self._title}: {title}")


class ProgressLines(RunsProgress):
    """A line for some of the runs that end, and one a minute about those that go on.

    title: of all runs. known: how many of them have ended before. clock: seconds.
    """

    def __init__(
        self, console: Console, title: str, runs: int, known: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._title = title
        self._runs = runs
        self._known = self._ended = known
        self._clock = clock
        self._begun_s = self._last_s = clock()
        self._going_on: dict[str, str] = {}
        self._lock = Lock()
        console.print(f"{title}: {runs} runs, {known} of them known", highlight=False)

    def start(self, title: str) -> None:
        """Take it in."""
        with self._lock:
            self._going_on[title] = "just begun"

    def advance(self, title: str, done: int, total: int) -> None:
        """Print a line about all that go on, unless there has been one lately."""
        with self._lock:
            self._going_on[title] = f"{done} of {total} jobs"
            if self._is_due():
                self._print("; ".join(f"{one}: {state}" for one, state in self._going_on.items()))

    def end(self, title: str) -> None:
        """Print a line about it, where it is one of those that have one."""
        with self._lock:
            self._going_on.pop(title, None)
            self._ended += 1
            made, all_made = self._ended - self._known, self._runs - self._known
            if made * LINES // all_made > (made - 1) * LINES // all_made or self._is_due():
                self._print(f"ended: {title}")

    def _is_due(self) -> bool:
        return self._clock() - self._last_s >= BETWEEN_LINES_S

    def _print(self, text: str) -> None:
        self._last_s = self._clock()
        seconds = self._last_s - self._begun_s
        self._console.print(f"{self._title}: {self._ended} of {self._runs} runs, {seconds:.0f} s; {text}", highlight=False)


@contextmanager
def runs_progress(console: Console, title: str, runs: int, known: int) -> Iterator[RunsProgress]:
    """Show runs while the context lasts. known: how many of them have ended before."""
    if not console.is_terminal:
        yield ProgressLines(console, title, runs, known)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        yield ProgressBars(bars, title, runs, known)
