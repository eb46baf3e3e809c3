"""Docstrings of the Python API as reStructuredText: plain prose, with code in backticks and in indented blocks."""

import re
from typing import Any

_SPECIAL = re.compile(r"(?<!`)([*|_])(?!`)")
_CODE = re.compile(r"(`[^`]*`)")


def process_docstring(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Rewrite the lines of a docstring in place: what markup would read is escaped, an indented block is code."""
    result: list[str] = []
    in_code = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not in_code and (not result or not result[-1].strip()):
            result += [".. code-block:: text", ""]
            in_code = True
        elif line.strip() and not indented:
            in_code = False
        result.append(line if in_code else _escaped(line))
    lines[:] = result


def _escaped(line: str) -> str:
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in _CODE.split(line))
