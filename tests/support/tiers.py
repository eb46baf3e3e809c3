"""Which cases of a test run in every run, and which in the long one alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def long(*cases: Any) -> list[Any]:
    """Return cases of a parametrised test that `make test-long` runs; a tuple holds the values of one."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long) for case in cases]


def few(cases: Iterable[str], always: Iterable[str]) -> list[Any]:
    """Return cases by name, of which those in `always` run in every run, and the others in the long one."""
    kept = {*always}
    return [case if case in kept else long(case)[0] for case in cases]
