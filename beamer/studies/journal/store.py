"""The journal: every event that a controller or a scheduler took in, in order, so that a restarted one knows what it knew.

It lives in SQLite unless a URL names another database. An event is durable against the death of the process as soon as
`Journal.append` returns; against the loss of power, SQLite may lose the last moments (WAL with synchronous=NORMAL).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from beamer.errors import InputError, PlatformError
from beamer.studies.events import Event, decode, encode

_METADATA = sa.MetaData()
_EVENTS = sa.Table(
    "events",
    _METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
)
_EXPECTED = "a database that holds Beamer's journal or nothing"
_EXPECTED_URL = "a database URL such as 'sqlite:////var/lib/beamer/journal.db'"


Location = str | sa.URL
"""Where a database is: a URL as SQLAlchemy writes it, or one in parts, which holds whatever characters a path has."""


def sqlite_url(path: Path) -> Location:
    """Return the URL of a SQLite file."""
    return sa.URL.create("sqlite", database=str(path))


def sqlite_file(url: Location) -> Path | None:
    """Return the file of a SQLite database, None for other databases. Raises `InputError` for one that is not in a file."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise InputError("journal", str(url), _EXPECTED_URL) from error
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise InputError("journal", str(url), "a file's path, as in 'sqlite:////var/lib/beamer/journal.db': it is to last")
    return Path(parsed.database)


class Journal:
    """Keep events in a database, whose schema is created or brought up to date on opening.

    url: as SQLAlchemy writes it, `sqlite:////var/lib/beamer/journal.db` or `postgresql+psycopg://...`.

    Raises `InputError` for a URL that names no database or one that holds something else, `PlatformError` for a database that
    cannot be reached or written; `append` and `replay` raise the latter, too.
    """

    def __init__(self, url: Location) -> None:
        try:
            self._engine = sa.create_engine(url)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as error:
            raise InputError("journal", str(url), _EXPECTED_URL) from error
        except ModuleNotFoundError as error:
            raise PlatformError(f"Python package {error.name!r} is not installed", f"install it to use {url}") from error
        self._url = self._engine.url.render_as_string(hide_password=True)
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    def append(self, *events: Event) -> None:
        """Write events in one transaction: all of them are durable when this returns, or none is kept."""
        rows = [dict(zip(("kind", "content"), encode(event), strict=True)) for event in events]
        if rows:
            with self._reporting(), self._engine.begin() as connection:
                connection.execute(_EVENTS.insert(), rows)

    def replay(self) -> Iterator[Event]:
        """Yield every event in the order of its appending. Raises `InputError` for one of a kind that is unknown."""
        query = sa.select(_EVENTS.c.kind, _EVENTS.c.content).order_by(_EVENTS.c.number)
        with self._reporting(), self._engine.connect() as connection:
            for kind, content in connection.execution_options(yield_per=1000).execute(query):
                yield decode(kind, content)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", "beamer.studies.journal:migrations")
        with self._reporting(), self._engine.begin() as connection:
            tables = set(sa.inspect(connection).get_table_names())
            if tables and "alembic_version" not in tables:
                raise InputError("journal", self._url, f"{_EXPECTED}; it has the tables {', '.join(sorted(tables))}")
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise InputError("journal", self._url, f"{_EXPECTED}, not written by a newer Beamer ({error})") from error

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            reason = str(error.orig)
            if "not a database" in reason:
                raise InputError("journal", self._url, f"{_EXPECTED} ({reason})") from error
            raise PlatformError(
                f"the journal {self._url} cannot be read and written ({reason.strip()})",
                "give a database that this process may create and write",
            ) from error


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
