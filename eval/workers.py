"""Where a study's runs are made: in processes that do not outlive the command that started them, or on a Ray cluster."""

import signal
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from multiprocessing import active_children
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from beamer.errors import InputError
from beamer.lazy_commands import install_command
from eval.ray_workers import ray_workers

R = TypeVar("R")
SIGNAL_CHECK_S = 0.5  # how late at most a signal is handled that did not wake the main thread


class Pool(Protocol):
    """Makes calls elsewhere, as an executor of `concurrent.futures` does."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        """Have a call made, and return its future."""


Workers = Callable[[int], AbstractContextManager[Pool]]
"""Opens a pool for so many calls."""


def on_processes(most: int) -> Workers:
    """Return so many processes of this machine, or one per call if there are fewer calls."""
    return lambda calls: worker_processes(min(most, calls))


def chosen_workers(processes: int, ray_address: str | None) -> Workers:
    """Return the Ray cluster at an address, or so many processes if none is given. Raises `InputError` where Ray is missing."""
    if ray_address is None:
        return on_processes(processes)
    if find_spec("ray") is None:
        raise InputError("--ray", ray_address, f"Ray, which is not installed: {install_command('ray')}")
    return lambda calls: ray_workers(ray_address)


def as_they_end(futures: Collection["Future[R]"]) -> Iterator["Future[R]"]:
    """Yield futures as they end, and let signals be handled meanwhile.

    `concurrent.futures.as_completed` may not return until a run ends, although a signal has come: Python runs handlers in the
    main thread, which a signal that arrives just before it blocks does not wake.
    """
    ended: SimpleQueue[Future[R]] = SimpleQueue()
    for future in futures:
        future.add_done_callback(ended.put)
    left = len(futures)
    while left:
        try:
            future = ended.get(timeout=SIGNAL_CHECK_S)
        except Empty:
            continue
        left -= 1
        yield future


@contextmanager
def worker_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes, which end at once, with what they run, if an exception leaves the context."""
    others = set(active_children())
    pool = ProcessPoolExecutor(count, initializer=_end_on_sigterm)
    try:
        yield pool
    except BaseException:
        for process in set(active_children()) - others:
            process.terminate()
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _end_on_sigterm() -> None:
    """End by SIGTERM, though the process that a worker was made from may handle it otherwise."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
