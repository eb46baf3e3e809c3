"""Room on a GPU: which suspended jobs' memory leaves."""

import pytest

from beamer.engines.local.eviction import Eviction, Resident, eviction

FIRST, SECOND, THIRD = Resident("first", 6, 1.0), Resident("second", 4, 2.0), Resident("third", 0, 3.0)


@pytest.mark.parametrize(
    ("needed", "free", "leaving", "expected"),
    [
        (5, 5, 0, Eviction(False)),
        (5, 4, 0, Eviction(True, ("second",))),
        (9, 4, 0, Eviction(True, ("second", "first"))),
        (5, 4, 1, Eviction(True)),
        (9, 1, 4, Eviction(True, ("second",))),
        (99, 4, 0, Eviction(False)),
        (0, 0, 0, Eviction(False)),
    ],
)
def test_the_last_suspended_leave_as_far_as_needed(needed: int, free: int, leaving: int, expected: Eviction) -> None:
    assert eviction(needed, free, leaving, (FIRST, SECOND, THIRD)) == expected
