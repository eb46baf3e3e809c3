"""JSON that people can read and compare: a line per entry down to a depth, and one line for what lies below."""

import json
from typing import Any

DIGITS = 7  # significant, of a figure


def json_lines(value: Any, levels: int) -> str:
    """Return JSON whose objects have a line per entry, down to `levels`; figures are rounded."""
    return _lines(value, 0, levels) + "\n"


def _lines(value: Any, level: int, levels: int) -> str:
    if level >= levels or not isinstance(value, dict) or not value:
        return json.dumps(_rounded(value))
    indent = " " * (level + 1)
    inner = ",\n".join(f"{indent}{json.dumps(key)}: {_lines(one, level + 1, levels)}" for key, one in value.items())
    return "{\n" + inner + "\n" + " " * level + "}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
