"""Writes events off the event loop: in order, as many in one transaction as have come while the one before was written.

An event takes effect when it is put, and what depends on its being durable waits until it is written: answers to whoever
reported it, and plans on their way to switches and agents. While the journal cannot be written nothing more is put.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from beamer.errors import BeamerError, PlatformError, TakenError
from beamer.studies.events import EncodedEvent, Event, encode
from beamer.studies.journal.location import Location
from beamer.studies.journal.store import Journal, JournalSnapshot

MOST_WAITING = 20_000  # events: some seconds' worth of what a controller takes in
MOST_AT_ONCE = 2_000  # in a transaction, so that nobody waits for much more than his own
RETRY_S = 1.0  # after the journal could not be written
KEEP_S = 1.0  # between signs of life where nothing is written
CLOSING_S = 5.0  # that closing waits at most for what is left

log = logging.getLogger("beamer.journal")


class Batches:
    """Write to `journal`; everything here runs on one event loop, but for the writing itself.

    on_taken: called when another process has the right to write: nothing will be written any more.
    """

    def __init__(self, journal: Journal, on_taken: Callable[[TakenError], None] = lambda error: None) -> None:
        self._journal = journal
        self._on_taken = on_taken
        self._keeping: asyncio.Task[None] | None = None
        self._keep_due = self._taken = False
        self._waiting: deque[EncodedEvent] = deque()
        self._put = self._written = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._asked: list[asyncio.Future[None]] = []
        self._actions: deque[tuple[int, Callable[[], None]]] = deque()
        self._snapshots: deque[JournalSnapshot] = deque()
        self._failure: PlatformError | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many events have not been written yet."""
        return len(self._waiting)

    def put(self, event: Event) -> None:
        """Have an event written. Raises `PlatformError`, and takes nothing, while the journal cannot be written in time."""
        if self._failure is not None:
            raise self._failure
        if len(self._waiting) >= MOST_WAITING:
            raise PlatformError(f"{len(self._waiting)} events wait to be written to the journal", "send them again later")
        self._waiting.append(encode(event))
        self._put += 1
        self._ensure_task()

    @property
    def location(self) -> Location:
        """Where the journal is."""
        return self._journal.location

    def compact(self, snapshot: JournalSnapshot) -> None:
        """Have a snapshot written in place of the events that it was made from."""
        self._snapshots.append(snapshot)
        self._ensure_task()

    async def written(self) -> None:
        """Wait until everything that was put so far is durable. Raises `PlatformError` if the journal cannot be written."""
        if self._written < self._put:
            if self._failure is not None:
                raise self._failure
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((self._put, waiter))
            await waiter

    async def confirm(self) -> None:
        """Wait until this process has been found to have the right to write, after now. Raises `PlatformError` if it is not."""
        if not self._journal.is_shared:
            return
        if self._taken and self._failure is not None:
            raise self._failure
        waiter = asyncio.get_running_loop().create_future()
        self._asked.append(waiter)
        self._keep_due = True
        self._ensure_task()
        await waiter

    def then(self, action: Callable[[], None]) -> None:
        """Call `action` on the loop when everything that was put so far is durable, however long that takes.

        It is called before whoever waits for the same goes on.
        """
        self._actions.append((self._put, action))
        self._ensure_task()

    def keep(self) -> None:
        """Keep the right to write while nothing is written, until `close`."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Wait a while for what is left, and let go of the journal."""
        self._actions.clear()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if (task := self._task) is not None:
            await asyncio.wait({task}, timeout=CLOSING_S)
            task.cancel()
            await asyncio.wait({task})
        if self._waiting:
            log.error("%d events were not written to the journal", len(self._waiting))
        self._journal.close()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            self._keep_due = True
            self._ensure_task()

    def _ensure_task(self) -> None:
        if self._task is None and not self._taken:
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while (self._waiting or self._actions or self._snapshots or self._keep_due) and not self._taken:
                if not await self._write_some():
                    await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    async def _write_some(self) -> bool:
        """Write the events that wait now, or a snapshot where none do; return whether that could be done."""
        batch = [self._waiting[i] for i in range(min(len(self._waiting), MOST_AT_ONCE))]
        asked = len(self._asked)
        try:
            if batch:
                await asyncio.to_thread(self._journal.append_encoded, batch)
            elif self._snapshots:
                await self._compact(self._snapshots.popleft())
            elif self._keep_due:
                await asyncio.to_thread(self._journal.keep)
        except TakenError as error:
            self._fail(error)
            self._taken = True
            self._on_taken(error)
            return True
        except PlatformError as error:
            self._fail(error)
            return False
        except Exception as error:  # noqa: BLE001  # a defect here must not keep all that comes later from being written
            self._fail(
                PlatformError(f"an event cannot be written ({type(error).__name__}: {error})", "see the controller's log")
            )
            return False
        _resolve(self._asked[:asked])
        del self._asked[:asked]
        self._keep_due = bool(self._asked)  # whoever has asked meanwhile needs a later sign
        if self._failure is not None:
            log.warning("the journal takes events again")
            self._failure = None
        for _ in batch:
            self._waiting.popleft()
        self._written += len(batch)
        loop = asyncio.get_running_loop()
        while self._actions and self._actions[0][0] <= self._written:
            loop.call_soon(self._actions.popleft()[1])
        while self._waiters and self._waiters[0][0] <= self._written:
            _resolve([self._waiters.popleft()[1]])
        return True

    async def _compact(self, snapshot: JournalSnapshot) -> None:
        """Write a snapshot, or leave the events as they are: they can do without it. Raises `TakenError`."""
        try:
            await asyncio.to_thread(self._journal.compact, snapshot)
        except TakenError:
            raise
        except BeamerError as error:
            log.error("the journal takes no snapshot: %s", error)

    def _fail(self, error: PlatformError) -> None:
        if self._failure is None:
            log.error("the journal takes no events: %s", error)
        self._failure = error
        for waiter in (*self._asked, *(waiter for _, waiter in self._waiters)):
            if not waiter.done():
                waiter.set_exception(self._failure)
        self._asked.clear()
        self._waiters.clear()


def _resolve(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():  # nobody waits any more
            waiter.set_result(None)
