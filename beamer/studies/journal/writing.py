"""One writer per journal: whoever else opens it for writing is refused, for as long as the first one lives.

SQLite: a lock on the database file itself, whatever name it is opened by, which the kernel releases with the process.
PostgreSQL: an advisory lock of the session that also writes, so that a writer whose session was lost cannot write without
having the lock again.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from beamer.errors import PlatformError, TakenError
from beamer.studies.journal.sessions import SESSION_S

ADVISORY_LOCK = 0x6265616D6572  # The number spells "beamer"; advisory locks are a database's own.
LOCKED_S = 1.0  # A statement waits so long for another session's lock: the server then says so, which tells that it is there.
# No time-out of the server ends such a session, as these run between statements alone: it waits for the rest of what its client
# has begun to send. The client may be stopped or cut off between the messages of a statement.
_END_SILENT = sa.text("""
    SELECT pg_terminate_backend(held.pid) FROM pg_locks AS held JOIN pg_stat_activity AS session ON session.pid = held.pid
    WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (held.classid::bigint << 32) + held.objid::bigint = :key
      AND session.wait_event = 'ClientRead' AND clock_timestamp() - session.state_change > make_interval(secs => :silence_s)
""")
_LOCKS = Path("/proc/locks")
_REMEDY = "stop that one first, or give another journal"


def lock_file(database: Path) -> int:
    """Return a descriptor that holds the lock of a SQLite file. Raises `TakenError` where another process does.

    It is flock(2)'s, which SQLite's own locks, fcntl(2)'s, do not meet. Those end when a process closes any descriptor of the
    file: so this one is closed last, and never where another part of this process may have the file open.
    """
    try:
        descriptor = os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise PlatformError(
            f"the journal {database} cannot be opened ({error.strerror})", "give a file that this process may write"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(os.fstat(descriptor))
        shown = f" (process {holder})" if holder else ""
        raise TakenError(f"the journal {database} is written by another process{shown}", _REMEDY) from error
    return descriptor


def lock_session(connection: sa.Connection, url: str) -> None:
    """Take PostgreSQL's advisory lock for a session. Raises `TakenError` where another session holds it.

    The server ends the session, and with it the lock, when nothing is heard of it for `SESSION_S`: its process may be stopped,
    or its machine gone, without a word. Where that is in the middle of what it sends, this has the server end it, for the next
    attempt.
    """
    query = sa.text("SELECT pg_try_advisory_lock(:key)")
    held = connection.execute(query, {"key": ADVISORY_LOCK}).scalar_one()
    if held:
        for setting in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET {setting} = '{SESSION_S:g}s'")
        connection.exec_driver_sql(f"SET lock_timeout = '{LOCKED_S:g}s'")
    else:
        connection.execute(_END_SILENT, {"key": ADVISORY_LOCK, "silence_s": SESSION_S})
    connection.commit()
    if not held:
        raise TakenError(f"the journal {url} is written by another process", _REMEDY)


def unlock_session(connection: sa.Connection) -> None:
    """Free PostgreSQL's advisory lock before its session ends, which the server notices a moment later.

    Where the server does not answer, it frees the lock with the session.
    """
    with suppress(sa.exc.SQLAlchemyError):
        connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
        connection.commit()


def _holder(file: os.stat_result) -> str | None:
    """Return the process that holds the lock of a file, as far as the kernel tells (proc(5), locks)."""
    named = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with suppress(OSError, IndexError):
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5] == named:
                return fields[4]
    return None
