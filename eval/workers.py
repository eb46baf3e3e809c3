"""Processes that a study's runs are made in, which do not outlive the command that started them."""

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children


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
