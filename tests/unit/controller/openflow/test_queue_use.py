"""Whether a queue is used, from its counts and from what was sent to it."""

import pytest

from controller.openflow.queue_use import MISSED, QueueUse


def after(*readings: tuple[int | None, int]) -> bool | None:
    """Return what is known after readings of a count, each with the probes sent since the one before."""
    use = QueueUse()
    for packets, told in readings:
        use.told += told
        use.read(packets, told)
    assert use.told == 0
    return use.obeyed


@pytest.mark.parametrize(
    ("readings", "obeyed"),
    [
        ([], None),
        ([(0, 50)], None),
        ([(5, 50), (5, MISSED - 1)], None),
        ([(5, 50), (5, MISSED)], False),
        ([(0, 3), (0, MISSED - 1), (0, 1)], False),
        ([(0, 3), (3, 3)], True),
        ([(0, 3), (3, 3), (3, MISSED)], False),
        ([(0, 3), (0, MISSED), (1, 3)], True),
        ([(9, 3), (9, MISSED - 1), (0, MISSED)], None),
        ([(9, 3), (12, 3), (None, 3)], None),
        ([(2**64 - 1, 3)], False),
    ],
    ids=str,
)
def test_probes_that_a_queue_does_not_count_show_that_it_gets_none(
    readings: list[tuple[int | None, int]], obeyed: bool | None
) -> None:
    assert after(*readings) is obeyed


def test_what_is_sent_while_a_count_is_under_way_belongs_to_the_next_one() -> None:
    use = QueueUse(told=3)
    use.read(0, 3)
    use.told += 4
    use.read(0, 1)
    assert use.told == 3
