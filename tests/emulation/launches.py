"""Measures what starting a program waits for a processor: searches start one program after another, and wait for each.

A scenario says what a start takes, of which `LAUNCH_S` is the launching of the program. Where a launch waits for longer than
that, an emulated search takes longer than the simulated one for a reason that is the machine's.
"""

import os
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

from topologies.emulation.searches import LAUNCH_S

INTERVAL_S = 2.0


class LaunchMeter:
    """Starts a small program every `INTERVAL_S` seconds of a `with` block, in a session of its own, as those of ranks are."""

    def __init__(self) -> None:
        self._waits_s: list[float] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def mean_s(self) -> float:
        """How long launched programs waited for a processor in the mean, seconds."""
        return sum(self._waits_s) / len(self._waits_s)

    def findings(self) -> list[str]:
        """Return what makes the run invalid, nothing where launches waited for less than `LAUNCH_S` in the mean."""
        mean_s = self.mean_s
        if mean_s <= LAUNCH_S:
            return []
        return [f"launched programs waited {mean_s:.2f} s for a processor (limit {LAUNCH_S} s, which launching one is to take)"]

    def _measure(self) -> None:
        while True:
            began_s = time.monotonic()
            with subprocess.Popen([sys.executable, "-c", "import numpy"], start_new_session=True) as program:
                _, status, used = os.wait4(program.pid, 0)
                program.returncode = os.waitstatus_to_exitcode(status)
            self._waits_s.append(time.monotonic() - began_s - used.ru_utime - used.ru_stime)
            if self._ending.wait(INTERVAL_S):
                return
