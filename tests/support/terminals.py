"""A command on a terminal of its own, as somebody would use it there: what it prints is read, and keys are typed."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType

PATIENCE_S = 60.0  # for what must come; nothing is measured by it
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_READ_BYTES = 1 << 16
_INSIDE = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
"""Makes the terminal the session's, so that its keys send signals, and goes on as the command."""


class Terminal(AbstractContextManager["Terminal"]):
    """A terminal with a command in it, the leader of its session. read: all that was printed, without escape sequences."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], columns: int = 80, lines: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(lines, columns)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _INSIDE, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)
        self.read = ""
        self._found = 0

    def until(self, words: str) -> bool:
        """Read until some words have been printed since those of the last time; return whether they were."""
        deadline = time.monotonic() + PATIENCE_S
        while (at := self.read.find(words, self._found)) < 0:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._ours], [], [], left_s)[0] or not self._take():
                return False
        self._found = at + len(words)
        return True

    def press(self, text: str) -> None:
        """Type some keys."""
        os.write(self._ours, text.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def ended(self) -> int:
        """Read to the end of the command; return its exit code. Raises `TimeoutExpired` where it does not end in time."""
        deadline = time.monotonic() + PATIENCE_S
        while (left_s := deadline - time.monotonic()) > 0 and select.select([self._ours], [], [], left_s)[0] and self._take():
            pass
        return self.process.wait(max(deadline - time.monotonic(), 0.1))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _take(self) -> bool:
        """Read on; return whether anything came."""
        more = b""
        with suppress(OSError):  # Nobody has the terminal open any more, and all was read.
            more = os.read(self._ours, _READ_BYTES)
        self.read += _ESCAPES.sub("", more.decode("utf-8", "replace"))
        return bool(more)
