"""Waiting for runs that are made elsewhere."""

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from eval.workers import as_they_end


def test_futures_are_yielded_as_they_end() -> None:
    first, second = Future[int](), Future[int]()
    first.set_result(1)
    ended = as_they_end([second, first])
    assert next(ended) is first
    second.set_result(2)
    assert [future.result() for future in ended] == [2]


class CameError(Exception):
    """Raised by the handler of the test's signal."""


@pytest.fixture
def handled() -> Iterator[None]:
    def handle(number: int, frame: object) -> None:
        raise CameError

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("handled")
def test_a_signal_that_does_not_wake_the_main_thread_is_handled_while_a_run_lasts() -> None:
    over = threading.Event()

    def run() -> None:
        time.sleep(0.2)  # until it is waited for
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        over.wait(10)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run)
        try:
            with pytest.raises(CameError):
                next(as_they_end([future]))
            assert not future.done()
        finally:
            over.set()
