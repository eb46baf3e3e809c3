"""How long an event loop's turns take, seen from inside: how late a timer is called, and what was computed meanwhile.

On a machine with other work the first is what peers notice, the second what is due to the loop itself.
"""

import asyncio
import time
from array import array

EVERY_S = 0.005


class TurnProbe:
    """Measures the loop that `run` runs on."""

    def __init__(self) -> None:
        self.late_s = array("d")
        self.busy_s = 0.0

    async def run(self) -> None:
        """Measure until cancelled. busy_s: the most processor time that the thread has taken between two looks."""
        loop = asyncio.get_running_loop()
        while True:
            due, before_s = loop.time() + EVERY_S, time.thread_time()
            await asyncio.sleep(EVERY_S)
            self.late_s.append(loop.time() - due)
            self.busy_s = max(self.busy_s, time.thread_time() - before_s)

    def quantile(self, share: float) -> float:
        """Return the lateness that this share of the turns does not exceed, 0 if there was none."""
        ordered = sorted(self.late_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def slower_than(self, limit_s: float) -> int:
        """Return how many turns were later than that."""
        return sum(late > limit_s for late in self.late_s)
