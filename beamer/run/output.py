"""What the command prints, handed on as it is and read for progress beside.

The command prints to a terminal where this process does, and to a pipe elsewhere: what a program prints often depends on that.
The terminal is one of its own, of the same size, that changes nothing on the way. Where both outputs are the same file, they
share one, so that their order stays. A thread hands on and another one reads: an expression that takes long delays no output.
"""

import fcntl
import os
import pty
import termios
import threading
import tty
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from beamer.engines.local.pattern import SlowPatternError
from beamer.engines.local.supervisor.lines import RefusedLine
from beamer.engines.local.supervisor.output_lines import OutputLines
from beamer.engines.local.supervisor.reader import ProgressReader
from beamer.run.reporter import say

STANDARD = (1, 2)
READ_BYTES = 1 << 16
MAX_PARTS = 256
"""Of reads that wait for the reader of progress: where there are more, as in a flood, the oldest are left out."""
LAST_S = 1.0
"""Seconds for which the output of processes that outlive the command is handed on; the command's own is there already."""
_SIZE_BYTES = 8  # struct winsize (ioctl_tty(2))
Report = Callable[[int, float | None], None]


class ReadOutput:
    """The outputs of a command that is to be started, handed on from `start` until `finish`.

    descriptors: what the command has as its outputs, by number. Raises `InputError` for progress that cannot be read.
    """

    def __init__(self, progress: str) -> None:
        self._streams: list[_Stream] = []
        self.descriptors: dict[int, int] = {}
        shared = _is_same(*STANDARD)
        for number in STANDARD[:1] if shared else STANDARD:
            stream = _Stream(number, progress)
            self._streams.append(stream)
            self.descriptors |= dict.fromkeys(STANDARD if shared else (number,), stream.theirs)

    def start(self, report: Report) -> None:
        """Hand on from now on; the command has been started. report: is told each step and the last loss, on a thread."""
        for stream in self._streams:
            stream.start(report)

    def finish(self) -> None:
        """Hand on what the command has printed before it ended."""
        for stream in self._streams:
            stream.finish()

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
        self._parts: deque[bytes | None] = deque(maxlen=MAX_PARTS)
        self._arrived = threading.Event()
        self._reader = ProgressReader(progress)
        self._report: Report = lambda step, loss: None
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._hand_on, self._read)]

    def start(self, report: Report) -> None:
        self._report = report
        os.close(self.theirs)
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._threads[0].join(LAST_S)
        self._put(None)
        self._threads[1].join(LAST_S)

    def resize(self) -> None:
        if self._is_terminal:
            with suppress(OSError):
                size = fcntl.ioctl(self._number, termios.TIOCGWINSZ, bytes(_SIZE_BYTES))
                fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def _hand_on(self) -> None:
        with suppress(OSError):  # A terminal that nobody has open any more fails, and so does an output that nobody reads.
            while data := os.read(self._ours, READ_BYTES):
                self._put(data)
                while data:
                    data = data[os.write(self._number, data) :]
        os.close(self._ours)  # The command is told that nobody reads, as it would be told without Beamer.

    def _put(self, data: bytes | None) -> None:
        self._parts.append(data)
        self._arrived.set()

    def _read(self) -> None:
        lines = OutputLines()
        while True:
            self._arrived.wait()
            self._arrived.clear()
            while self._parts:
                data = self._parts.popleft()
                lines.finish() if data is None else lines.add(data)
                if not self._read_lines(lines) or data is None:
                    return

    def _read_lines(self, lines: OutputLines) -> bool:
        """Report what the lines say; return whether further ones are to be read."""
        while (printed := lines.take()) is not None:
            try:
                line = self._reader.read(printed)
            except RefusedLine:
                continue
            except SlowPatternError as error:
                say(f"no more progress is read: {error}")
                return False
            if line is not None and line.step >= 0:
                self._report(int(line.step), line.loss if line.has_loss else None)
        return True


def _is_same(one: int, other: int) -> bool:
    """Return whether two descriptors are of the same file, terminal or pipe."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # One of them is closed.
        return False
