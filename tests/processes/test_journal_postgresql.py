"""The journal in PostgreSQL: one writer by the session that writes, and what becomes of it when that session ends."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pytest
import sqlalchemy as sa

from beamer.errors import InputError, PlatformError, TakenError
from beamer.studies.events import StageRegistered, StudyRegistered
from beamer.studies.journal.sessions import SESSION_S
from beamer.studies.journal.store import Journal, JournalSnapshot
from tests.support.postgresql import PostgreSQL

EVENTS = (StudyRegistered(1.0, "s"), *(StageRegistered(float(i), "s", f"r{i}") for i in range(2, 7)))


def test_replays_what_was_written(url: str) -> None:
    with closing(Journal(url)) as journal:
        journal.append(*EVENTS[:2])
        journal.append(*EVENTS[2:])
    with closing(Journal(url)) as journal:
        assert list(journal.replay()) == list(EVENTS)
        *_, (link, _) = ((link, event) for link, event in journal.entries() if link.number <= 4)
        journal.compact(JournalSnapshot(link, "what they led to"))
        journal.append(EVENTS[0])
    with closing(Journal(url, writes=False)) as journal:
        assert journal.snapshot() == JournalSnapshot(link, "what they led to")
        assert list(journal.replay()) == [*EVENTS[4:], EVENTS[0]]


def test_has_one_writer(url: str) -> None:
    with closing(Journal(url)) as first:
        with pytest.raises(PlatformError, match="written by another process"):
            Journal(url)
        first.append(EVENTS[0])
    with closing(Journal(url)) as second:
        second.append(EVENTS[1])
        assert list(second.replay()) == list(EVENTS[:2])


def test_who_comes_right_after_a_writer_that_has_ended_is_not_refused(url: str) -> None:
    for _ in range(20):
        Journal(url).close()


def _end_sessions(server: PostgreSQL) -> None:
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname LIKE 'journal%'"
    server.query(others)


def test_a_writer_whose_session_was_lost_writes_again_if_nobody_else_has(server: PostgreSQL, url: str) -> None:
    with closing(Journal(url)) as journal:
        journal.append(EVENTS[0])
        _end_sessions(server)
        with pytest.raises(PlatformError, match="cannot be read and written"):
            journal.append(EVENTS[1])
        journal.append(EVENTS[1])
        assert list(journal.replay()) == list(EVENTS[:2])


def test_a_writer_whose_place_was_taken_writes_no_more(server: PostgreSQL, url: str) -> None:
    with closing(Journal(url)) as first:
        first.append(EVENTS[0])
        _end_sessions(server)
        with closing(Journal(url)) as second:
            second.append(EVENTS[1])
            for _ in range(2):
                with pytest.raises(PlatformError):
                    first.append(EVENTS[2])
        with pytest.raises(PlatformError, match="was written by another process"):
            first.append(EVENTS[2])
    with closing(Journal(url)) as journal:
        assert list(journal.replay()) == list(EVENTS[:2])


def taken_over_after_s(url: str, most_s: float) -> float:
    """Return for how long another process is refused to write."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + most_s:
        with suppress(TakenError), closing(Journal(url)):
            break
        time.sleep(0.1)
    return time.monotonic() - began_s


def test_a_writer_that_falls_silent_in_the_middle_of_what_it_sends_is_not_waited_for(url: str) -> None:
    """Its session is active, and no time-out of the server's runs."""
    with closing(Journal(url)) as first:
        first.append(EVENTS[0])
        assert first._connection is not None
        session: Any = first._connection.connection.driver_connection
        session.pgconn.enter_pipeline_mode()
        session.pgconn.send_query_params(b"SELECT 1", [])
        session.pgconn.send_flush_request()
        session.pgconn.flush()
        assert SESSION_S / 2 < taken_over_after_s(url, most_s := 8 * SESSION_S) < most_s
        with pytest.raises(PlatformError):
            first.append(EVENTS[1])


def test_a_writer_whose_statement_takes_long_keeps_the_right_to_write(url: str) -> None:
    with closing(Journal(url)) as first, ThreadPoolExecutor() as others:
        assert first._connection is not None
        refused = others.submit(taken_over_after_s, url, SESSION_S + 0.8)
        with first._connection.begin():
            first._connection.exec_driver_sql(f"SELECT pg_sleep({SESSION_S + 1})")
        assert refused.result() > SESSION_S + 0.8
        first.append(EVENTS[0])


def test_a_damaged_journal_is_named(server: PostgreSQL, url: str) -> None:
    with closing(Journal(url)) as journal:
        journal.append(*EVENTS)
    server.query("DELETE FROM events WHERE number = 3", sa.make_url(url).database or "")
    with closing(Journal(url)) as journal, pytest.raises(InputError, match="event 3 is missing"):
        list(journal.replay())
