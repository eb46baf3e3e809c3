"""A timer of the event loop that keeps the earliest of the times asked for, and leaves time for everything else."""

import asyncio
from collections.abc import Callable

PAUSE = 3.0  # times as long as an action took it is not run again: what grows with all that runs takes a quarter of the time


class Alarm:
    """Runs an action once, at the earliest of the times asked for, but not before it has rested since the last time.

    pause: how long that is, in times of what the action took.
    """

    def __init__(self, action: Callable[[], None], pause: float = PAUSE) -> None:
        self._action = action
        self._pause = pause
        self._handle: asyncio.TimerHandle | None = None
        self._rested_at = 0.0

    def within(self, delay_s: float) -> None:
        """Run the action within `delay_s` seconds from now."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        if self._handle is None or due < self._handle.when():
            self.cancel()
            self._handle = loop.call_at(due, self._fire)

    def cancel(self) -> None:
        """Forget the times asked for."""
        if self._handle:
            self._handle.cancel()
        self._handle = None

    def _fire(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if began < self._rested_at:
            self._handle = loop.call_at(self._rested_at, self._fire)
            return
        self._handle = None
        self._action()
        ended = loop.time()
        self._rested_at = ended + self._pause * (ended - began)
