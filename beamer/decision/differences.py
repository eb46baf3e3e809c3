"""How one JSON value differs from another, so that a journal need not hold all that a policy remembers at every decision.

What policies remember are long lists of which a decision changes little. A difference is one of

    {"value": V}                               another value
    {"keys": {K: difference}, "drop": [K]}     of an object: values that differ or are new, and keys that are gone
    {"items": [N | [V, ...] | difference]}     of an array, from its beginning: N > 0 items are kept, N < 0 are dropped, items
                                               of a list are new, and one item differs

and `None` where both are equal. RFC 6902's patches address array items by position, so that an item at the front, which shifts
all others, rewrites them one by one.
"""

import json
from difflib import SequenceMatcher
from typing import Any

Json = Any


def difference(before: Json, after: Json) -> Json:
    """Return how `after` differs from `before`."""
    if isinstance(before, dict) and isinstance(after, dict):
        return _of_objects(before, after)
    if isinstance(before, list) and isinstance(after, list):
        return _of_arrays(before, after)
    same = type(before) is type(after) and before == after
    return None if same else {"value": after}


def patched(before: Json, difference: Json) -> Json:
    """Return what differs from `before` so. Raises `ValueError` if nothing can."""
    if difference is None:
        return before
    if "value" in difference:
        return difference["value"]
    if "keys" in difference:
        drop = set(difference["drop"])
        if not isinstance(before, dict) or not before.keys() >= drop:
            raise ValueError("a difference of another object")
        kept = {key: value for key, value in before.items() if key not in drop}
        return {**kept, **{key: patched(before.get(key), of_key) for key, of_key in difference["keys"].items()}}
    if not isinstance(before, list):
        raise ValueError("a difference of another array")
    return _patched_array(before, difference["items"])


def _of_objects(before: dict[str, Json], after: dict[str, Json]) -> Json:
    in_order = [key for key in before if key in after] + [key for key in after if key not in before]
    if in_order != list(after):
        return {"value": after}  # The order of an object's keys is kept, too.
    of_keys = {key: difference(before[key], value) if key in before else {"value": value} for key, value in after.items()}
    keys = {key: of_key for key, of_key in of_keys.items() if of_key is not None}
    drop = [key for key in before if key not in after]
    return {"keys": keys, "drop": drop} if keys or drop else None


def _of_arrays(before: list[Json], after: list[Json]) -> Json:
    old, new = ([json.dumps(item) for item in items] for items in (before, after))
    items: list[Json] = []
    for what, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            items.append(i_end - i)
        elif i_end - i == j_end - j:
            items += [difference(before[i + k], after[j + k]) for k in range(i_end - i)]
        else:
            items += [i - i_end] * (i_end > i) + [after[j:j_end]] * (j_end > j)
    return None if old == new else {"items": items}


def _patched_array(before: list[Json], items: list[Json]) -> list[Json]:
    after: list[Json] = []
    at = 0
    for item in items:
        if isinstance(item, list):
            after += item
        elif isinstance(item, dict):
            after.append(patched(before[at], item))
            at += 1
        else:
            after += before[at : at + max(item, 0)]
            at += abs(item)
    if at != len(before):
        raise ValueError("a difference of an array of another length")
    return after
