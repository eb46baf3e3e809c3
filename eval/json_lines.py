"""JSON that people can read and compare: a line per entry down to a depth, and one line for what lies below."""

import json
from typing import Any

DIGITS = 7  # of a figure
ALL_DIGITS = 17  # with which a figure is read back as it was


def json_lines(value: Any, levels: int, digits: int = DIGITS) -> str:
    """Return JSON whose objects have a line per entry, down to `levels`; figures are rounded to significant digits."""
    return _lines(_rounded(value, digits), 0, levels) + "\n"


def _lines(value: Any, level: int, levels: int) -> str:
    if level >= levels or not isinstance(value, dict) or not value:
        return json.dumps(value)
    indent = " " * (level + 1)
    inner = ",\n".join(f"{indent}{json.dumps(key)}: {_lines(one, level + 1, levels)}" for key, one in value.items())
    return "{\n" + inner + "\n" + " " * level + "}"


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: _rounded(one, digits) for key, one in value.items()}
    return [_rounded(one, digits) for one in value] if isinstance(value, list | tuple) else value
