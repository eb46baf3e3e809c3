"""An event loop under test, in a thread of its own: a turn of it that never ends is found out instead of ending the run."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

from eval.fuzz.turns import TurnProbe

PATIENCE_S = 20.0  # Work that takes milliseconds has so long.

T = TypeVar("T")


class Defects(logging.Handler):
    """Keeps the exceptions that a logger is told of: what is refused on purpose comes without a traceback."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        if record.exc_info and record.exc_info[1] is not None:
            self._faults.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def defects_of(logger: str, faults: list[str]) -> Iterator[None]:
    """Add to `faults` whatever a logger is told of as an exception."""
    handler = Defects(faults)
    logging.getLogger(logger).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(logger).removeHandler(handler)


class LoopThread:
    """Runs one coroutine until the context ends. faults: exceptions that nobody handled, or were logged; probe: of its turns.

    logger: which is told of exceptions.
    """

    def __init__(self, work: Coroutine[Any, Any, None], logger: str) -> None:
        self.faults: list[str] = []
        self._logged = ExitStack()
        self._logged.enter_context(defects_of(logger, self.faults))
        self.probe = TurnProbe()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.faults.append(repr(context.get("exception") or context)))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._coroutine = work
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._logged.close()
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE_S)
        except TimeoutError:
            return  # The loop is caught in a turn, which the findings say.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def ask(self, read: Callable[[], T]) -> T:
        """Return what is read between two turns. Raises `TimeoutError` where one does not end."""

        async def reading() -> T:
            return read()

        return asyncio.run_coroutine_threadsafe(reading(), self._loop).result(PATIENCE_S)

    def disturbance(self) -> str | None:
        """Return what has become of it that should not have, None if nothing."""
        if self.faults:
            return self.faults[0]
        try:
            ended = self.ask(lambda: self._task is None or self._task.done())
        except TimeoutError:
            return f"a turn of the loop did not end within {PATIENCE_S:g} s"
        return f"it has ended: {self._task!r}" if ended else None

    async def _begin(self) -> None:
        self._task = asyncio.create_task(self._coroutine)
        self._probing = asyncio.create_task(self.probe.run())

    async def _end(self) -> None:
        assert self._task is not None
        for task in (self._probing, self._task):
            task.cancel()
        await asyncio.wait({self._probing, self._task})
