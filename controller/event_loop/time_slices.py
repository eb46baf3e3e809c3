"""Long work beside everything else on the event loop: a slice at a time, and of each kind of work one in a turn of the loop.

If everybody who has something long to do did a slice in each turn, slices would add up, and all others would wait for the sum.
"""

import asyncio
import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")

Work = Generator[int, None, T]
"""Yields how many items it has done since it yielded last, and returns a result."""

SLICE = 256  # items of work done in a turn, each of which takes some 10 to 20 microseconds
CHEAP = 16  # So many things that have not changed count as one item.


class TimeSlices:
    """Grant one slice of work in each turn of the loop: of those who wait for one, whoever began first.

    So the first to begin ends first, unless it waits for something else, a peer that takes its answer slowly, say.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._is_granting = False

    def begin(self) -> int:
        """Return the place of a piece of work that begins now among all others."""
        return next(self._numbers)

    async def granted(self, place: int) -> None:
        """Wait for a turn in which a slice may be done."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        heapq.heappush(self._waiting, (place, next(self._numbers), turn))
        if not self._is_granting:
            self._is_granting = True
            loop.call_soon(self._grant)
        await turn

    def _grant(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():  # Nobody waits any more for a turn that is done.
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._grant)
                return
        self._is_granting = False

    async def do(self, work: Work[T], most: int | None = None) -> T:
        """Do work in slices of at least `most` items, `SLICE` by default, and return its result."""
        place = self.begin()
        while True:
            await self.granted(place)
            done = 0
            while done < (SLICE if most is None else most):
                try:
                    done += next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result


def batched(items: Iterable[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield items in groups of `size`, the last one perhaps smaller."""
    rest = iter(items)
    while group := tuple(islice(rest, size)):
        yield group


def at_once(work: Work[T]) -> T:
    """Do work to its end and return its result: where nobody waits meanwhile."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
