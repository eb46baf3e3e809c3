"""Work beside an event loop that may never return: its outcome, and that nobody waits for it at the end."""

import asyncio
import subprocess
import sys
import threading

import pytest

from beamer.daemon_thread import DaemonThread, in_daemon_thread


def test_what_it_returns_or_raises_is_the_callers() -> None:
    async def play() -> None:
        assert await in_daemon_thread(divmod, 7, 2) == (3, 1)
        assert not await in_daemon_thread(lambda: threading.current_thread() is threading.main_thread())
        with pytest.raises(ZeroDivisionError):
            await in_daemon_thread(divmod, 7, 0)

    asyncio.run(play())


def test_who_gives_up_does_not_wait_and_a_late_outcome_disturbs_nobody() -> None:
    gate, done = threading.Event(), threading.Event()

    def late() -> None:
        gate.wait(30)
        done.set()
        raise KeyError("late")

    async def play() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await in_daemon_thread(late)
        gate.set()
        assert await asyncio.to_thread(done.wait, 30)
        await asyncio.sleep(0.01)

    asyncio.run(play())


def test_one_thread_does_one_piece_after_another_until_it_is_to_end() -> None:
    async def play() -> None:
        thread = DaemonThread("worker")
        first, second = await asyncio.gather(thread.do(threading.current_thread), thread.do(threading.current_thread))
        assert first is second
        assert (first.name, first.daemon) == ("worker", True)
        with pytest.raises(ZeroDivisionError):
            await thread.do(divmod, 7, 0)
        thread.end()
        await asyncio.to_thread(first.join, 30)
        assert not first.is_alive()
        assert await thread.do(threading.current_thread) is not first
        thread.end()

    asyncio.run(play())


NEVER = """
import asyncio, threading
from beamer.daemon_thread import in_daemon_thread
async def play():
    task = asyncio.create_task(in_daemon_thread(threading.Event().wait))
    await asyncio.sleep(0.05)
    task.cancel()
asyncio.run(play())
print("ended")
"""


def test_a_process_ends_although_the_work_does_not() -> None:
    ended = subprocess.run([sys.executable, "-c", NEVER], check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")
