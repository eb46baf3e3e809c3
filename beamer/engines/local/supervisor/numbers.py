"""Numbers as programs print them: Python, C, NumPy, PyTorch, YAML; what is none of them is never read as another number.

    0.5  1e-4  .5  1_000  nan  NaN  -inf  Infinity  .nan  -.inf  1.#IND  Decimal('0.5')  np.float32(0.5)  tensor(0.5)

`1,234.5` is refused: in one country it is a number, in another a list of two. So are `0,5`, `1'234`, `1.5k` and `1d-5`.
"""

import re

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Control sequences of terminals, such as colours (ECMA-48, section 5.4)."""
_WRAPPED = re.compile(
    r"""(?:(?:np|numpy|torch|decimal)\.)?(?:u?int\d*|b?float\d*|Decimal|array|tensor)\(\s*["']?([^"'(),\s]+)["']?\s*[,)].*"""
)
_YAML = re.compile(r"([+-]?)\.(inf|Inf|INF|nan|NaN|NAN)")
_MICROSOFT = re.compile(r"([+-]?)1\.#(INF|IND|QNAN|SNAN)0*")
_NOT_DIGITS = re.compile(
    r"(?<![\w.])(?:(?:[+-]?\.?(?:nan|inf(?:inity)?)|n/a|none|null|[+-]?1\.\#(?:inf|ind|qnan|snan)\d*)(?![\w.])"
    r"|[+-](?:\d++(?:\.\d*+)?|\.\d++))",
    re.IGNORECASE,
)
"""What a pattern that asks for digits does not find: signed numbers, those that are not finite, and words for none."""
_STRING_OR_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*+"?|[^\s{}\[\],:"]++', re.DOTALL)
_AFTER = re.compile(
    r"""(?:[_'’]\d+)+(?:\.[\d_]*+)?(?:[eE][+-]?\d+)?  # 1_234.5  1'234
    |[eEdD][+-]?\d+                       # 1e-05  1d-5
    |,(?:\d{3}(?!\d)|\d+(?![\d.,]))       # 1,234  0,5
    |(?<=\d\.)\#[A-Z]+\d*                 # 1.#IND
    |(?<=0)[xX][\da-fA-F.]+(?:[pP][+-]?\d+)?
    |[kKMGBT](?!\w)""",
    re.VERBOSE,
)
"""What goes on a number of which a pattern has taken the beginning."""
_BEFORE = re.compile(
    r"""(?:(?<![\w.,'’])[+-]?\d{1,3}(?:,\d{3})*,        # 1,234
    |(?<![\w.])[+-]?\d+(?:[_'’]\d+)*[_'’]               # 1_234
    |(?<![\w.])[+-]?\d+(?:\.\d*)?[eE][+-]?              # 1e3
    |(?<![\w.])[+-])\Z""",
    re.VERBOSE,
)
"""What comes first of a number of which a pattern has taken the end."""
PLACEHOLDERS = ("0.0", "0.0000", "0.000", "0.000000")
"""Digits as programs print them, and patterns ask for them, in place of numbers that are signed or not finite."""
_LONGEST = 100
"""Characters of a number: the longest that `repr` prints of 64 bits has 24, and what wraps it may have as many more."""


def without_escapes(text: str) -> str:
    """Return a text without control sequences of terminals."""
    return _ESCAPES.sub("", text)


def number(text: str) -> float | None:
    """Return the number that a text is, None if it is none."""
    shown = without_escapes(text).strip() if len(text) <= 2 * _LONGEST else text
    if wrapped := _WRAPPED.fullmatch(shown):
        shown = wrapped[1]
    if yaml := _YAML.fullmatch(shown):
        shown = yaml[1] + yaml[2]
    elif microsoft := _MICROSOFT.fullmatch(shown):
        shown = microsoft[1] + ("inf" if microsoft[2] == "INF" else "nan")
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
    """Say whether a line holds a number that is signed or not finite, or a word for none."""
    return _NOT_DIGITS.search(text) is not None


def in_digits(text: str, digits: str) -> tuple[str, dict[int, str]]:
    """Return a line with digits for each number that is signed or not finite, or a word for none, and these, by where.

    A pattern that says `[\\d.]+` finds no NaN, and the line would count as none.
    """
    parts: list[str] = []
    found: dict[int, str] = {}
    end = length = 0
    for one in _NOT_DIGITS.finditer(text):
        after = _end(text, one.start(), one.end())
        if one.start() < end or text[after : after + 1].isalnum():
            continue
        parts += (text[end : one.start()], digits)
        length += one.start() - end
        found[length] = text[one.start() : after]
        length, end = length + len(digits), after
    return "".join((*parts, text[end:])), found


def whole(line: str, part: tuple[int, int], match: tuple[int, int]) -> str:
    """Return the number of which a pattern has taken a part: with its exponent and its groups of digits.

    part, match: where the part begins and ends in the line, and where all that the pattern has found does. What the pattern
    itself finds beside the part, it means to be beside it.
    """
    start, end = part
    if end == match[1]:
        end = _end(line, start, end)
    if start == match[0] and (before := _BEFORE.search(line[max(start - _LONGEST, 0) : start])):
        is_number = before[0][-1] != "," or (line[start : start + 3].isdigit() and not line[start + 3 : start + 4].isdigit())
        start -= len(before[0]) if is_number else 0
    return line[start:end]


def _end(line: str, start: int, end: int) -> int:
    """Return where a number ends of which the beginning is known: a comma goes on digits alone that are no entry of a list."""
    more = _AFTER.match(line, end)
    if more is None or (more[0][0] == "," and not (line[start:end].lstrip("+-").isdigit() and line[start - 1 : start] != ",")):
        return end
    return more.end()
