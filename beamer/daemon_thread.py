"""Work that may never return, beside an event loop: in threads that nobody waits for when the process ends."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_daemon_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, or raise what it raises.

    `asyncio.to_thread` would keep the process from ending for as long as it takes: for ever, where a database never answers.
    """
    run, done = _settling(partial(work, *args, **kwargs))
    threading.Thread(target=run, name=getattr(work, "__name__", "work"), daemon=True).start()
    return await done


class DaemonThread:
    """One such thread, for work that comes often: starting a thread takes longer than most of it."""

    def __init__(self, name: str) -> None:
        self._name = name
        # The thread takes its work from this queue; None means that there is no thread.
        self._given: SimpleQueue[Callable[[], None] | None] | None = None

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns, or raise what it raises; it is begun when what was given before is done."""
        if self._given is None:
            self._given = SimpleQueue()
            threading.Thread(target=_do_all, args=(self._given,), name=self._name, daemon=True).start()
        run, done = _settling(partial(work, *args, **kwargs))
        self._given.put(run)
        return await done

    def end(self) -> None:
        """Have the thread end when it has done what it was given; others are not waited for."""
        if self._given is not None:
            self._given.put(None)
            self._given = None


def _do_all(given: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (run := given.get()) is not None:
        run()


def _settling(work: Callable[[], T]) -> tuple[Callable[[], None], "asyncio.Future[T]"]:
    """Return what a thread is to run, and what then has the result of `work` on this loop."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():  # Nobody waits any more.
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  # The exception is raised where the result is awaited.
            error = raised
        with suppress(RuntimeError):  # The loop may have ended.
            loop.call_soon_threadsafe(settle, result, error)

    return run, done
