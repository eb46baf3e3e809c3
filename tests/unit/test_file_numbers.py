"""Times at their bounds are still told apart, as those beyond are not."""

import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from beamer.file_numbers import MAX_AMOUNT, Amount, Iterations, PositiveSeconds, Seconds, SyncBytes, Trials, Weight
from beamer.studies.model import MAX_RUNG_TRIALS, MAX_SECONDS, MAX_STEPS, MAX_SYNC_BYTES, MAX_WEIGHT

LARGEST = [
    (Seconds, MAX_SECONDS),
    (PositiveSeconds, MAX_SECONDS),
    (Amount, MAX_AMOUNT),
    (Weight, MAX_WEIGHT),
    (Iterations, MAX_STEPS),
    (Trials, MAX_RUNG_TRIALS),
    (SyncBytes, MAX_SYNC_BYTES),
]


@pytest.mark.parametrize(("kind", "most"), LARGEST, ids=lambda one: str(one)[:20])
def test_a_number_is_taken_up_to_its_bound(kind: Any, most: float) -> None:
    adapter = TypeAdapter(kind)
    assert adapter.validate_python(most) == most
    with pytest.raises(ValidationError):
        adapter.validate_python(2 * most)


@pytest.mark.parametrize("kind", [Seconds, PositiveSeconds, Amount, Weight])
@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0])
def test_what_is_no_amount_is_refused(kind: Any, value: float) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


def test_at_the_latest_time_ten_nanoseconds_are_seen() -> None:
    assert MAX_SECONDS + 1e-8 != MAX_SECONDS
    assert math.ulp(float(MAX_SECONDS)) < 4e-9
    assert 1e18 + 60.0 == 1e18, "beyond the bound a minute is not"
