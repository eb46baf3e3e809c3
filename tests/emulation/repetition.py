"""Repeats a run that declared itself invalid: a busy machine's figures are no evidence about the project."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

RUNS = 3  # in all

T = TypeVar("T")


def until_valid(run: Callable[[], tuple[T, Sequence[str]]]) -> T:
    """Return the result of the first valid run of `RUNS` at most; fail with the findings of every one if none is.

    run: returns its result and what makes it invalid, nothing if it is valid.
    """
    invalid = []
    for number in range(1, RUNS + 1):
        result, findings = run()
        if not findings:
            return result
        invalid.append(f"run {number}: {'; '.join(findings)}")
        print("invalid", invalid[-1])
    pytest.fail("\n".join([f"none of {RUNS} runs was valid:", *invalid]))
