"""One writer per journal: whoever else opens it for writing is refused, for as long as the first one lives.

SQLite: a lock on a file beside the database, which the kernel releases with the process. PostgreSQL: an advisory lock of the
session that also writes, so that a writer whose session was lost cannot write without having the lock again.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

import sqlalchemy as sa

from beamer.errors import PlatformError, TakenError

ADVISORY_LOCK = 0x6265616D6572  # "beamer"; advisory locks are a database's own
SESSION_S = 3.0  # short enough that another controller leads within 5 s, and several times what a pause may take
_REMEDY = "stop that one first, or give another journal"


class FileLock:
    """The lock of a SQLite file. Raises `PlatformError` where another process holds it."""

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + ".lock")
        try:
            self._file: IO[str] = path.open("a+")
        except OSError as error:
            raise PlatformError(
                f"the journal's lock {path} cannot be opened ({error.strerror})", "give a folder that this process may write"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise TakenError(
                f"the journal {database} is written by another process{f' ({holder})' if holder else ''}", _REMEDY
            ) from error
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()}")
        self._file.flush()

    def release(self) -> None:
        """Let go of the lock; its file stays, as removing it would let two processes lock two files of one name."""
        with suppress(ValueError):
            self._file.close()


def lock_session(connection: sa.Connection, url: str) -> None:
    """Take PostgreSQL's advisory lock for a session. Raises `TakenError` where another session holds it.

    The server ends the session, and with it the lock, when nothing is heard of it for `SESSION_S`: its process may be stopped,
    or its machine gone, without a word.
    """
    query = sa.text("SELECT pg_try_advisory_lock(:key)")
    held = connection.execute(query, {"key": ADVISORY_LOCK}).scalar_one()
    if held:
        for setting in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET {setting} = '{SESSION_S:g}s'")
    connection.commit()
    if not held:
        raise TakenError(f"the journal {url} is written by another process", _REMEDY)
