"""A timer of the event loop that keeps the earliest of the times asked for."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Runs an action once, at the earliest of the times asked for."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

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
        self._handle = None
        self._action()
