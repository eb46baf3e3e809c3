"""The journal: order, durability against SIGKILL, one line for a database that cannot be used."""

import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from beamer.errors import InputError, PlatformError
from beamer.network.events import Planned
from beamer.network.plan import JobPlan
from beamer.studies.events import AttemptStarted, Event, StageRegistered, StudyRegistered
from beamer.studies.journal import store
from beamer.studies.journal.chain import BEGINNING
from beamer.studies.journal.store import Journal, JournalSnapshot
from beamer.studies.model import Profile, Rung, Worker

EVENTS: tuple[Event, ...] = (
    StudyRegistered(1.5, "vision", "1", 2.0, (Rung("rung0", 4, 10),)),
    StageRegistered(1.0 / 3, "vision", "rung0"),
    AttemptStarted(2.0, "vision/t", "1", (Worker(0, "h1"), Worker(1, "h2")), Profile(10**12)),
    Planned(3.0, "beamer", 7, {"order": ["a"]}, 8, {"vision/t": JobPlan(0, 10**7)}),
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    opened = Journal(url)
    yield opened
    opened.close()


def test_replays_in_order_after_reopening(url: str, journal: Journal) -> None:
    journal.append(EVENTS[0])
    journal.append(*EVENTS[1:])
    journal.close()
    reopened = Journal(url)
    assert tuple(reopened.replay()) == EVENTS
    reopened.append(EVENTS[0])
    assert tuple(reopened.replay()) == (*EVENTS, EVENTS[0])
    reopened.close()


@pytest.mark.parametrize("steps", range(1, len(EVENTS) + 2))
def test_compacting_that_is_cut_off_after_any_step_loses_nothing(
    steps: int, url: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_DELETED_AT_ONCE", 1)
    journal.append(*EVENTS[:3])
    snapshot = JournalSnapshot(journal.head, "what came of the first three")
    journal.append(EVENTS[3])
    compacting = journal.compacting(snapshot)
    for _ in range(steps):
        next(compacting, None)
    journal.close()
    with closing(Journal(url)) as reopened:
        assert reopened.snapshot() == snapshot
        assert tuple(reopened.replay()) == EVENTS[3:]
        for _ in reopened.compacting(JournalSnapshot(reopened.head, "what came of all")):
            pass
        assert list(reopened.rows_after(BEGINNING)) == []


def test_append_of_nothing_writes_nothing(journal: Journal) -> None:
    journal.append()
    assert list(journal.replay()) == []


def test_several_events_are_one_transaction(journal: Journal, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "journal.db") as other:
        raising = "SELECT RAISE(ABORT, 'full')"
        other.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.kind = 'StageRegistered' BEGIN {raising}; END")
    other.close()
    with pytest.raises(PlatformError, match="full"):
        journal.append(*EVENTS)
    assert list(journal.replay()) == []


def test_appended_events_survive_sigkill(url: str) -> None:
    code = (
        "import os, signal\n"
        "from beamer.studies.events import StudyRegistered\n"
        "from beamer.studies.journal.store import Journal\n"
        f"journal = Journal({url!r})\n"
        "for i in range(20): journal.append(StudyRegistered(float(i), f's{i}'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    survivor = Journal(url)
    assert [event.at_s for event in survivor.replay()] == [float(i) for i in range(20)]
    survivor.close()


def test_writing_does_not_wait_for_the_disk(journal: Journal, tmp_path: Path) -> None:
    journal.append(EVENTS[0])
    assert (tmp_path / "journal.db-wal").exists()


def test_refuses_a_database_of_something_else(tmp_path: Path, url: str) -> None:
    with sqlite3.connect(tmp_path / "journal.db") as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    with pytest.raises(InputError, match="songs"):
        Journal(url)
    with sqlite3.connect(tmp_path / "journal.db") as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]
    other.close()


def test_refuses_a_file_that_is_no_database(tmp_path: Path, url: str) -> None:
    (tmp_path / "journal.db").write_text("a shopping list, rather long" * 50)
    with pytest.raises(InputError, match="a database that holds"):
        Journal(url)


def test_refuses_a_journal_of_a_newer_schema(tmp_path: Path, url: str, journal: Journal) -> None:
    journal.close()
    with sqlite3.connect(tmp_path / "journal.db") as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")
    other.close()
    with pytest.raises(InputError, match="newer"):
        Journal(url)


def test_names_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="absent"):
        Journal(f"sqlite:///{tmp_path}/absent/journal.db")


@pytest.mark.parametrize("url", ["journal.db", "", "orakel://host/db"])
def test_refuses_what_is_no_url(url: str) -> None:
    with pytest.raises(InputError, match="journal: got"):
        Journal(url)


def test_opening_leaves_logging_alone(url: str) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    own = logging.getLogger("beamer.test_store")
    Journal(url).close()
    assert (root.level, list(root.handlers)) == before
    assert not own.disabled


def test_the_schemas_that_are_known_are_those_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", store.MIGRATIONS)
    migrations = ScriptDirectory.from_config(config).walk_revisions()  # the latest first
    assert [one.revision for one in migrations][::-1] == list(store._SCHEMAS)


def test_a_journal_of_the_present_schema_is_opened_without_migrations(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    Journal(url).close()
    opening = f"from beamer.studies.journal.store import Journal; Journal({url!r}).close()"
    code = f"import sys; {opening}; print('alembic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
