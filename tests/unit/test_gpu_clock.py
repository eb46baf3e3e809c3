"""The clock of live searches never goes back, whatever the system's does."""

from beamer.gpu.clock import SteadyClock


def test_a_clock_that_is_set_back_goes_on_and_one_that_is_set_forward_is_followed() -> None:
    wall_s, elapsed_s = 1000.0, 5.0
    clock = SteadyClock(lambda: wall_s, lambda: elapsed_s)
    assert clock() == 1000.0
    wall_s, elapsed_s = 1001.0 - 3600.0, 6.0
    assert clock() == 1001.0
    wall_s, elapsed_s = 1003.0 - 3600.0, 8.0
    assert clock() == 1003.0
    wall_s, elapsed_s = 2000.0, 9.0
    assert clock() == 2000.0


def test_a_clock_goes_on_from_the_end_of_a_journal() -> None:
    elapsed_s = 5.0
    clock = SteadyClock(lambda: 1000.0 + elapsed_s, lambda: elapsed_s)
    clock.start_from(4600.0)
    elapsed_s = 7.0
    assert clock() == 4602.0
    clock.start_from(3.0)
    assert clock() == 4602.0
