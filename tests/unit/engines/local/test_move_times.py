"""What a move is expected to take, from those before it."""

from beamer.engines.local.move_times import KEPT, MoveTimes

GIB = 1 << 30


def test_nothing_is_expected_of_moves_before_the_first() -> None:
    assert MoveTimes().expected_s(6 * GIB) == 0.0


def test_a_move_takes_as_long_as_its_size_at_the_median_rate() -> None:
    times = MoveTimes()
    for took_s, size in ((2.0, 2 * GIB), (90.0, 3 * GIB), (4.0, 4 * GIB)):
        times.add(took_s, size)
    assert times.expected_s(6 * GIB) == 6.0


def test_without_sizes_the_median_time_counts() -> None:
    times = MoveTimes()
    for took_s in (1.0, 9.0, 3.0):
        times.add(took_s, 0)
    assert times.expected_s(6 * GIB) == times.expected_s(0) == 3.0


def test_the_last_moves_count() -> None:
    times = MoveTimes()
    times.add(1000.0, GIB)
    for _ in range(KEPT):
        times.add(1.0, GIB)
    assert times.expected_s(GIB) == 1.0
