"""Read the fields of a trace file's line in turn; an error names the file, the line and the field."""

import math
from collections.abc import Sequence
from pathlib import Path

from beamer.errors import InputError

MAX_INTEGER = 2**31 - 1
MAX_PORTS = 2**20
"""Ports of a trace's switch: a hundred times what published traces have. A simulation keeps tables of all of them."""
MAX_FLOWS = 2**24
"""Flows of a coflow: a shuffle among 4096 hosts. They take some hundred bytes each."""


class FieldReader:
    """The fields of one line, those not read yet. line: its number in the file, from 1."""

    def __init__(self, path: Path, line: int, fields: Sequence[str]) -> None:
        self._location = f"{path}: line {line}"
        self._fields = iter(fields)

    def error(self, name: str, value: object, expected: str) -> InputError:
        """Return the error of a value of this line."""
        return InputError(f"{self._location}: {name}", value, expected)

    def text(self, name: str) -> str:
        """Read the next field. Raises `InputError` if the line ends before it."""
        try:
            return next(self._fields)
        except StopIteration:
            raise self.error(name, None, "a value (the line ends before it)") from None

    def integer(self, name: str, least: int, most: int = MAX_INTEGER) -> int:
        """Read an integer from `least` to `most`. Raises `InputError`."""
        return self.as_integer(name, self.text(name), least, most)

    def as_integer(self, name: str, text: str, least: int, most: int) -> int:
        """Return a field, or a part of it, as an integer from `least` to `most`. Raises `InputError`."""
        short = text.isdecimal() and len(text) < 20  # The function int() itself refuses thousands of digits.
        if not short or not least <= int(text) <= most:
            raise self.error(name, text, f"an integer from {least} to {most}")
        return int(text)

    def amount(self, name: str, unit: float, most: float) -> float:
        """Read a number and return it times `unit`, at most `most`. Raises `InputError`."""
        return self.as_amount(name, self.text(name), unit, most)

    def as_amount(self, name: str, text: str, unit: float, most: float) -> float:
        """Return a field, or a part of it, as a number times `unit`. Raises `InputError` unless that is 0 to `most`."""
        try:
            value = float(text) * unit
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise self.error(name, text, "a finite number of at least 0")
        if value > most:
            raise self.error(name, text, f"at most {most / unit:.15g}")
        return value

    def end(self) -> None:
        """Raise `InputError` unless all fields are read."""
        for text in self._fields:
            raise self.error("end of line", text, "nothing more")
