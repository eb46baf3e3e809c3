"""Unix time that never goes back, for processes that stamp what happens and measure what lies between."""

import time
from collections.abc import Callable


def _since_boot() -> float:
    # This clock goes on while the machine is suspended, as Unix time does and the monotonic clock does not.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Return Unix time in seconds: as the wall clock said at first, and from then on by the time that passes.

    Setting the wall clock changes nothing until the process starts again, and then only `not_before` keeps time from going
    back. wall: Unix time. elapsed: seconds since some fixed point, suspended time included.
    """

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _since_boot) -> None:
        self._elapsed = elapsed
        self._offset_s = wall() - elapsed()

    def __call__(self) -> float:
        """Return the time now."""
        return self._offset_s + self._elapsed()

    def not_before(self, at_s: float) -> None:
        """Move the clock forward to a time that is known to have passed, if it is behind."""
        self._offset_s = max(self._offset_s, at_s - self._elapsed())
