"""What is shown of runs while they go on: bars on a terminal; elsewhere lines, as a log has them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

BETWEEN_LINES_S = 60.0  # Two lines about runs that go on are at least so far apart; each run that ends has one at once.


class RunsProgress(ABC):
    """Shows runs, each by its title; runs call it from several threads."""

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
    """A bar for all runs, and one for each that goes on."""

    def __init__(self, bars: Progress, whole: TaskID) -> None:
        self._bars = bars
        self._whole = whole
        self._tasks: dict[str, TaskID] = {}

    def start(self, title: str) -> None:
        """Add its bar."""
        self._tasks[title] = self._bars.add_task(title, total=None)

    def advance(self, title: str, done: int, total: int) -> None:
        """Move its bar."""
        self._bars.update(self._tasks[title], completed=done, total=total)

    def end(self, title: str) -> None:
        """Remove its bar, and move that of all runs."""
        self._bars.remove_task(self._tasks.pop(title))
        self._bars.advance(self._whole)


class ProgressLines(RunsProgress):
    """A line for each run that ends, and meanwhile one about those that go on, now and then.

    known: how many of the runs have ended before. clock: seconds.
    """

    def __init__(self, console: Console, runs: int, known: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._runs = runs
        self._ended = known
        self._clock = clock
        self._begun_s = self._last_s = clock()
        self._going_on: dict[str, str] = {}
        self._lock = Lock()

    def start(self, title: str) -> None:
        """Take it in."""
        with self._lock:
            self._going_on[title] = "just begun"

    def advance(self, title: str, done: int, total: int) -> None:
        """Print a line about all that go on, unless there has been one lately."""
        with self._lock:
            self._going_on[title] = f"{done} of {total} jobs"
            if self._clock() - self._last_s >= BETWEEN_LINES_S:
                self._print("; ".join(f"{one}: {state}" for one, state in self._going_on.items()))

    def end(self, title: str) -> None:
        """Print a line about it."""
        with self._lock:
            del self._going_on[title]
            self._ended += 1
            self._print(f"ended: {title}")

    def _print(self, text: str) -> None:
        self._last_s = self._clock()
        self._console.print(
            f"{self._ended} of {self._runs} runs, {self._last_s - self._begun_s:.0f} s; {text}", highlight=False
        )


@contextmanager
def runs_progress(console: Console, title: str, runs: int, known: int) -> Iterator[RunsProgress]:
    """Show runs while the context lasts. known: how many of them have ended before."""
    if not console.is_terminal:
        console.print(f"{title}: {runs} runs, {known} of them known", highlight=False)
        yield ProgressLines(console, runs, known)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        yield ProgressBars(bars, bars.add_task(title, total=runs, completed=known))
