"""A timer of the event loop that keeps the earliest of the times asked for, and leaves time for everything else.

Of what an action takes no more counts than the process used of its processors meanwhile: one that only waited, for a lock or a
processor that others had, has kept nobody from anything, and a long rest after it would.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

# The rest is so many times as long as the action took: work that grows with all that runs takes a quarter of the time.
PAUSE = 3.0

Action = Callable[[], Coroutine[Any, Any, float | None] | None]
"""What is done at once, or begun: a coroutine is run in a task of its own, and may return for how many seconds it worked."""


class WakeTimer:
    """Runs an action once, at the earliest of the times asked for, but not before it has ended and rested since the last time.

    pause: how long that is, in times of what the action took. used_s: the processor time used so far, in seconds.
    """

    def __init__(self, action: Action, pause: float = PAUSE, used_s: Callable[[], float] = time.process_time) -> None:
        self._action = action
        self._pause = pause
        self._used_s = used_s
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[float | None] | None = None
        self._rested_at = 0.0
        self._stopped = False

    def within(self, delay_s: float) -> None:
        """Run the action within `delay_s` seconds from now, unless it was stopped."""
        if self._stopped:
            return
        due = asyncio.get_running_loop().time() + delay_s
        if self._due is None or due < self._due:
            self._due = due
            self._set_timer()

    def cancel(self) -> None:
        """Forget the times asked for; an action that has begun goes on."""
        self._due = None
        self._set_timer()

    async def stop(self) -> None:
        """Forget the times asked for, now and later, and give up an action that has begun."""
        self._stopped = True
        self.cancel()
        if (task := self._task) is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due is not None and self._task is None:
            self._timer = asyncio.get_running_loop().call_at(max(self._due, self._rested_at), self._fire)

    def _fire(self) -> None:
        loop = asyncio.get_running_loop()
        began, before_s = loop.time(), self._used_s()
        self._due = self._timer = None
        work = self._action()
        if work is None:
            self._rest(began, before_s)
        else:
            self._task = loop.create_task(work)
            self._task.add_done_callback(partial(self._ended, began, before_s))

    def _ended(self, began: float, before_s: float, task: asyncio.Task[float | None]) -> None:
        self._task = None
        failed = task.cancelled() or task.exception() is not None
        self._rest(began, before_s, None if failed else task.result())
        if not task.cancelled():
            task.result()  # The event loop reports whatever the action raised, as if it had been raised at once.

    def _rest(self, began: float, before_s: float, worked_s: float | None = None) -> None:
        """Rest after an action. began: on the loop's clock. before_s: processor time used by then. worked_s: what it says."""
        now = asyncio.get_running_loop().time()
        took_s = min(now - began if worked_s is None else worked_s, self._used_s() - before_s)
        self._rested_at = now + self._pause * took_s
        self._set_timer()
