"""What may become of a journal in SQLite by accident: statements that damage one of `EVENTS`, each by a name."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from beamer.studies.events import Event, StageRegistered, StudyRegistered

EVENTS: Sequence[Event] = (StudyRegistered(1.0, "s"), *(StageRegistered(float(i), "s", f"r{i}") for i in range(2, 7)))
"""What the journal holds that is damaged."""

DAMAGES: Mapping[str, Sequence[str]] = {
    "content altered": ("UPDATE events SET content = replace(content, 'r3', 'r9') WHERE number = 3",),
    "kind altered": ("UPDATE events SET kind = 'StageSealed' WHERE number = 3",),
    "content is no JSON": ("UPDATE events SET content = '{' WHERE number = 3",),
    "content is empty": ("UPDATE events SET content = '' WHERE number = 3",),
    "checksum altered": ("UPDATE events SET checksum = checksum + 1 WHERE number = 3",),
    "an event lost": ("DELETE FROM events WHERE number = 3",),
    "the first lost": ("DELETE FROM events WHERE number = 1",),
    "the last lost": ("DELETE FROM events WHERE number = 6",),
    "all lost": ("DELETE FROM events",),
    "two exchanged": (
        "UPDATE events SET number = 100 WHERE number = 3",
        "UPDATE events SET number = 3 WHERE number = 4",
        "UPDATE events SET number = 4 WHERE number = 100",
    ),
    "one added": ("INSERT INTO events SELECT 7, kind, content, checksum FROM events WHERE number = 6",),
    "the head lost": ("DELETE FROM head",),
    "the head set back": ("UPDATE head SET number = 5",),
    "the term set back": ("UPDATE head SET term = 0",),
    "the term below zero": ("UPDATE head SET term = -5",),
    "the table lost": ("DROP TABLE events",),
    "a column lost": ("ALTER TABLE events DROP COLUMN checksum",),
    "the version lost": ("DELETE FROM alembic_version",),
}

BEYOND_REPAIR = frozenset({"the table lost", "a column lost", "the version lost"})
"""The damages after which no event can be read: they are named, and a copy of the database is needed."""


def damage(path: Path, statements: Sequence[str]) -> None:
    """Run statements on a journal's file, which nobody has open."""
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
