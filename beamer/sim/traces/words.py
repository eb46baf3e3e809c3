"""The words of a line, taken one after another; what is wrong with one is told with its file, line and field."""

import math
from collections.abc import Sequence
from pathlib import Path

from beamer.errors import InputError

MOST = 2**31 - 1


class Line:
    """A line that is being read. number: its place in the file, from 1."""

    def __init__(self, path: Path, number: int, words: Sequence[str]) -> None:
        self._place = f"{path}: line {number}"
        self._words = iter(words)

    def error(self, field: str, value: object, expected: str) -> InputError:
        """Return the error of a value of this line."""
        return InputError(f"{self._place}: {field}", value, expected)

    def word(self, field: str) -> str:
        """Take the next word. Raises `InputError` if the line ends before it."""
        try:
            return next(self._words)
        except StopIteration:
            raise self.error(field, None, "a value (the line ends before it)") from None

    def integer(self, field: str, least: int, most: int = MOST) -> int:
        """Take an integer from `least` to `most`. Raises `InputError`."""
        return self.as_integer(field, self.word(field), least, most)

    def as_integer(self, field: str, word: str, least: int, most: int) -> int:
        """Return `word`, or a part of it, as an integer from `least` to `most`. Raises `InputError`."""
        few = word.isdecimal() and len(word) < 20  # int() itself refuses thousands of digits
        if not few or not least <= int(word) <= most:
            raise self.error(field, word, f"an integer from {least} to {most}")
        return int(word)

    def amount(self, field: str, unit: float = 1.0) -> float:
        """Take a number and return it times `unit`. Raises `InputError`."""
        return self.as_amount(field, self.word(field), unit)

    def as_amount(self, field: str, word: str, unit: float) -> float:
        """Return `word`, or a part of it, as a number times `unit`. Raises `InputError` unless that is finite, 0 or more."""
        try:
            value = float(word) * unit
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise self.error(field, word, "a finite number of at least 0")
        return value

    def end(self) -> None:
        """Raise `InputError` unless all words are taken."""
        for word in self._words:
            raise self.error("end of line", word, "nothing more")
