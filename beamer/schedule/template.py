"""A job template: what is run for a configuration, with {placeholders} of its values."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from string import Formatter
from typing import Any

from beamer.errors import InputError, nearest
from beamer.studies.model import MOST_RUNG_TRIALS, check_name

Value = bool | int | float | str
MOST_LETTERS = 63


@dataclass(frozen=True)
class Trial:
    """A configuration. values: what stands for its placeholders."""

    name: str
    values: Mapping[str, Value]


def trials(configurations: Sequence[Mapping[str, Value]], field: str) -> tuple[Trial, ...]:
    """Return configurations with their names: as given or, without, made of their values. Raises `InputError`."""
    found: dict[str, Trial] = {}
    for i, configuration in enumerate(configurations):
        values = {key: value for key, value in configuration.items() if key != "name"}
        for key in values:
            if not key.isidentifier() or key in OWN:
                raise InputError(f"{field}[{i}]", key, f"keys made of letters, digits and '_', and none of {', '.join(OWN)}")
        name = configuration.get("name")
        name = _name(values, f"trial-{i + 1}") if name is None else check_name(str(name), f"{field}[{i}].name")
        if name in found:
            raise InputError(f"{field}[{i}]", name, "a configuration whose name no other has")
        found[name] = Trial(name, values)
    return tuple(found.values())


def grid(axes: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """Return all combinations of values, the last key's changing fastest. Raises `InputError` for more than any search has."""
    count = prod(len(values) for values in axes.values())
    if count > MOST_RUNG_TRIALS:
        raise InputError("grid", f"{count} combinations", f"at most {MOST_RUNG_TRIALS} of them")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _name(values: Mapping[str, Value], otherwise: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", "_".join(f"{key}-{value}" for key, value in values.items())).lstrip("._-")
    return name if 0 < len(name) <= MOST_LETTERS else otherwise


OWN = ("iterations", "python")
"""Placeholders that are no configuration's: a rung's iterations, the interpreter that runs Beamer. `name` is the trial's."""


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


def _placeholders(text: str, field: str) -> Iterator[str]:
    try:
        for _, name, form, conversion in Formatter().parse(text):
            if name is not None:
                if form or conversion:
                    raise ValueError("no format, no conversion")
                yield name
    except ValueError as error:
        raise InputError(field, text, f"placeholders such as {{name}}, other braces doubled ({error})") from error
