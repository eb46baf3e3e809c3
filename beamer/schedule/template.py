"""A job template: what is run for a configuration, with {placeholders} of its values, and how configurations are named."""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from string import Formatter
from typing import Any

from beamer.errors import InputError, nearest
from beamer.studies.model import MAX_RUNG_TRIALS, check_identifier, is_identifier

Value = bool | int | float | str
MAX_NAME_CHARACTERS = 63
"""Of a name, as of `check_identifier`."""
DIGEST_DIGITS = 12
"""Hexadecimal digits that end a name which does not say all by itself: two of 10 000 are equal with a probability of 2e-7."""
_DIGEST = re.compile(rf"-[0-9a-f]{{{DIGEST_DIGITS}}}$")


@dataclass(frozen=True)
class Trial:
    """A configuration. values: what stands for its placeholders."""

    name: str
    values: Mapping[str, Value]


def trials(configurations: Sequence[Mapping[str, Value]], field: str, names: Sequence[str] | None = None) -> tuple[Trial, ...]:
    """Return configurations with their names: as given or, without, made of their values. Raises `InputError`.

    names: of all, as they were found before; None: they are found now.
    """
    found: dict[str, int] = {}
    made: list[Trial] = []
    if names is not None and len(names) != len(configurations):
        raise InputError("names", len(names), f"as many as there are configurations, {len(configurations)}")
    keys = sorted({key for configuration in configurations for key in configuration} - {"name"})
    for i, configuration in enumerate(configurations):
        values = {key: value for key, value in configuration.items() if key != "name"}
        for key in values:
            check_placeholder(key, f"{field}[{i}]")
        given = configuration.get("name")
        if given is not None:
            name = check_identifier(str(given), f"{field}[{i}].name")
        else:
            name = names[i] if names is not None else derived_name(values, keys) if values else f"trial-{i + 1}"
        if name in found:
            same = f"a configuration whose name no other has, as {field}[{found[name]}] has: give it another `name`"
            raise InputError(f"{field}[{i}]", name, same)
        found[name] = i
        made.append(Trial(name, values))
    return tuple(made)


def check_placeholder(name: str, field: str, own: Sequence[str] | None = None) -> None:
    """Check that a value may have a name. own: names that it may not have, None: `OWN`. Raises `InputError` about `field`."""
    own = OWN if own is None else own
    if not name.isidentifier() or name in own:
        raise InputError(field, name, f"keys made of letters, digits and '_', and none of {', '.join(own)}")


def grid(axes: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """Return all combinations of values, the last key's changing fastest.

    Raises `InputError` for a value that is repeated, and for more combinations than any search has.
    """
    for key, values in axes.items():
        found: dict[str, int] = {}
        for i, value in enumerate(values):
            first = found.setdefault(str(value), i)
            if first != i:
                raise InputError(f"grid.{key}[{i}]", value, f"another value than grid.{key}[{first}]")
    count = prod(len(values) for values in axes.values())
    if count > MAX_RUNG_TRIALS:
        raise InputError("grid", f"{count} combinations", f"at most {MAX_RUNG_TRIALS} of them")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def derived_name(values: Mapping[str, Value], keys: Collection[str]) -> str:
    """Return the name of a configuration that was given none: different values have different names.

    It depends on the configuration's own values and on the keys of the search, so that it stays when a value is added.
    keys: of all of the search's configurations. `KEY-VALUE_KEY-VALUE` is the name if the values can be read back from it.
    Otherwise what a name may not have becomes "-", and a digest of the values follows, which no other name ends with.
    """
    texts = [(key, str(value)) for key, value in values.items()]
    text = "_".join(f"{key}-{value}" for key, value in texts)
    if is_identifier(text) and not _DIGEST.search(text) and _read_back(text, keys) == texts:
        return text
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:DIGEST_DIGITS]
    shown = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[: MAX_NAME_CHARACTERS - DIGEST_DIGITS - 1].rstrip("._-")
    return f"{shown or 'trial'}-{digest}"


def first_names(configurations: Sequence[Mapping[str, Value]]) -> list[str]:
    """Return the names that 0.1.0 gave to configurations, some of them to several: searches that it started keep theirs."""
    found = []
    for i, values in enumerate(configurations):
        text = "_".join(f"{key}-{value}" for key, value in values.items() if key != "name")
        name = re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-")
        found.append(str(values.get("name", name if 0 < len(name) <= MAX_NAME_CHARACTERS else f"trial-{i + 1}")))
    return found


def _read_back(text: str, keys: Collection[str]) -> list[tuple[str, str]]:
    """Return keys and values of a name, as far as they can be told apart: a value of several may hold what looks like a key."""
    known = "|".join(re.escape(key) for key in sorted(keys, key=lambda key: (-len(key), key)))
    starts = list(re.finditer(rf"(?:^|_)({known})-", text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return [(match[1], text[match.end() : end]) for match, end in zip(starts, ends, strict=True)]


OWN = ("iterations", "python")
"""Placeholders that are no configuration's: a rung's iterations, the program's interpreter. `name` is the trial's."""


def filled(template: Any, values: Mapping[str, Value], field: str) -> Any:
    """Return a template, a text or texts in lists and mappings, with values for its {placeholders}; {{ and }} are braces.

    Raises `InputError` naming the text and the placeholder that nothing stands for.
    """
    if isinstance(template, str):
        for name in _placeholders(template, field):
            if name not in values:
                raise InputError(field, template, f"placeholders that are each {nearest(name, values)}")
        return template.format_map(values)
    if isinstance(template, Mapping):
        return {key: filled(value, values, f"{field}.{key}") for key, value in template.items()}
    if isinstance(template, Sequence):
        return [filled(value, values, f"{field}[{i}]") for i, value in enumerate(template)]
    return template


def placeholders(template: Any, field: str) -> set[str]:
    """Return the names of the placeholders of a template, as of `filled`. Raises `InputError` where it is none."""
    if isinstance(template, str):
        return {*_placeholders(template, field)}
    if isinstance(template, Mapping):
        return {name for key, value in template.items() for name in placeholders(value, f"{field}.{key}")}
    if isinstance(template, Sequence):
        return {name for i, value in enumerate(template) for name in placeholders(value, f"{field}[{i}]")}
    return set()


def _placeholders(text: str, field: str) -> Iterator[str]:
    try:
        for _, name, form, conversion in Formatter().parse(text):
            if name is not None:
                if form or conversion:
                    raise ValueError("no format, no conversion")
                yield name
    except ValueError as error:
        raise InputError(field, text, f"placeholders such as {{name}}, other braces doubled ({error})") from error
