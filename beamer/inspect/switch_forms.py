"""What switches cannot do of their rules, in words, from `switch_forms` of a controller's health."""

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

_IN_WORDS = {"full": "all four tables, without set_queue", "host marks": "host marks only (one table)", "none": "no rules"}


def forms_in_words(forms: Mapping[str, Json]) -> Iterator[str]:
    """Yield for each switch that cannot hold all rules in which form it holds them, and why."""
    for name, one in sorted(forms.items()):
        if one["reason"]:
            yield f"{name}: {_IN_WORDS.get(one['form'], one['form'])}; {one['reason']}"


def limits_of_forms(forms: Mapping[str, Json]) -> Iterator[str]:
    """Yield what does not hold at these switches, a sentence for each thing."""
    for _, one in sorted(forms.items()):
        yield from one["limits"]
