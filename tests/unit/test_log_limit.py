"""How much is logged of what happens thousands of times."""

import logging

import pytest

from beamer.log_limit import MAX_KINDS, LimitedRecords, LogLimit, VariedLogLimit


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_few_lines_of_a_kind_are_logged_in_a_time(clock: Clock) -> None:
    limit = LogLimit(2, 60.0, clock)
    assert [limit.take("a"), limit.take("a"), limit.take("a"), limit.take("b")] == [True, True, False, True]
    clock.s = 60.0
    assert limit.take("a")


def test_of_kinds_the_latest_are_remembered(clock: Clock) -> None:
    limit = LogLimit(1, 60.0, clock)
    assert all(limit.take(number) for number in range(MAX_KINDS + 1))
    assert not limit.take(MAX_KINDS)
    assert limit.take(0), "the oldest is forgotten"


def test_records_of_a_library_are_told_apart_by_how_they_begin(clock: Clock) -> None:
    records = LimitedRecords(LogLimit(1, 60.0, clock))
    accept = "socket.accept() out of system resource\nsocket: <socket.socket fd={}>"
    made = [logging.LogRecord("asyncio", logging.ERROR, "", 0, accept.format(i), None, None) for i in range(3)]
    assert [records.filter(record) for record in made] == [True, False, False]


def test_each_variant_is_logged_once_in_a_time(clock: Clock) -> None:
    limit = VariedLogLimit(10, 60.0, clock)
    assert [limit.take("denied", peer) for peer in ("a", "a", "b", "a")] == [True, False, True, False]
    assert limit.take("lost", "a"), "another kind"
    clock.s = 60.0
    assert limit.take("denied", "a")


def test_few_variants_of_a_kind_are_logged_however_many_there_are(clock: Clock) -> None:
    limit = VariedLogLimit(3, 60.0, clock)
    assert sum(limit.take("denied", peer) for peer in range(1000)) == 3
    assert limit.take("lost", 0), "another kind"
    clock.s = 60.0
    assert sum(limit.take("denied", peer) for peer in range(1000)) == 3


def test_what_was_left_out_is_counted_until_a_line_is_logged(clock: Clock) -> None:
    limit = VariedLogLimit(1, 60.0, clock)
    for _ in range(3):
        limit.take("denied", "a")
    assert (limit.left_out("denied"), limit.left_out("lost")) == (2, 0)
    clock.s = 60.0
    assert limit.take("denied", "b")
    assert limit.left_out("denied") == 0


def test_what_was_over_is_logged_again(clock: Clock) -> None:
    limit = VariedLogLimit(1, 60.0, clock)
    assert [limit.take("connection", "a"), limit.take("connection", "b")] == [True, False]
    limit.reset("connection")
    assert limit.take("connection", "b")
