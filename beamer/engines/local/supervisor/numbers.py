"""Numbers as programs print them: Python, C, NumPy, PyTorch, YAML; what is none of them is never read as another number.

    0.5  1e-4  .5  1_000  nan  NaN  -inf  Infinity  .nan  -.inf  Decimal('0.5')  np.float32(0.5)  array(0.5)  tensor(0.5)

`1,234.5` is refused: in one country it is a number, in another a list of two.
"""

import re

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Control sequences of terminals, such as colours (ECMA-48, section 5.4)."""
_WRAPPED = re.compile(
    r"""(?:(?:np|numpy|torch|decimal)\.)?(?:u?int\d*|b?float\d*|Decimal|array|tensor)\(\s*["']?([^"'(),\s]+)["']?\s*[,)].*"""
)
_YAML = re.compile(r"([+-]?)\.(inf|Inf|INF|nan|NaN|NAN)")
_NOT_DIGITS = re.compile(
    r"(?<![\w.])(?:[+-]?\.?(?:nan|inf(?:inity)?)|[+-](?:\d++(?:\.\d*+)?|\.\d++)(?:e[+-]?\d++)?)(?![\w.])", re.IGNORECASE
)
"""Numbers that a pattern which asks for digits does not find: signed ones, and those that are not finite."""
_STRING_OR_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*+"?|[^\s{}\[\],:"]++', re.DOTALL)
_EXPONENT = re.compile(r"[eE][+-]?\d+")
_THOUSANDS_AFTER = re.compile(r",\d{3}(?!\d)")
_THOUSANDS_BEFORE = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})*,\Z")
PLACEHOLDERS = ("0.0", "0.0000", "0.000", "0.000000")
"""Digits as programs print them, and patterns ask for them, in place of numbers that are signed or not finite."""
_LONGEST = 100
"""Characters of a number: the longest that `repr` prints of 64 bits has 24, and what wraps it may have as many more."""


def number(text: str) -> float | None:
    """Return the number that a text is, None if it is none."""
    shown = _ESCAPES.sub("", text).strip() if len(text) <= 2 * _LONGEST else text
    if wrapped := _WRAPPED.fullmatch(shown):
        shown = wrapped[1]
    if yaml := _YAML.fullmatch(shown):
        shown = yaml[1] + yaml[2]
    try:
        return float(shown)
    except ValueError:
        return None


def as_json(text: str) -> str:
    """Return a line with the numbers that are none in JSON, outside of its texts, as numbers of JSON.

    `NaN`, `Infinity` and `-Infinity` are what Python's parser takes for those that are not finite.
    """
    return _STRING_OR_TOKEN.sub(lambda found: _token(found[0]), text)


def _token(text: str) -> str:
    if text[0] == '"' or len(text) > _LONGEST or (read := number(text)) is None:
        return text
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(read), repr(read))


def is_beyond_digits(text: str) -> bool:
    """Say whether a line holds a number that is signed or not finite."""
    return _NOT_DIGITS.search(text) is not None


def in_digits(text: str, digits: str) -> tuple[str, dict[int, str]]:
    """Return a line with digits for each number that is signed or not finite, and these, by where their digits begin.

    A pattern that says `[\\d.]+` finds no NaN, and the line would count as none.
    """
    parts: list[str] = []
    found: dict[int, str] = {}
    end = length = 0
    for one in _NOT_DIGITS.finditer(text):
        parts += (text[end : one.start()], digits)
        length += one.start() - end
        found[length] = one[0]
        length, end = length + len(digits), one.end()
    return "".join((*parts, text[end:])), found


def whole(line: str, part: tuple[int, int], match: tuple[int, int]) -> str:
    """Return the number of which a pattern has taken a part: with its exponent, and with what is parted from it by commas.

    part, match: where the part begins and ends in the line, and where all that the pattern has found does. What the pattern
    itself finds beside the part, it means to be beside it.
    """
    start, end = part
    if end == match[1] and (exponent := _EXPONENT.match(line, end)):
        end = exponent.end()
    elif end == match[1] and line[start:end].lstrip("+-").isdigit() and (more := _THOUSANDS_AFTER.match(line, end)):
        end = more.end()
    if start == match[0] and line[start : start + 3].isdigit() and not line[start + 3 : start + 4].isdigit():
        before = _THOUSANDS_BEFORE.search(line[max(start - _LONGEST, 0) : start])
        start -= len(before[0]) if before else 0
    return line[start:end]
