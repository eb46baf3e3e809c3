"""Writes events off the event loop: in order, as many in one transaction as have come while the one before was written.

An event takes effect when it is put, and what depends on its being durable waits until it is written: answers to whoever
reported it, and plans on their way to switches and agents. While the journal cannot be written nothing more is put.

Who leads by a shared database has to be heard by it. The server lets another process lead when it has heard nothing for
`SESSION_S`; a leader that hears nothing for `SILENT_S` cannot know that it still is one, and is to end.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from beamer.daemon_thread import DaemonThread
from beamer.errors import InputError, PlatformError, SilentError, TakenError
from beamer.studies.events import EncodedEvent, Event, encode
from beamer.studies.journal.location import Location
from beamer.studies.journal.sessions import SILENT_S, WORK_S
from beamer.studies.journal.store import MAX_TERM, Journal, JournalSnapshot

MAX_WAITING_EVENTS = 20_000  # So many events are some seconds' worth of what a controller takes in.
MAX_TRANSACTION_EVENTS = 2_000  # A transaction has at most so many events, so that nobody waits for much more than his own.
RETRY_S = 1.0  # The next try comes so long after the journal could not be written.
KEEP_S = 0.5  # Signs of life come at this interval where nothing is written.
CLOSING_S = 5.0  # Closing waits at most so long for what is left.

log = logging.getLogger("beamer.journal")


class Batches:
    """Write to `journal`; everything here runs on one event loop, but for the writing itself.

    on_lost: called when another process has the right to write, or may have it, as the database does not answer: nothing will
    be written any more. failure: why the journal takes no events now, None if it does.
    """

    def __init__(self, journal: Journal, on_lost: Callable[[PlatformError], None] = lambda error: None) -> None:
        self._journal = journal
        self._on_lost = on_lost
        self._keeping: asyncio.Task[None] | None = None
        self._keep_due = self._lost = False
        self._waiting: deque[EncodedEvent] = deque()
        self._put = self._written = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._asked: list[asyncio.Future[None]] = []
        self._actions: deque[tuple[int, Callable[[], None]]] = deque()
        self._due_actions = 0  # actions that are called in the next turn of the loop
        self._compacting: deque[Iterator[None]] = deque()
        self._least_term = 0
        self.failure: PlatformError | None = None
        self._task: asyncio.Task[None] | None = None
        self._in_thread = False
        self._thread = DaemonThread("journal")
        self._unanswered = 0  # signs of life that were due since the database has answered
        self._patience_s = SILENT_S  # The database may be silent for so long with what is written now.

    @property
    def waiting(self) -> int:
        """How many events have not been written yet."""
        return len(self._waiting)

    @property
    def location(self) -> Location:
        """Where the journal is."""
        return self._journal.location

    @property
    def term(self) -> int:
        """As of `Journal`."""
        return self._journal.term

    def put(self, event: Event) -> int:
        """Have an event written; return its length. Raises `PlatformError`, and takes nothing, while it cannot be in time."""
        if self.failure is not None:
            raise self.failure
        if len(self._waiting) >= MAX_WAITING_EVENTS:
            raise PlatformError(f"{len(self._waiting)} events wait to be written to the journal", "send them again later")
        encoded = encode(event)
        self._waiting.append(encoded)
        self._put += 1
        self._ensure_task()
        return len(encoded[1])

    def compact(self, snapshot: JournalSnapshot) -> None:
        """Have a snapshot written in place of the events that it was made from."""
        self._compacting.append(self._journal.compacting(snapshot))
        self._ensure_task()

    async def written(self) -> None:
        """Wait until everything that was put so far is durable. Raises `PlatformError` if the journal cannot be written."""
        if self._written < self._put:
            if self.failure is not None:
                raise self.failure
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((self._put, waiter))
            await waiter
        elif self._due_actions:
            await asyncio.sleep(0)  # The due actions are called first.

    async def confirm(self) -> None:
        """Wait until this process has been found to have the right to write, after now. Raises `PlatformError` if it is not."""
        if self._journal.is_shared:
            await self._ask()

    async def raise_term(self, least: int) -> int:
        """Have the term of this writer be at least `least`, as `Journal.raise_term`, and return it.

        Raises `PlatformError` if it is found to have it no more, and `InputError` for a term that none can be.
        """
        if least > MAX_TERM:
            raise InputError("term", least, f"at most {MAX_TERM}")
        self._least_term = max(self._least_term, least)
        await self._ask()
        return self.term

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
            await asyncio.wait({task}, timeout=0.0 if self._lost else CLOSING_S)
            task.cancel()
            await asyncio.wait({task})
        if self._waiting:
            log.error("%d events were not written to the journal", len(self._waiting))
        self.failure = self.failure or PlatformError("the journal is closed", "send it to the controller that is started next")
        if self._in_thread:
            log.error("the journal is left as it is: it does not answer")
        else:
            self._journal.close()
        self._thread.end()

    async def _ask(self) -> None:
        """Wait for an answer of the database to what is asked after now."""
        if self._lost and self.failure is not None:
            raise self.failure
        waiter = asyncio.get_running_loop().create_future()
        self._asked.append(waiter)
        self._keep_due = True
        self._ensure_task()
        await waiter

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            self._unanswered += 1
            # Signs are counted, not time: a process that was stopped, or whose loop stood, has time to hear an answer first.
            if self._journal.is_shared and self._unanswered > math.ceil(self._patience_s / KEEP_S):
                self._lose(
                    SilentError(
                        f"the journal's database has not answered for {self._unanswered * KEEP_S:g} s",
                        "another controller may lead by now; start this one again",
                    )
                )
                return
            self._keep_due = True
            self._ensure_task()

    def _ensure_task(self) -> None:
        if self._task is None and not self._lost:
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._is_busy() and not self._lost:
                if not await self._write_some():
                    await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    def _is_busy(self) -> bool:
        return bool(self._waiting or self._actions or self._compacting or self._keep_due)

    async def _write_some(self) -> bool:
        """Write the events that wait now, or compact where none do; return whether that could be done."""
        batch = [self._waiting[i] for i in range(min(len(self._waiting), MAX_TRANSACTION_EVENTS))]
        asked = len(self._asked)
        step = self._compacting.popleft() if self._compacting and not batch else None
        is_heard = bool(batch) or self._keep_due
        self._in_thread, self._patience_s = True, WORK_S if step is not None else SILENT_S
        try:
            more = await self._thread.do(self._carry_out, batch, step, self._least_term, self._keep_due)
        except Exception as error:  # noqa: BLE001  # A defect here must not keep all that comes later from being written.
            self._in_thread = False
            return self._has_failed(error)
        self._in_thread = False
        if not self._lost:
            if step is not None and more:
                self._compacting.appendleft(step)
            if is_heard:
                self._note_heard(asked)
            self._note_written(len(batch))
        return True

    def _has_failed(self, error: Exception) -> bool:
        """Take in why something could not be written; return whether it is not to be tried again."""
        if isinstance(error, TakenError):
            self._lose(error)
        elif isinstance(error, PlatformError):
            self._unanswered = self._unanswered if isinstance(error, SilentError) else 0
            self._fail(error)
        else:
            what = f"an event cannot be written ({type(error).__name__}: {error})"
            self._fail(PlatformError(what, "see the controller's log"))
        return self._lost

    def _carry_out(self, batch: list[EncodedEvent], step: Iterator[None] | None, least_term: int, keep: bool) -> bool:
        """Do what is due, in a thread; return whether `step` has another one after it."""
        if least_term > self._journal.term:
            self._journal.raise_term(least_term)
        if batch:
            self._journal.append_encoded(batch)
            return False
        more = step is not None and _advance(step)
        if keep:
            self._journal.keep()
        return more

    def _note_heard(self, asked: int) -> None:
        """Take in that the database has answered in this session."""
        self._unanswered = 0
        _resolve(self._asked[:asked])
        del self._asked[:asked]
        self._keep_due = bool(self._asked)  # Whoever has asked meanwhile needs a later sign.
        if self.failure is not None:
            log.warning("the journal takes events again")
            self.failure = None

    def _note_written(self, events: int) -> None:
        for _ in range(events):
            self._waiting.popleft()
        self._written += events
        loop = asyncio.get_running_loop()
        while self._actions and self._actions[0][0] <= self._written:
            self._due_actions += 1
            loop.call_soon(self._act, self._actions.popleft()[1])
        while self._waiters and self._waiters[0][0] <= self._written:
            _resolve([self._waiters.popleft()[1]])

    def _act(self, action: Callable[[], None]) -> None:
        self._due_actions -= 1
        action()

    def _lose(self, error: PlatformError) -> None:
        self._fail(error)
        if not self._lost:
            self._lost = True
            self._on_lost(error)

    def _fail(self, error: PlatformError) -> None:
        if self.failure is None:
            log.error("the journal takes no events: %s", error)
        self.failure = error
        for waiter in (*self._asked, *(waiter for _, waiter in self._waiters)):
            if not waiter.done():
                waiter.set_exception(self.failure)
        self._asked.clear()
        self._waiters.clear()


def _advance(step: Iterator[None]) -> bool:
    """Do one step of compacting, or give it up, which leaves the events as they are; return whether there is another one.

    Raises `TakenError` and `SilentError`.
    """
    try:
        next(step)
    except StopIteration:
        return False
    except (TakenError, SilentError):
        raise
    except Exception as error:  # noqa: BLE001  # Events can do without a snapshot, whatever the exception is.
        log.error("the journal takes no snapshot: %s", error)
        return False
    return True


def _resolve(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():  # Nobody waits any more.
            waiter.set_result(None)
