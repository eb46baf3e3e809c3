"""Every allocator passes the suite that users run on their own."""

from functools import partial

import pytest

from beamer.allocation.classes import classes
from beamer.allocation.demand import Allocator
from beamer.allocation.maxmin import maxmin
from beamer.testing.allocation import ALLOCATOR_CHECKS, AllocatorCheck

ALLOCATORS: dict[str, Allocator] = {
    "maxmin": maxmin,
    "classes": classes,
    "classes with a minimum share": partial(classes, minimum_share=0.05),
}


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("check", ALLOCATOR_CHECKS, ids=lambda check: check.__name__)
def test_rates(check: AllocatorCheck, name: str) -> None:
    check(ALLOCATORS[name])
