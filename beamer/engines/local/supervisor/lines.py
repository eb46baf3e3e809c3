"""A line that a rank prints, as the progress that it reports; what is meant as progress and is none is named."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beamer.errors import InputError, shortened

EXAMPLE = '{"iteration": 12, "loss": 0.5}'
MOST_SHOWN = 120
"""Characters of a refused line in a message."""
_NAMES = ("iteration", "samples", "loss")


@dataclass(frozen=True)
class ProgressLine:
    """A line of progress; step: iteration or samples, whichever the program counts."""

    step: float
    in_samples: bool
    loss: float
    accuracy: float | None = None
    gradient_sqr: float = 0.0
    gradient_var: float = 0.0


def parser(pattern: str) -> re.Pattern[str] | None:
    """Return what `parse` takes for the progress pattern of a launch."""
    return re.compile(pattern) if pattern else None


def parse(text: str, pattern: re.Pattern[str] | None) -> ProgressLine | None:
    """Return the progress that a line reports, None if it is another line.

    Raises `InputError` for one that looks like progress and is none: it begins with a brace, or `pattern` finds it.
    """
    values: Mapping[str, Any]
    if pattern is None:
        if not text.lstrip().startswith("{"):
            return None
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError("a line of progress", shortened(text, MOST_SHOWN), f"JSON such as {EXAMPLE}") from error
    else:
        found = pattern.search(text)
        if found is None:
            return None
        values = found.groupdict()
    return _line(values)


def is_meant_as_progress(text: str) -> bool:
    """Say whether a line that is none names what a line of progress does, so that it is no other JSON that is printed, too."""
    return any(name in text for name in _NAMES)


def _line(values: Mapping[str, Any]) -> ProgressLine:
    in_samples = values.get("samples") is not None
    step = _required(values, "samples" if in_samples else "iteration")
    if not math.isfinite(step):
        raise InputError("samples" if in_samples else "iteration", step, "a finite number")
    measured = (_measured(values.get(name)) for name in ("gradient_sqr", "gradient_var"))
    return ProgressLine(step, in_samples, _required(values, "loss"), _number(values.get("accuracy")), *measured)


def _required(values: Mapping[str, Any], name: str) -> float:
    number = _number(values.get(name))
    if number is None:
        shown = values.get(name) if name in values else f"a line without it: {shortened(json.dumps(values), MOST_SHOWN)}"
        raise InputError(name, shown, f"a number, as in {EXAMPLE}")
    return number


def _number(value: Any) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):  # the last of an integer of hundreds of digits
        return None


def _measured(value: Any) -> float:
    """Return a statistic of gradients, 0 where it was not measured."""
    number = _number(value)
    return number if number is not None and 0 <= number < math.inf else 0.0
