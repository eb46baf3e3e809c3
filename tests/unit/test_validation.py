"""Findings of pydantic as errors in Beamer's words: every kind that a file, a request or an option can lead to."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic_core.core_schema import ErrorType

from beamer.errors import InputError
from beamer.validation import finding_error, input_error, numbers_alone
from beamer.validation_messages import EXPECTED, expected

UNUSED = re.compile(
    "(date|time|url|uuid|decimal|fraction|complex|bytes|callable|is_|no_such|needs|get_attr|frozen_(field|instance)|default_"
    "|named_tuple|dataclass_exact|deque|iteration|ellipsis|missing_sentinel|multiple_argument|unexpected_positional).*"
)
"""Kinds of types that no file, request or option has, and of mistakes in a program's own calls."""
NAMED_ELSEWHERE = {"extra_forbidden", "unexpected_keyword_argument", "value_error", "assertion_error"}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part:
    size: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[int] = Field(default=[1], min_length=1, max_length=3)
    pairs: Annotated[dict[str, int], Field(min_length=2)] = {"a": 1, "b": 2}
    bounds: tuple[int, int] = (1, 2)
    count: int = Field(default=1, ge=1, le=9)
    share: float = Field(default=0.5, gt=0, lt=1, allow_inf_nan=False)
    name: str = Field(default="a", pattern="^a+$", min_length=1, max_length=3)
    kind: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    flag: bool = True
    part: Part = Part(1)
    inner: Cat = Cat(kind="cat")
    animal: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat(kind="cat")
    even: int = Field(default=2, multiple_of=2)
    known: frozenset[int] = frozenset()
    checked: int = 1

    @field_validator("checked")
    @classmethod
    def check(cls, value: int) -> int:
        if value < 1:
            raise ValueError("one that is checked")
        if value >= 100:
            raise AssertionError("one below a hundred")
        return value


CASES: list[tuple[dict[str, Any], str]] = [
    ({"items": []}, "items: got [], expected a list with at least 1 entry"),
    ({"items": [1, 2, 3, 4]}, "items: got [1, 2, 3, 4], expected a list with at most 3 entries"),
    ({"items": 3}, "items: got 3, expected a list"),
    ({"items": ["x"]}, "items[0]: got 'x', expected a whole number"),
    ({"pairs": {}}, "pairs: got {}, expected a mapping with at least 2 entries"),
    ({"pairs": []}, "pairs: got [], expected a mapping"),
    ({"pairs": {"a": 1, 2: 2}}, "pairs[2]: got 2, expected a text"),
    ({"bounds": [1]}, "bounds[1]: got None, expected a value (it is required)"),
    ({"bounds": "x"}, "bounds: got 'x', expected a list"),
    ({"count": 0}, "count: got 0, expected greater than or equal to 1"),
    ({"count": 10}, "count: got 10, expected less than or equal to 9"),
    ({"count": 1.5}, "count: got 1.5, expected a whole number"),
    ({"count": None}, "count: got None, expected a whole number"),
    ({"count": float("nan")}, "count: got nan, expected a finite number"),
    ({"count": 1e300}, "count: got 1e+300, expected a whole number of fewer digits"),
    ({"share": float("inf")}, "share: got inf, expected a finite number"),
    ({"share": 0.0}, "share: got 0.0, expected greater than 0"),
    ({"share": 1}, "share: got 1, expected less than 1"),
    ({"share": "x"}, "share: got 'x', expected a number"),
    ({"share": []}, "share: got [], expected a number"),
    ({"name": ""}, "name: got '', expected a text of at least 1 character"),
    ({"name": "aaaa"}, "name: got 'aaaa', expected a text of at most 3 characters"),
    ({"name": "b"}, "name: got 'b', expected a text of the form ^a+$"),
    ({"name": 3}, "name: got 3, expected a text"),
    ({"kind": "c"}, "kind: got 'c', expected 'a' or 'b'"),
    ({"colour": "green"}, "colour: got 'green', expected 'red' or 'blue'"),
    ({"flag": "maybe"}, "flag: got 'maybe', expected true or false"),
    ({"flag": []}, "flag: got [], expected true or false"),
    ({"part": 3}, "part: got 3, expected a mapping"),
    ({"part": {}}, "part.size: got None, expected a value (it is required)"),
    ({"inner": 3}, "inner: got 3, expected a mapping"),
    ({"animal": {"kind": "cow"}}, "animal: got {'kind': 'cow'}, expected 'kind' to be one of 'cat', 'dog'"),
    ({"animal": {}}, "animal: got {}, expected a mapping with the key 'kind'"),
    ({"even": 3}, "even: got 3, expected a multiple of 2"),
    ({"known": 3}, "known: got 3, expected a list"),
    ({"checked": 0}, "checked: got 0, expected one that is checked"),
    ({"checked": 100}, "checked: got 100, expected one below a hundred"),
]


@pytest.mark.parametrize(("data", "message"), CASES, ids=lambda case: str(case)[:40])
def test_what_is_found_is_said_in_beamers_words(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Record.model_validate(data)
    assert str(input_error(caught.value, Record)) == message


def test_text_that_is_no_json_is_said_to_be_none() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[int]).validate_json("[1,")
    assert input_error(caught.value).expected.startswith("JSON (")


def test_every_kind_of_finding_has_words() -> None:
    kinds = [kind for kind in get_args(ErrorType) if not UNUSED.fullmatch(kind)]
    assert sorted(set(kinds) - EXPECTED.keys() - NAMED_ELSEWHERE) == []
    assert sorted(EXPECTED.keys() - set(kinds)) == []


def test_a_kind_of_another_version_has_pydantics_words() -> None:
    assert expected({"type": "new_kind", "msg": "Input should be new"}) == "new"
    assert finding_error({"type": "new_kind", "msg": "Never old", "loc": ("a", 0), "input": 3}).field == "a[0]"


def test_an_error_of_beamers_own_keeps_its_words() -> None:
    def refuse(value: int) -> int:
        raise InputError("size", value, "another")

    class Refusing(BaseModel):
        size: int

        @field_validator("size")
        @classmethod
        def check(cls, value: int) -> int:
            return refuse(value)

    with pytest.raises(ValidationError) as caught:
        Refusing.model_validate({"size": 3})
    assert str(input_error(caught.value)) == "size: got 3, expected another"


class Numbers(BaseModel):
    _numbers = numbers_alone

    plain: int = 1
    optional: float | None = None
    bounded: Annotated[float, Field(ge=0)] | None = None
    several: list[int] = []
    pair: tuple[float, ...] = ()
    by_name: dict[str, Annotated[float, Field(ge=0)]] = {}
    deeper: dict[str, list[int]] = {}
    either: bool | int = 0
    texts: list[str | bool] = []


@pytest.mark.parametrize(
    "values",
    [
        {"plain": True},
        {"optional": False},
        {"bounded": True},
        {"several": [1, True]},
        {"pair": [True]},
        {"by_name": {"a": 1.0, "b": True}},
        {"deeper": {"a": [1, False]}},
    ],
    ids=str,
)
def test_true_and_false_are_no_numbers_wherever_numbers_are(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a number, not true or false"):
        Numbers.model_validate(values)


def test_true_and_false_are_taken_where_they_are_meant() -> None:
    found = Numbers.model_validate({"either": True, "texts": [True, "a"], "several": [0, 1], "by_name": {"a": 1}})
    assert (found.either, found.texts, found.several) == (True, [True, "a"], [0, 1])
