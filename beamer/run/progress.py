"""The steps that an output tells: where their reader falls behind, it leaves lines out, and joins no two of them."""

import re
import threading
from collections import deque
from collections.abc import Iterator

from beamer.engines.local.supervisor.lines import PrintedLine, ProgressLine, RefusedLine
from beamer.engines.local.supervisor.output_lines import OutputLines
from beamer.engines.local.supervisor.reader import ProgressReader
from beamer.run.reporter import say
from beamer.studies.model import MAX_STEPS

MAX_PARTS = 256
"""Of reads that wait for the reader of progress: where there are more, as in a flood, the oldest are left out."""
_END_OF_LINE = re.compile(rb"[\r\n\b]")


class OutputParts:
    """What was read of an output and has not been taken yet; one thread puts and another one takes."""

    def __init__(self) -> None:
        # Each with its number, which says whether others were left out before it. None: the output has ended.
        self._parts: deque[tuple[int, bytes | None]] = deque(maxlen=MAX_PARTS)
        self._arrived = threading.Event()
        self._number = 0

    def put(self, data: bytes | None) -> None:
        """Add what was read, None at the end; it waits for nothing."""
        self._parts.append((self._number, data))
        self._number += 1
        self._arrived.set()

    def lines(self) -> Iterator[PrintedLine]:
        """Yield the whole lines as they come, until the end."""
        lines, expected, is_cut = OutputLines(), 0, False
        for number, data in self._taken():
            if number != expected:  # The line before the gap and the line after it have lost a part.
                lines, is_cut = OutputLines(), True
            expected = number + 1
            if data is None:
                lines.finish()
            elif not is_cut:
                lines.add(data)
            elif end := _END_OF_LINE.search(data):
                is_cut = False
                lines.add(data[end.end() :])
            while (line := lines.take()) is not None:
                yield line

    def _taken(self) -> Iterator[tuple[int, bytes | None]]:
        while True:
            self._arrived.wait()
            self._arrived.clear()
            while self._parts:
                part = self._parts.popleft()
                yield part
                if part[1] is None:
                    return


class StepLines:
    """Reads steps and losses. progress: a pattern or the name of a format. Raises `InputError` for one that is neither."""

    def __init__(self, progress: str) -> None:
        self._reader = ProgressReader(progress)
        self._has_warned = False

    def read(self, printed: PrintedLine) -> tuple[int, float | None] | None:
        """Return the step and the loss that a line tells, None where it tells no step. Raises `SlowPatternError`.

        What counts something else than steps is named once: a trial's progress goes forward, so that one wrong step would hide
        all later ones.
        """
        try:
            line = self._reader.read(printed)
        except RefusedLine:
            return None
        if line is None:
            return None
        if line.in_samples or line.step % 1 or not 0 <= line.step <= MAX_STEPS:
            self._warn(line)
            return None
        return int(line.step), line.loss if line.has_loss else None

    def _warn(self, line: ProgressLine) -> None:
        if not self._has_warned:
            self._has_warned = True
            shown = "samples" if line.in_samples else f"step {line.step:g}"
            say(f"progress in {shown} is left out, expected whole steps of 0 to {MAX_STEPS}")
