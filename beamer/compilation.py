"""How long this process has compiled kernels, and who is told that it begins to.

Kernels are compiled at their first use after an installation, which takes up to a minute; later processes load the result.
Whoever waits for that is told what for, and a measured time leaves it out (`Stopwatch`). `beamer.network.kernels.jit` reports
here, so that commands need not import what compiles. Only the standard library is imported here.
"""

import threading
import time
from collections.abc import Callable

NOTICE = "compiling kernels, once after an installation; this takes up to a minute"


class Compilation:
    """What a process has spent on compiling. clock: seconds.

    One kernel is compiled at a time, and those that it calls within it.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._depth = 0
        self._began_s = 0.0
        self._ended_s = 0.0  # seconds spent in compilations that have ended
        self._announce: Callable[[], None] = _say_nothing
        self._announced = False

    @property
    def seconds(self) -> float:
        """How long has been compiled until now."""
        with self._lock:
            return self._ended_s + (self._clock() - self._began_s if self._depth else 0.0)

    def announce(self, announce: Callable[[], None]) -> None:
        """Have `announce` called when the next kernel is compiled, once; it replaces what was to be called."""
        with self._lock:
            self._announce, self._announced = announce, False

    def begin(self) -> None:
        """Take in that a kernel is compiled from now on."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._began_s = self._clock()
            announce = _say_nothing if self._announced else self._announce
            self._announced = True
        announce()

    def end(self) -> None:
        """Take in that a kernel is compiled."""
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._ended_s += self._clock() - self._began_s


def _say_nothing() -> None:
    """Stand in where nobody waits."""


COMPILATION = Compilation()
"""That of this process."""


class Stopwatch:
    """Measures wall time without compilation from when it is made. clock: seconds, the one of `compilation`."""

    def __init__(self, compilation: Compilation = COMPILATION, clock: Callable[[], float] = time.perf_counter) -> None:
        self._compilation = compilation
        self._clock = clock
        self._compiled_s = compilation.seconds
        self._began_s = clock()

    @property
    def elapsed_s(self) -> float:
        """How long it has been, without what was compiled meanwhile."""
        compiled_s = self._compilation.seconds - self._compiled_s
        return max(self._clock() - self._began_s - compiled_s, 0.0)
