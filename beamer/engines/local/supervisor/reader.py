"""The lines of one program, read as its progress: in a format that is known by name, by the user's pattern, or as JSON.

A trial counts steps from its beginning, and most libraries count the batches of an epoch. So in a format a step is put together
of what several lines say: of an epoch and its batches where an epoch is named, else of the bars that have been full before. A
loss may have a line of its own; it holds until the next one. Two ranks that both draw bars are not told apart.
"""

import re
from collections.abc import Mapping

from beamer.engines.local.pattern import ProgressPattern
from beamer.engines.local.progress_formats import FORMATS, JSON, ProgressFormat, check_progress
from beamer.engines.local.supervisor.lines import EXAMPLE, PrintedLine, ProgressLine, parse
from beamer.engines.local.supervisor.numbers import number, without_escapes

MAX_CHARACTERS = 1000
"""Of a line that is read in a format: the time that an expression takes may grow with its square."""


class ProgressReader:
    """Reads one line after the other. progress: the name of a format, a pattern, or "" for JSON. Raises `InputError`.

    expected: what a line of progress would have been, for messages.
    """

    def __init__(self, progress: str) -> None:
        check_progress(progress)
        self._format = FormatLines(FORMATS[progress]) if progress in FORMATS else None
        self._pattern = None if progress in ("", JSON, *FORMATS) else ProgressPattern(progress)
        if self._format is not None:
            self.expected = f"{progress} finds none"
        else:
            self.expected = f"the pattern {progress} finds none" if self._pattern else f"none is JSON such as {EXAMPLE}"

    def read(self, printed: PrintedLine) -> ProgressLine | None:
        """Return the progress that a line reports, None if it is another line. Raises as `lines.parse` does."""
        return parse(printed, self._pattern) if self._format is None else self._format.read(printed)


class FormatLines:
    """Reads the lines of one program in a format."""

    def __init__(self, known: ProgressFormat) -> None:
        self._format = known
        self._steps = [re.compile(one) for one in known.steps]
        self._loss_found = re.compile(known.loss)
        self._epoch_found = re.compile(known.epoch) if known.epoch else None
        self._counting: re.Pattern[str] | None = None
        self._bar: tuple[str, str] | None = None  # The name and the length of the bar that counts.
        self._loss: float | None = None
        self._epoch: int | None = None
        self._first_epoch: int | None = None
        self._before = 0  # Steps of the rounds that are over.
        self._last = 0  # The count in this round.

    def read(self, printed: PrintedLine) -> ProgressLine | None:
        """Return the progress that a line reports, with the last loss that is known; None if it reports none."""
        if len(printed.text) > MAX_CHARACTERS or printed.head:
            return None
        text = without_escapes(printed.text)
        if self._epoch_found is not None and (found := self._epoch_found.search(text)):
            self._epoch = int(found["epoch"])
        has_loss = self._format.has_loss_lines and self._take_loss(text)
        if self._format.is_loss_beside and not self._loss_found.search(text):
            return None
        step = self._step(text)
        if step is None:
            return None
        if not has_loss and not self._take_loss(text) and self._format.is_loss_beside:
            return None
        return ProgressLine(step, False, float("nan") if self._loss is None else self._loss, has_loss=self._loss is not None)

    def _take_loss(self, text: str) -> bool:
        found = self._loss_found.search(text)
        read = None if found is None else number(found["loss"])
        self._loss = self._loss if read is None else read
        return read is not None

    def _step(self, text: str) -> int | None:
        """Return how far a line says that the program is, in steps from its beginning; None where it does not."""
        for pattern in (self._counting,) if self._counting else self._steps:
            if found := pattern.search(text):
                self._counting = pattern
                return self._counted(found.groupdict())
        return None

    def _counted(self, found: Mapping[str, str | None]) -> int | None:
        if (iteration := found.get("iteration")) is not None:
            return self._in_rounds(int(iteration), None)
        batch, batches = int(found["batch"] or 0), int(found["batches"] or 0)
        self._epoch = self._epoch if found.get("epoch") is None else int(found["epoch"] or 0)
        if self._epoch is not None:
            if self._first_epoch is None:
                self._first_epoch = min(self._epoch, 1)  # Some count epochs from 0 and some from 1.
            return (self._epoch - self._first_epoch) * batches + batch
        bar = re.sub(r"[\d.]+(?:e-?\d+)?", "", found.get("bar") or ""), found["batches"] or ""
        self._bar = self._bar or bar
        return self._in_rounds(batch, batches) if bar == self._bar else None

    def _in_rounds(self, count: int, most: int | None) -> int:
        """Return the steps of a count that begins anew with each round. most: of a round, None where that is not known."""
        if 2 * count <= self._last and (most is None or 2 * self._last > most):
            self._before += self._last
        self._last = count
        return self._before + count
