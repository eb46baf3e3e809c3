"""The clock of live searches: events are on Unix time, and what is measured between them must not be negative."""

import time
from collections.abc import Callable


class SteadyClock:
    """Unix time that never goes back: where the system's clock is set back, it goes on from where it was.

    wall: the system's Unix time; elapsed: seconds on a clock that nobody sets.
    """

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._ahead_s = -elapsed()

    def __call__(self) -> float:
        """Return the time."""
        elapsed_s = self._elapsed()
        self._ahead_s = max(self._ahead_s, self._wall() - elapsed_s)
        return elapsed_s + self._ahead_s

    def start_from(self, at_s: float) -> None:
        """Go on from a time, unless it is later already: the latest time in a journal."""
        self._ahead_s = max(self._ahead_s, at_s - self._elapsed())
