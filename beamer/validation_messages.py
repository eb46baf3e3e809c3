"""What pydantic finds, in the words of Beamer's own errors, so that whoever wrote a file need not know what has read it.

`EXPECTED` has every kind of finding that a number, a text, a list, a mapping or a choice can lead to. The words for bounds are
those that 0.1.0 has answered with, as programs may compare them.
"""

from collections.abc import Callable, Mapping
from typing import Any

Context = Mapping[str, Any]
"""What pydantic says beside a kind: the bounds that a value has passed, the choices that there are."""

Words = str | Callable[[Context], str]
"""What was expected: a format of the context's entries, or a function of the context."""

WHOLE_NUMBER = "a whole number"
NUMBER = "a number"
TEXT = "a text"
YES_OR_NO = "true or false"
LIST = "a list"
MAPPING = "a mapping"
_COLLECTIONS = {"Dictionary": MAPPING}  # pydantic names a kind of collection so; all others are lists in a file.


def _counted(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one.removesuffix('y')}{'ies' if one.endswith('y') else 's'}"


def _of_at_least(context: Context) -> str:
    return f"{_collection(context)} with at least {_counted(context['min_length'], 'entry')}"


def _of_at_most(context: Context) -> str:
    return f"{_collection(context)} with at most {_counted(context['max_length'], 'entry')}"


def _collection(context: Context) -> str:
    return _COLLECTIONS.get(context["field_type"], LIST)


def _long_enough(context: Context) -> str:
    return f"a text of at least {_counted(context['min_length'], 'character')}"


def _short_enough(context: Context) -> str:
    return f"a text of at most {_counted(context['max_length'], 'character')}"


EXPECTED: Mapping[str, Words] = {
    "missing": "a value (it is required)",
    "missing_argument": "a value (it is required)",
    "missing_keyword_only_argument": "a value (it is required)",
    "missing_positional_only_argument": "a value (it is required)",
    "none_required": "null",
    "int_type": WHOLE_NUMBER,
    "int_parsing": WHOLE_NUMBER,
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": WHOLE_NUMBER,
    "float_type": NUMBER,
    "float_parsing": NUMBER,
    "finite_number": "a finite number",
    "multiple_of": "a multiple of {multiple_of}",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "greater than or equal to {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "less than or equal to {le}",
    "bool_type": YES_OR_NO,
    "bool_parsing": YES_OR_NO,
    "string_type": TEXT,
    "string_unicode": "text in UTF-8",
    "string_not_ascii": "text in ASCII",
    "string_too_short": _long_enough,
    "string_too_long": _short_enough,
    "string_pattern_mismatch": "a text of the form {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "union_tag_invalid": "{discriminator} to be one of {expected_tags}",
    "union_tag_not_found": "a mapping with the key {discriminator}",
    "list_type": LIST,
    "tuple_type": LIST,
    "set_type": LIST,
    "frozen_set_type": LIST,
    "iterable_type": LIST,
    "set_item_not_hashable": "a list of texts or numbers",
    "too_short": _of_at_least,
    "too_long": _of_at_most,
    "dict_type": MAPPING,
    "mapping_type": MAPPING,
    "frozen_dict_type": MAPPING,
    "ordered_dict_type": MAPPING,
    "counter_type": MAPPING,
    "model_type": MAPPING,
    "model_attributes_type": MAPPING,
    "dataclass_type": MAPPING,
    "arguments_type": MAPPING,
    "invalid_key": "a text as key",
    "json_type": "text in JSON",
    "json_invalid": "JSON ({error})",
    "recursion_loop": "values that do not contain themselves",
    "recursion_depth_exceeded": "values that are not nested as deeply as this",
}


def expected(finding: Mapping[str, Any]) -> str:
    """Return what was expected in place of what an entry of pydantic's `errors()` is about.

    Of a check that raised an error of its own, that error's words; of a kind without words here, pydantic's.
    """
    context: Context = finding.get("ctx", {})
    words = EXPECTED.get(finding["type"])
    if words is None:
        found: str = finding["msg"]
        for prefix in ("Value error, ", "Assertion failed, ", "Input should be "):
            found = found.removeprefix(prefix)
        return found
    return words(context) if callable(words) else words.format_map({name: _shown(value) for name, value in context.items()})


def _shown(value: object) -> object:
    """Return a number without a fraction as it is written in a file."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e16 else value
