"""What the command prints, handed on as it is and read for progress beside.

The command prints to a terminal where this process does, and to a pipe elsewhere: what a program prints often depends on that.
The terminal is one of its own, of the same size, that changes nothing on the way. Where both outputs are the same file, they
share one, so that their order stays. A thread hands on and another one reads: an expression that takes long delays no output.
"""

import fcntl
import os
import pty
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import suppress

from beamer.engines.local.pattern import SlowPatternError
from beamer.run.progress import OutputParts, StepLines
from beamer.run.reporter import say

STANDARD = (1, 2)
READ_BYTES = 1 << 16
LAST_S = 1.0
"""Seconds for which more output of processes that outlive the command is waited for; the command's own is there already."""
LAST_BYTES = 1 << 17
"""Bytes that may be there when the command ends, at least: pipes and terminals hold fewer unless they are told to hold more."""
LAST_READ_S = 1.0
"""Seconds for which the reader of progress is waited for."""
_ARRIVES_S = 0.05  # What was written to a terminal can be read at its other end a little later.
_LOOK_S = 0.1  # Between two looks whether a signal ends the wait for who reads the output.
_INT_BYTES = 4
_SIZE_BYTES = 8  # struct winsize (ioctl_tty(2))
Report = Callable[[int, float | None], None]


class ReadOutput:
    """The outputs of a command that is to be started, handed on from `start` until `finish`.

    descriptors: what the command has as its outputs, by number. Raises `InputError` for progress that cannot be read.
    """

    def __init__(self, progress: str) -> None:
        self._streams: list[_Stream] = []
        self.descriptors: dict[int, int] = {}
        # Those that were closed are left so: their numbers may be those of other files by now.
        opened = [number for number, file in zip(STANDARD, (sys.__stdout__, sys.__stderr__), strict=True) if file is not None]
        shared = len(opened) > 1 and _is_same(*opened)
        for number in opened[:1] if shared else opened:
            stream = _Stream(number, progress)
            self._streams.append(stream)
            self.descriptors |= dict.fromkeys(STANDARD if shared else (number,), stream.theirs)

    def start(self, report: Report) -> None:
        """Hand on from now on; the command has been started. report: is told each step and the last loss, on a thread."""
        for stream in self._streams:
            stream.start(report)

    def finish(self, is_ended: Callable[[], bool]) -> None:
        """Hand on what the command has printed before it ended, however long that takes who reads it.

        is_ended: is asked meanwhile whether this process is told to end.
        """
        for stream in self._streams:
            stream.expect_end()
        for stream in self._streams:
            stream.finish(is_ended)

    def resize(self) -> None:
        """Take over the size of this process's terminal."""
        for stream in self._streams:
            stream.resize()


class _Stream:
    """One output. theirs: the descriptor that the command gets."""

    def __init__(self, number: int, progress: str) -> None:
        self._number = number
        self._is_terminal = os.isatty(number)
        self._ours, self.theirs = pty.openpty() if self._is_terminal else os.pipe()
        if self._is_terminal:
            tty.setraw(self.theirs)
            self.resize()
        self._parts = OutputParts()
        self._progress = StepLines(progress)
        self._report: Report = lambda step, loss: None
        self._woken, self._waker = os.pipe()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._hand_on, self._read)]

    def start(self, report: Report) -> None:
        self._report = report
        os.close(self.theirs)
        for thread in self._threads:
            thread.start()

    def expect_end(self) -> None:
        """Wait for further output no longer than `LAST_S` from now on: the command has ended."""
        os.close(self._waker)

    def finish(self, is_ended: Callable[[], bool]) -> None:
        while self._threads[0].is_alive() and not is_ended():
            self._threads[0].join(_LOOK_S)
        self._parts.put(None)
        self._threads[1].join(LAST_READ_S)

    def resize(self) -> None:
        if self._is_terminal:
            with suppress(OSError):
                size = fcntl.ioctl(self._number, termios.TIOCGWINSZ, bytes(_SIZE_BYTES))
                fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def _hand_on(self) -> None:
        with suppress(OSError):  # A terminal that nobody has open any more fails, and so does an output that nobody reads.
            for data in self._arriving():
                self._parts.put(data)
                while data:
                    data = data[os.write(self._number, data) :]
        os.close(self._ours)  # The command is told that nobody reads, as it would be told without Beamer.

    def _arriving(self) -> Iterator[bytes]:
        """Yield what is read until it ends, or nothing more comes of what outlives the command."""
        waiting = select.poll()
        waiting.register(self._ours, select.POLLIN)
        waiting.register(self._woken, select.POLLIN)
        while self._woken not in dict(waiting.poll()):
            if not (data := os.read(self._ours, READ_BYTES)):
                return
            yield data
        waiting.unregister(self._woken)
        until = time.monotonic() + LAST_S
        # The command's own output is among these bytes, whenever they can be written.
        owed = max(LAST_BYTES, int.from_bytes(fcntl.ioctl(self._ours, termios.FIONREAD, bytes(_INT_BYTES)), sys.byteorder))
        while owed > 0 or time.monotonic() < until:
            left_s = max(until - time.monotonic(), _ARRIVES_S)
            if not waiting.poll(1000 * left_s) or not (data := os.read(self._ours, READ_BYTES)):
                return
            owed -= len(data)
            yield data

    def _read(self) -> None:
        for printed in self._parts.lines():
            try:
                found = self._progress.read(printed)
            except SlowPatternError as error:
                say(f"no more progress is read: {error}")
                return
            if found is not None:
                self._report(*found)


def _is_same(one: int, other: int) -> bool:
    """Return whether two descriptors are of the same file, terminal or pipe."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # One of them is closed.
        return False
