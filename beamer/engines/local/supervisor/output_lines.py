"""What a pipe gives, cut into lines, of which a few are taken at a time: a flood must not have the supervisor to itself."""

import re
from collections import deque

from beamer.engines.local.supervisor.lines import MAX_LINE, PrintedLine

HEAD = 1 << 12
"""Bytes of the beginning of a line that is too long, which are kept beside its end."""
_SEPARATORS = re.compile(rb"[\r\n\b]+")
"""A program that goes back to the beginning of a line, or some characters back, writes a new one over it."""
_CUT = re.compile(rb"\A[\w.,+-]*")


class OutputLines:
    """The lines of a pipe that have not been taken yet, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[PrintedLine] = deque()
        self._rest = self._head = b""
        self._length = 0  # bytes of the line that has not ended

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, data: bytes) -> None:
        """Take in what was read; of a line without an end no more than `MAX_LINE` and its beginning are kept."""
        first, *others = _SEPARATORS.split(data)
        self._extend(first)
        for part in others:
            self.finish()
            self._extend(part)

    def finish(self) -> bool:
        """End the line that has not ended, and return whether there was one."""
        is_one = bool(self._rest)
        if self._rest:
            is_long = self._length > MAX_LINE
            # The rest of a long line may begin in the middle of a number.
            text = _CUT.sub(b"", self._rest) if is_long else self._rest
            self._waiting.append(PrintedLine(_text(text), _text(self._head) if is_long else "", self._length))
        self._rest, self._head, self._length = b"", b"", 0
        return is_one

    def take(self) -> PrintedLine | None:
        """Return the oldest line, and leave it out from now on; None: none waits."""
        return self._waiting.popleft() if self._waiting else None

    def _extend(self, part: bytes) -> None:
        self._head += part[: HEAD - len(self._head)]
        self._rest = (self._rest + part)[-MAX_LINE:]
        self._length += len(part)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
