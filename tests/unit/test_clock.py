"""Time as events are stamped with it: it starts where the wall clock is and never goes back."""

import time

from beamer.clock import SteadyClock


def test_it_starts_at_the_wall_clocks_time_and_goes_on_by_what_passes() -> None:
    passed = 50.0
    clock = SteadyClock(lambda: 1000.0, lambda: passed)
    assert clock() == 1000.0
    passed += 2.5
    assert clock() == 1002.5


def test_a_wall_clock_that_is_set_changes_nothing() -> None:
    wall = 5000.0
    clock = SteadyClock(lambda: wall, lambda: 0.0)
    wall -= 3600.0
    assert clock() == 5000.0


def test_it_is_not_before_what_is_known_to_have_passed() -> None:
    passed = 50.0
    clock = SteadyClock(lambda: 1000.0, lambda: passed)
    clock.not_before(4600.0)
    passed += 1.0
    assert clock() == 4601.0
    clock.not_before(2000.0)
    assert clock() == 4601.0


def test_it_is_unix_time_here() -> None:
    clock = SteadyClock()
    assert abs(clock() - time.time()) < 60.0
    assert clock() <= clock()
