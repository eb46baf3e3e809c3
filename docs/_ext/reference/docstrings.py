"""Docstrings of the Python API as reStructuredText: plain prose, with code in backticks and in indented blocks."""

import inspect
import re
from typing import Any

_SPECIAL = re.compile(r"(?<!`)([*|_])(?!`)")
_RESTRICTED = re.compile(r"(?:\w+\.)*Annotated\[(\w+),.*?\)\]")
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


def process_signature(
    _app: Any, what: str, _name: str, described: Any, _options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Return a signature as it is written: of a class whose base is not installed, and without what restricts types."""
    if what == "class" and signature and "**kwargs" in signature:
        own = inspect.signature(described.__init__)
        signature = str(own.replace(parameters=[one for one in own.parameters.values() if one.name != "self"]))
    return signature and _RESTRICTED.sub(r"\1", signature), returned
