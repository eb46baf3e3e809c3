"""How long a database may be silent: only silence counts, not how long an answer takes to come."""

from collections.abc import Generator

import pytest

from beamer.studies.journal import sessions
from beamer.studies.journal.location import parse_location
from beamer.studies.journal.sessions import engine_of, heard_within

READ, NOTHING = 1, 0


class SilenceError(Exception):
    pass


class Clock:
    """Stands in for the time module."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sessions, "time", made)
    return made


def answer(pieces: int) -> Generator[int, int, int]:
    """Read so many pieces, as psycopg does: what it is sent says whether there is one."""
    read = 0
    while read < pieces:
        read += yield READ
    return read


def drive(clock: Clock, gaps_s: list[float]) -> int:
    """Have a piece come after each of these times, looked for ten times a second."""
    waiting = heard_within(answer(len(gaps_s)), lambda: 3.0, SilenceError)
    try:
        assert next(waiting) == READ
        for gap_s in gaps_s:
            due = clock.now + gap_s
            while clock.now + 0.1 < due:
                clock.now += 0.1
                waiting.send(NOTHING)
            clock.now = due
            waiting.send(READ)
    except StopIteration as stop:
        return int(stop.value)
    raise AssertionError("it did not end")


def test_an_answer_may_take_long_while_some_of_it_comes(clock: Clock) -> None:
    assert drive(clock, [2.5] * 20) == 20
    assert clock.now == pytest.approx(50.0)


def test_silence_ends_it(clock: Clock) -> None:
    with pytest.raises(SilenceError):
        drive(clock, [2.0, 4.0])


def test_what_asks_for_nothing_returns_at_once() -> None:
    assert next_value(heard_within(answer(0), lambda: 3.0, SilenceError)) == 0


def next_value(waiting: Generator[int, int, int]) -> int:
    with pytest.raises(StopIteration) as stopped:
        next(waiting)
    return int(stopped.value.value)


def test_the_kernel_notices_what_it_can_unless_the_url_says_otherwise() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    url = "postgresql+psycopg://u@h/d?connect_timeout=9"
    options = sessions._defaults(parse_location(url))
    assert set(options) == {"keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
    assert 1000 * sessions.SESSION_S < options["tcp_user_timeout"] <= 1000 * sessions.SILENT_S
    engine_of(url).dispose()
