"""The names of configurations that were given none: different, readable, and the same when a value is added."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.schedule.template import Value, derived_name, first_names, grid, trials
from beamer.studies.model import is_identifier

LONG = "x" * 70


def names(**axes: Sequence[Value]) -> list[str]:
    return [trial.name for trial in trials(grid(axes), "grid")]


@pytest.mark.parametrize(
    "values",
    [
        ("学习", "训练"),
        ("relu(6)", "relu[6]", "relu-6-"),
        ("s3://b/x y", "s3://b/x-y"),
        ("/data/a", "data/a"),
        (LONG + "1", LONG + "2"),
        ("a\nb", "a b", "a-b"),
        (-0.1, 0.1),
        (1e20, 1e-20),
        ("1", "1.0", "1e0", "true", "True"),
        ("{a}", "%s {b}"),
        ("", "-", " "),
        (".inf", "inf", "-.inf", ".nan", "nan"),
        ("x", "x-0123456789ab", "1-8a1e9c1e0d1f"),
    ],
    ids=repr,
)
def test_different_values_have_different_names(values: Sequence[Value]) -> None:
    found = names(v=values)
    assert len(set(found)) == len(values)
    assert all(is_identifier(name) for name in found)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"lr": 0.1, "batch": 32}, "lr-0.1_batch-32"),
        ({"lr": -0.1}, "lr--0.1"),
        ({"act": "leaky_relu", "weight_decay": 1e-05}, "act-leaky_relu_weight_decay-1e-05"),
        ({"nesterov": True}, "nesterov-True"),
        ({"act": "relu(6)"}, "act-relu-6-"),
        ({"data": "s3://b/x y", "lr": 0.1}, "data-s3-b-x-y_lr-0.1-"),
        ({"v": "学习"}, "v-"),
        ({"v": LONG}, "v-" + "x" * 48 + "-"),
    ],
)
def test_a_name_shows_the_values(values: Mapping[str, Value], name: str) -> None:
    found = derived_name(values, values)
    assert found == name or (name.endswith("-") and found.startswith(name) and len(found) == len(name) + 12)


def test_names_stay_when_a_value_is_added() -> None:
    axes: dict[str, list[Value]] = {"act": ["relu(6)", "tanh"], "lr": [0.1, LONG]}
    before = names(**axes)
    assert set(before) <= set(names(act=["gelu", *axes["act"], "relu[6]"], lr=[*axes["lr"], 0.01]))


def test_a_value_that_looks_like_a_key_is_told_from_one() -> None:
    pairs = [("x_b-y", "z"), ("x", "y_b-z")]
    assert len({derived_name({"a": a, "b": b}, "ab") for a, b in pairs}) == 2
    assert len({derived_name(values, ("a", "b")) for values in ({"a": "1_b-2"}, {"a": 1, "b": 2})}) == 2


scalars = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(alphabet="ab_-1.é(", max_size=8))


@given(st.lists(st.tuples(scalars, scalars), unique_by=repr, min_size=2, max_size=30))
def test_no_two_of_many_have_one_name(pairs: list[tuple[Value, Value]]) -> None:
    found = {derived_name({"a": a, "a_b": b}, ("a", "a_b")) for a, b in pairs}
    assert len(found) == len(pairs)
    assert all(is_identifier(name) for name in found)


@pytest.mark.parametrize(("axis", "at"), [([0.1, 0.1], 1), ([True, False, True], 2), (["a", "b", "a"], 2)])
def test_a_value_that_is_there_twice_is_named_with_the_first(axis: list[Value], at: int) -> None:
    with pytest.raises(InputError, match=rf"^grid\.v\[{at}\]: .*another value than grid\.v\[0\]"):
        grid({"v": axis})


def test_two_configurations_of_one_name_are_both_named() -> None:
    same: list[dict[str, Value]] = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.1}]
    with pytest.raises(InputError, match=r"^configurations\[2\]: got 'lr-0.1'.* configurations\[0\] has: give it another"):
        trials(same, "configurations")


def test_configurations_without_values_are_counted() -> None:
    assert [trial.name for trial in trials([{}, {}], "configurations")] == ["trial-1", "trial-2"]


def test_0_1_0_named_them_as_it_did() -> None:
    values: list[dict[str, Any]] = [{"v": "a/b"}, {"v": LONG}, {"name": 7, "v": 1}, {"v": "学习"}]
    assert first_names(values) == ["v-a-b", "trial-2", "7", "v---"]
    assert [trial.name for trial in trials(values, "configurations", first_names(values))] == ["v-a-b", "trial-2", "7", "v---"]
    with pytest.raises(InputError, match="as many as there are configurations, 4"):
        trials(values, "configurations", ["a"])


def test_combinations_keep_their_order() -> None:
    assert [tuple(values.values()) for values in grid({"a": [1, 2], "b": ["x", "y"]})] == list(product([1, 2], ["x", "y"]))
