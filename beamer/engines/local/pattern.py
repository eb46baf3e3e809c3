"""Progress patterns: users' regular expressions, searched for in lines of any content within a bounded time.

The expressions of the standard library backtrack without a limit: `(a+)+$` on one line of 40 letters takes hours, in which a
supervisor would obey nobody. Those of the package `regex` take a time-out. It is imported where a job has a pattern: the others
need the standard library alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from re import Match
from typing import Any

from beamer.errors import InputError, nearest, shortened

GROUPS = ("iteration", "samples", "loss", "accuracy", "gradient_sqr", "gradient_var")
"""What a progress pattern may name; `loss` and one of the first two it must."""
SEARCH_S = 1.0
"""Processor time that a pattern may take on a line: twice that of one whose time is quadratic in the longest line's 64 KiB."""
MAX_SHOWN = 120
"""Characters of a refused line in a message."""


class SlowPatternError(Exception):
    """A pattern took longer on a line than it may; the message names both."""


@dataclass(frozen=True)
class ProgressPattern:
    """A pattern with names in `GROUPS`. Raises `InputError` for one that is no expression or lacks a name."""

    text: str

    def __post_init__(self) -> None:
        for group in self.groups:
            if group not in GROUPS:
                raise InputError(f"progress group {group!r}", self.text, nearest(group, GROUPS))
        if "loss" not in self.groups or not {"iteration", "samples"} & set(self.groups):
            raise InputError("progress", self.text, "groups named loss and iteration or samples")

    @cached_property
    def _compiled(self) -> Any:
        try:
            import regex
        except ImportError as error:
            expected = "no pattern, or the package regex on every node: pip install 'beamer-scheduler[gpu]' there"
            raise InputError("progress", self.text, expected) from error
        try:
            return regex.compile(self.text)
        except (regex.error, OverflowError, RecursionError, ValueError) as error:
            raise InputError("progress", self.text, f"a regular expression ({error})") from error

    @property
    def groups(self) -> Mapping[str, int]:
        """The names that it has, with their numbers."""
        found: Mapping[str, int] = self._compiled.groupindex
        return found

    def search(self, line: str) -> Match[str] | None:
        """Return the first match in a line, None if there is none. Raises `SlowPatternError`."""
        try:
            found: Match[str] | None = self._compiled.search(line, timeout=SEARCH_S)
        except (TimeoutError, MemoryError, RecursionError) as error:
            how = f"took longer than {SEARCH_S:g} s" if isinstance(error, TimeoutError) else "took too much memory"
            shown = f"{shortened(self.text)} {how} on a line of {len(line)} characters: {shortened(line, MAX_SHOWN)!r}"
            raise SlowPatternError(
                f"the progress pattern {shown}; write one without a repetition inside a repetition, and begin it with ^"
            ) from error
        return found
