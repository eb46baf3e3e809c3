"""SIGINT and SIGTERM of a command that saves its jobs first: two are counted, the third ends the process.

A signal handler of Python runs between two steps of the main thread, which may be in a policy that never returns. The third
signal is therefore acted upon by a thread of its own, to which the interpreter writes every signal that arrives.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)
MAX_SIGNALS = 3
"""The first saves all jobs, the second gives up waiting for them, this one ends the process."""
LAST_WORDS_S = 5.0
"""How long the last words may take: what is left is looked up beside a policy that may spin, and nobody may read them."""
_SWITCH_S = 1e-4  # How long the main thread then runs while another one waits: each file that is looked into costs that again.


class StopSignals:
    """Counts signals in a context; outside of it they do what they did before.

    numbers: those that arrived, in order, as the main thread has taken them in; others may add to them. last_words: returns
    what is printed to the standard error before the process ends with 128 and the number of the first signal.
    """

    def __init__(self, last_words: Callable[[], str]) -> None:
        self.numbers: list[int] = []
        self._last_words = last_words
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> "StopSignals":
        self._reading, self._writing = socket.socketpair()
        self._writing.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._take) for number in STOPS}
        self._thread = threading.Thread(target=self._watch, name="beamer-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._writing.close()  # Closing the socket ends the thread.
        self._thread.join()
        self._reading.close()

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)

    def _watch(self) -> None:
        arrived: list[int] = []
        while received := self._reading.recv(64):
            arrived += [number for number in received if number in STOPS]
            if len(arrived) >= MAX_SIGNALS:
                self._end(128 + arrived[0])

    def _end(self, code: int) -> None:
        """End the process, after its last words if they can be said in time."""
        sys.setswitchinterval(_SWITCH_S)
        speaker = threading.Thread(target=self._speak, name="beamer-last-words", daemon=True)
        speaker.start()
        speaker.join(LAST_WORDS_S)
        os._exit(code)

    def _speak(self) -> None:
        with suppress(Exception):  # The process ends whatever is wrong with its last words.
            os.write(2, self._last_words().encode())
