"""Errors as they come back from another process."""

import pickle
from collections.abc import Iterator

import pytest

from beamer.errors import (
    MAX_COMPARED,
    MAX_SHOWN,
    BeamerError,
    ConflictError,
    EngineError,
    InputError,
    NotFoundError,
    PlatformError,
    first_of,
    hint,
    shortened,
)


@pytest.mark.parametrize(
    "error",
    [
        InputError("--data", "/tmp", "a folder that holds dl2/"),
        NotFoundError("study", "a", "a study that is there"),
        ConflictError("weight", 2, "1"),
        PlatformError("no root", "run it as root"),
        EngineError("it ended"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_from_another_process(error: BeamerError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_long_value_is_shown_in_part() -> None:
    error = InputError("run", "x" * 10**6, "a name")
    assert len(str(error)) < MAX_SHOWN + 100
    assert error.value == "x" * 10**6


def test_a_misspelt_name_is_compared_with_a_bounded_number_of_others() -> None:
    """Whoever is told of it must not keep all others waiting, however many names there are."""
    looked_at: list[int] = []

    def names() -> Iterator[str]:
        for i in range(10**6):
            looked_at.append(i)
            yield f"trial-{i}"

    assert hint("trial_7", names()) == " (did you mean 'trial-7'?)"
    assert len(looked_at) <= MAX_COMPARED + 1
    assert hint("trial_7", []) == ""


def test_the_first_of_nested_groups_is_found() -> None:
    first, second = ValueError("first"), KeyError("second")
    assert first_of(ExceptionGroup("", [ExceptionGroup("", [first, second]), second])) is first


def test_of_a_long_text_the_beginning_and_the_length_are_kept() -> None:
    assert shortened("short", 5) == "short"
    assert shortened("longer", 5) == "longe... (6 characters)"
