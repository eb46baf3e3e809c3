"""Work that may never return, beside an event loop: in threads that nobody waits for when the process ends."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_daemon_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, or raise what it raises.

    `asyncio.to_thread` would keep the process from ending for as long as it takes: for ever, where a database never answers.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():  # nobody waits any more
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # of `work`

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001  # it is raised where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=getattr(work, "__name__", "work"), daemon=True).start()
    return await done
