"""What is due when in simulated time: callbacks in order of time, equal times in order of entry."""

import heapq
import math
from collections.abc import Callable
from itertools import count

Callback = Callable[[], None]


class Agenda:
    """Callbacks to come; `now_s` is the simulated time in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._entries: list[tuple[float, int, Callback]] = []
        self._numbers = count()

    def after(self, seconds: float, callback: Callback) -> None:
        """Enter a callback that is due in `seconds`."""
        heapq.heappush(self._entries, (self.now_s + seconds, next(self._numbers), callback))

    def next_s(self) -> float:
        """Return the seconds until the next callback is due, infinite if there is none."""
        return max(self._entries[0][0] - self.now_s, 0.0) if self._entries else math.inf

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass and carry out what is due then, what those callbacks make due at once included."""
        self.now_s = self._entries[0][0] if self._entries and seconds >= self.next_s() else self.now_s + seconds
        while self._entries and self._entries[0][0] <= self.now_s:
            heapq.heappop(self._entries)[2]()
