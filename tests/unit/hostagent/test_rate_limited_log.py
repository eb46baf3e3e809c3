"""What is logged of failures that are repeated, and that another program words."""

import logging

import pytest

from beamer.errors import MAX_SHOWN
from hostagent import rate_limited_log as module
from hostagent.rate_limited_log import RateLimitedLog


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limited(clock: Clock, caplog: pytest.LogCaptureFixture) -> RateLimitedLog:
    caplog.set_level(logging.INFO)
    return RateLimitedLog(clock)


def test_each_text_is_logged_once_a_minute(limited: RateLimitedLog, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        limited.add("marks", "refused")
        limited.add("marks", OSError("another"))
        limited.add("sockets", "refused", logging.INFO)
    assert caplog.messages == ["marks: refused", "marks: another", "sockets: refused"]
    clock.s = module._AGAIN_S
    limited.add("marks", "refused")
    assert caplog.messages[3:] == ["marks: refused"]


def test_few_texts_of_a_kind_are_logged_whatever_they_say(
    limited: RateLimitedLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        limited.add("assignment", f"{number}")
    limited.add("marks", "refused")
    assert len(caplog.messages) == module._MAX_TEXTS + 1


def test_what_was_over_is_logged_again(limited: RateLimitedLog, caplog: pytest.LogCaptureFixture) -> None:
    limited.add("marks", "refused")
    limited.reset("marks")
    limited.reset("never there")
    limited.add("marks", "refused")
    assert caplog.messages == ["marks: refused"] * 2


def test_a_long_text_is_cut_off(limited: RateLimitedLog, caplog: pytest.LogCaptureFixture) -> None:
    limited.add("assignment", "x" * 10**6)
    assert len(caplog.messages[0]) < MAX_SHOWN + 100
