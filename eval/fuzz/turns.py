"""How long an event loop's turns take, seen from inside: a timer that notes how late it is called."""

import asyncio
from array import array

EVERY_S = 0.005


class TurnProbe:
    """Measures the loop that `run` runs on."""

    def __init__(self) -> None:
        self.late_s = array("d")

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY_S
            await asyncio.sleep(EVERY_S)
            self.late_s.append(loop.time() - due)

    def quantile(self, share: float) -> float:
        """Return the lateness that this share of the turns does not exceed, 0 if there was none."""
        ordered = sorted(self.late_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def slower_than(self, limit_s: float) -> int:
        """Return how many turns were later than that."""
        return sum(late > limit_s for late in self.late_s)
