"""A line that a rank prints, as the progress that it reports; what is meant as progress and is none is named."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beamer.engines.local.pattern import MAX_SHOWN, ProgressPattern
from beamer.engines.local.supervisor.numbers import (
    PLACEHOLDERS,
    as_json,
    in_digits,
    is_beyond_digits,
    number,
    whole,
)
from beamer.errors import InputError, shortened

EXAMPLE = '{"iteration": 12, "loss": 0.5}'
MAX_LINE = 1 << 16
"""Bytes of a line that are read."""
_STEPS = ("iteration", "samples")
_NAMES = (*_STEPS, "loss")
_STEP_IN_TEXT = re.compile(r"""["'](iteration|samples)["']\s*:\s*["']?([^\s"',{}\[\]]{1,100})""")


@dataclass(frozen=True)
class ProgressLine:
    """A line of progress; step: iteration or samples, whichever the program counts. has_loss: whether a loss is known."""

    step: float
    in_samples: bool
    loss: float
    accuracy: float | None = None
    gradient_sqr: float = 0.0
    gradient_var: float = 0.0
    has_loss: bool = True


@dataclass(frozen=True)
class PrintedLine:
    """A line as it was printed.

    text: of one that is too long its end. head: of that one its beginning, "" for any other. length: of the whole, bytes.
    """

    text: str
    head: str = ""
    length: int = 0

    @property
    def shown(self) -> str:
        """What is shown of it in a message."""
        if self.head:
            return f"{self.head.lstrip()[:MAX_SHOWN]}... ({self.length} bytes)"
        return shortened(self.text.strip(), MAX_SHOWN)


class RefusedLine(InputError):
    """A line that looks like progress and is none.

    is_meant: whether it names what a line of progress does, so that it is no other JSON that is printed, too. names_step:
    whether it says how far the program has come. step: so far, as far as that can be read. in_samples: what it counts.
    """

    is_meant = names_step = in_samples = False
    step: float | None = None


def parse(line: PrintedLine, pattern: ProgressPattern | None) -> ProgressLine | None:
    """Return the progress that a line reports, None if it is another line.

    Raises `RefusedLine` for one that looks like progress and is none: it begins with a brace, or `pattern` finds it.
    Raises `SlowPatternError`.
    """
    values = _json(line) if pattern is None else _found(line.text, pattern)
    if values is None:
        return None
    try:
        return _line(values)
    except InputError as error:
        in_samples = values.get("samples") is not None
        named = pattern is not None or any(name in values for name in _STEPS)
        raise _refused(
            error, line.text, named, _number(values.get("samples" if in_samples else "iteration")), in_samples,
            is_meant=pattern is not None or _is_meant(line.text),
        ) from error  # fmt: skip


def _json(line: PrintedLine) -> Mapping[str, Any] | None:
    if not (line.head or line.text).lstrip().startswith("{"):
        return None
    if line.head:
        raise _unparsed(InputError("a line of progress", line.shown, f"at most {MAX_LINE} bytes"), line.head + line.text)
    try:
        try:
            values = json.loads(line.text, object_pairs_hook=_unique)
        except InputError:
            raise
        except ValueError:
            values = json.loads(as_json(line.text), object_pairs_hook=_unique)
    except InputError as error:
        raise _unparsed(error, line.text) from error
    except (ValueError, RecursionError) as error:
        raise _unparsed(InputError("a line of progress", line.shown, f"JSON such as {EXAMPLE}"), line.text) from error
    return values if isinstance(values, dict) else None  # The line begins with a brace, and may still be no object.


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        ((twice, _),) = counts.most_common(1)
        raise InputError("a line of progress", shortened(json.dumps(twice), MAX_SHOWN), "each key once")
    return values


def _found(text: str, pattern: ProgressPattern) -> Mapping[str, Any] | None:
    """Return what a pattern finds, by name: whole numbers, signed and not finite ones where it asks for digits, too."""
    if match := pattern.search(text):
        found = {name: whole(text, match.span(name), match.span()) for name in pattern.groups if match[name] is not None}
        return found or None  # Another branch of the pattern matched, and the line is no report.
    for digits in PLACEHOLDERS if is_beyond_digits(text) else ():
        line, replaced = in_digits(text, digits)
        match = pattern.search(line)
        if match and match.start("loss") in replaced and not any(_is_within(match, name, replaced, digits) for name in _STEPS):
            return {
                name: replaced.get(match.start(name)) or whole(line, match.span(name), match.span())
                for name in pattern.groups
                if match[name] is not None
            }
    return None


def _is_within(match: re.Match[str], name: str, replaced: Mapping[int, str], digits: str) -> bool:
    """Say whether what a group has found begins in digits that are no number of the line."""
    start = match.start(name) if name in match.re.groupindex else -1
    return any(at <= start < at + len(digits) for at in replaced)


def _unparsed(error: InputError, text: str) -> RefusedLine:
    found = _STEP_IN_TEXT.search(text)
    return _refused(
        error, text, found is not None, number(found[2]) if found else None, found is not None and found[1] == "samples",
        is_meant=_is_meant(text),
    )  # fmt: skip


def _refused(
    error: InputError, text: str, names_step: bool, step: float | None, in_samples: bool, *, is_meant: bool
) -> RefusedLine:
    refused = RefusedLine(error.field, error.value, error.expected)
    refused.is_meant, refused.names_step, refused.in_samples = is_meant, names_step, in_samples
    refused.step = step if step is not None and math.isfinite(step) else None
    return refused


def _is_meant(text: str) -> bool:
    return any(name in text for name in _NAMES)


def _line(values: Mapping[str, Any]) -> ProgressLine:
    in_samples = values.get("samples") is not None
    step = _required(values, "samples" if in_samples else "iteration")
    if not math.isfinite(step):
        raise InputError("samples" if in_samples else "iteration", step, "a finite number")
    gradient_sqr, gradient_var = (_measured(values.get(name)) for name in ("gradient_sqr", "gradient_var"))
    loss, accuracy = _required(values, "loss"), _number(values.get("accuracy"))
    return ProgressLine(step, in_samples, loss, accuracy, gradient_sqr, gradient_var)


def _required(values: Mapping[str, Any], name: str) -> float:
    read = _number(values.get(name))
    if read is None:
        if name not in values:
            raise InputError("a line of progress", shortened(json.dumps(values), MAX_SHOWN), f"{name}, as in {EXAMPLE}")
        raise InputError(name, values.get(name), f"a number, as in {EXAMPLE}")
    return read


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return number(value)
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):  # An integer of hundreds of digits raises an OverflowError.
        return None


def _measured(value: Any) -> float:
    """Return a statistic of gradients, 0 where it was not measured."""
    read = _number(value)
    return read if read is not None and 0 <= read < math.inf else 0.0
