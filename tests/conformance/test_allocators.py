"""Every registered allocator passes the suite that users run on their own."""

import pytest

from beamer.network.allocation import ALLOCATORS, Allocator, Classes, allocator
from tests.support.allocator_suite import ALLOCATOR_CHECKS, AllocatorCheck

CHOSEN: dict[str, Allocator] = {name: allocator(name) for name in ALLOCATORS} | {
    "two classes": Classes(queues=2),
    "classes without end": Classes(queues=None),
    "classes with a minimum share": Classes(minimum_share=0.05),
}


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("check", ALLOCATOR_CHECKS, ids=lambda check: check.__name__)
def test_rates(check: AllocatorCheck, name: str) -> None:
    check(CHOSEN[name])
