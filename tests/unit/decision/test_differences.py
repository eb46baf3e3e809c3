"""Differences of JSON values: they lead back to the value, and are small where little differs."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.decision.differences import difference, patched

_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(_plain, _plain)
@settings(deadline=None)
def test_a_difference_leads_from_one_value_to_the_other(before: Any, after: Any) -> None:
    found = json.loads(json.dumps(difference(before, after)))
    assert json.dumps(patched(before, found)) == json.dumps(after), "the order of keys, and 1 apart from 1.0 and true"
    assert (found is None) == (json.dumps(before) == json.dumps(after))


def _order(items: int) -> dict[str, Any]:
    return {"order": [{"item": f"s{i}", "jobs": [f"s{i}/t{j}" for j in range(9)], "started_s": 1.5} for i in range(items)]}


def test_it_is_as_small_as_what_differs() -> None:
    sizes = []
    for items in (10, 1000):
        before, after = _order(items), _order(items)
        after["order"].insert(0, {"item": "new", "jobs": ["new/t"], "started_s": 2.0})
        after["order"][items // 2]["jobs"].append("another")
        del after["order"][-1]
        sizes.append(len(json.dumps(difference(before, after))))
    assert sizes[1] <= 1.2 * sizes[0], "whatever else there is"


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        ([1], {"keys": {}, "drop": []}),
        ({}, {"items": [1]}),
        ([1], {"items": [2]}),
        ([1, 2], {"items": [1]}),
        ({"a": 1}, {"keys": {}, "drop": ["b"]}),
    ],
)
def test_a_difference_of_another_value_is_refused(before: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="a difference of an"):
        patched(before, wrong)
