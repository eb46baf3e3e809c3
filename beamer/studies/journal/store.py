"""The journal: every event that a controller or a scheduler took in, in order, so that a restarted one knows what it knew.

It lives in SQLite unless a URL names another database. An event is durable against the death of the process as soon as
`Journal.append` returns; against the loss of power, SQLite may lose the last moments (WAL with synchronous=NORMAL). What was
written is chained by checksums, and read back only as it was written. A snapshot of what events led to may take their place.
What a newer Beamer wrote is refused, which is not damage: see `beamer.studies.versions`.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import sqlalchemy as sa

from beamer.errors import InputError, NewerError, PlatformError, SilentError, TakenError
from beamer.studies.events import EncodedEvent, Event, decode, encode
from beamer.studies.journal.chain import BEGINNING, ChainLink, Head, checksum
from beamer.studies.journal.location import Location, shown, sqlite_file, without_secrets
from beamer.studies.journal.sessions import SILENT_S, WORK_S, be_heard_within, engine_of
from beamer.studies.journal.writing import lock_file, lock_session, unlock_session
from beamer.studies.versions import UPGRADE

# The migrations declare types, keys and defaults of these tables. The head's has one row, see `Head`.
_EVENTS = sa.table("events", *map(sa.column, ("number", "kind", "content", "checksum")))
_HEAD = sa.table("head", *map(sa.column, ("id", "number", "checksum", "term", "seal")))
_SNAPSHOTS = sa.table("snapshots", *map(sa.column, ("number", "checksum", "content", "content_checksum")))
MIGRATIONS = "beamer.studies.journal:migrations"  # They are found here, as Alembic writes it.
_SCHEMAS = ("0003",)  # The schemas have the names of their migrations, the present one last.
_READ_AT_ONCE = 1000
_DELETED_AT_ONCE = 10_000  # A transaction deletes at most so many events: writing waits for no more.
_EXPECTED = "a database that holds Beamer's journal or nothing"
_REMEDY = "'beamer journal check' shows what is damaged, 'beamer journal repair' keeps what comes before it"
# The last sign means that the version is gone.
_SIGNS_OF_DAMAGE = ("malformed", "no such table", "no such column", "already exists")

MAX_TERM = 1 << 62  # Beyond it, the 64-bit numbers in which switches compare terms begin to wrap around.


@dataclass(frozen=True)
class JournalSnapshot:
    """What the events up to one led to, as JSON. link: that event's."""

    link: ChainLink
    content: str


class Journal:
    """Keep events in a database, whose schema is created or brought up to date on opening.

    url: as SQLAlchemy writes it, `sqlite:////var/lib/beamer/journal.db` or `postgresql+psycopg://...`. writes: whether to
    write, too, as one process at a time may; otherwise the schema has to be there. damaged: whether to open one for repair
    whose end is not as it was written. May be used by one thread after another.

    read_characters: of the contents of all events that were read.

    Raises `InputError` for a URL that names no database, for one that holds something else, and for a journal that is not as it
    was written, `NewerError` for one that a newer Beamer wrote, `PlatformError` for a database that cannot be written,
    `SilentError` for one that cannot be reached, and `TakenError` for one that another process writes; every method but `close`
    raises these, too.
    """

    def __init__(self, url: Location, writes: bool = True, damaged: bool = False) -> None:
        file = sqlite_file(url)
        self._engine = engine_of(url)
        self.location = url
        self.url = shown(url)
        self._lock: int | None = None
        self._connection: sa.Connection | None = None
        self._head = Head()
        self.read_characters = 0
        try:
            if writes:
                # SQLite itself gives this name to the files beside the database.
                self._lock = lock_file(file.resolve()) if file is not None else None
                self._migrate()
                self._begin(damaged)
            else:
                self._check_version()
        except BaseException:
            self.close()
            raise

    @property
    def is_shared(self) -> bool:
        """Whether another process may get the right to write while this one lives."""
        return self._engine.dialect.name != "sqlite"

    @property
    def head(self) -> ChainLink:
        """The link of the last event that was written."""
        return self._head.link

    @property
    def term(self) -> int:
        """Which writer of the journal this is, from 1, or more where a later one was heard of; 0 for one that only reads."""
        return self._head.term

    def raise_term(self, least: int) -> None:
        """Make the term of this writer, and so of all later ones, at least `least`, if that is not above `MAX_TERM`."""
        if least > MAX_TERM:
            raise InputError("term", least, f"at most {MAX_TERM}")
        if least > self.term:
            self._write_head(Head(self.head, least))

    def append(self, *events: Event) -> None:
        """Write events in one transaction: all of them are durable when this returns, or none is kept."""
        self.append_encoded([encode(event) for event in events])

    def append_encoded(self, events: Sequence[EncodedEvent]) -> None:
        """Write events as `append` does, as `encode` returned them."""
        link, rows = self.head, []
        for kind, content in events:
            link = link.next(kind, content)
            rows.append({"number": link.number, "kind": kind, "content": content, "checksum": link.checksum})
        if rows:
            head = Head(link, self.term)
            with self._reporting(), self._writing() as connection:
                connection.execute(_EVENTS.insert(), rows)
                connection.execute(_HEAD.update().values(**_row(head)))
            self._head = head

    def snapshot(self) -> JournalSnapshot | None:
        """Return the latest snapshot, None where there is none."""
        query = sa.select(_SNAPSHOTS).order_by(_SNAPSHOTS.c.number.desc()).limit(1)
        with self._reporting(), self._engine.connect() as connection:
            found = connection.execute(query).one_or_none()
        if found is None:
            return None
        if checksum(found.content) != found.content_checksum:
            raise self.damage(f"the snapshot at event {found.number} is not as it was written")
        return JournalSnapshot(ChainLink(found.number, found.checksum), found.content)

    def replay(self) -> Iterator[Event]:
        """Yield every event after the latest snapshot, or from the first one, in the order of appending."""
        return (event for _, event in self.entries())

    def entries(self, after: ChainLink | None = None, to_head: bool = True) -> Iterator[tuple[ChainLink, Event]]:
        """Yield the events that `replay` yields, or those after a link, with their links.

        to_head: whether they have to end where the journal says that it does; otherwise it is only looked at one by one.
        """
        if after is None:
            last = self.snapshot()
            after = last.link if last else BEGINNING
        link = after
        query = sa.select(_EVENTS).where(_EVENTS.c.number > link.number).order_by(_EVENTS.c.number)
        with self._reporting(), self._reading() as connection:
            head = self._head_of(connection).link if to_head else None
            with closing(connection.execution_options(yield_per=_READ_AT_ONCE).execute(query)) as rows:
                for row in rows:
                    if head is not None and row.number > head.number:
                        raise self.damage(f"after the last one, {head.number}, there is an event {row.number}")
                    link = link.next(row.kind, row.content)
                    if row.number != link.number:
                        raise self.damage(f"event {link.number} is missing")
                    if row.checksum != link.checksum:
                        raise self.damage(f"event {row.number} is not as it was written")
                    try:
                        event = decode(row.kind, row.content)
                    except NewerError as error:
                        raise self.newer(f"event {link.number} is", error) from error
                    except InputError as error:
                        raise self.damage(f"event {link.number} cannot be read ({error})") from error
                    self.read_characters += len(row.content)
                    yield link, event
            if head is not None and link != head:
                raise self.damage(f"the events after {link.number} are missing, of {head.number}")

    def compact(self, snapshot: JournalSnapshot) -> None:
        """Let a snapshot take the place of the events that it was made from, and of the snapshots before it."""
        for _ in self.compacting(snapshot):
            pass

    def compacting(self, snapshot: JournalSnapshot) -> Iterator[None]:
        """Compact in steps, each of them a transaction, between which events may be written."""
        link, content = snapshot.link, snapshot.content
        row = {"number": link.number, "checksum": link.checksum, "content": content, "content_checksum": checksum(content)}
        with self._reporting(), self._writing(WORK_S) as connection:
            connection.execute(_SNAPSHOTS.insert(), [row])
            connection.execute(_SNAPSHOTS.delete().where(_SNAPSHOTS.c.number < link.number))
        least = sa.select(sa.func.min(_EVENTS.c.number)).scalar_subquery()
        old = _EVENTS.delete().where(_EVENTS.c.number <= link.number, _EVENTS.c.number < least + _DELETED_AT_ONCE)
        deleted = 1
        while deleted:
            yield
            with self._reporting(), self._writing(WORK_S) as connection:
                deleted = connection.execute(old).rowcount

    def rows_after(self, link: ChainLink) -> Iterator[tuple[int, str, str]]:
        """Yield number, kind and content of every row after an event, whether or not it is as it was written."""
        query = sa.select(_EVENTS).where(_EVENTS.c.number > link.number).order_by(_EVENTS.c.number)
        with self._reporting(), self._engine.connect() as connection:
            rows = connection.execution_options(yield_per=_READ_AT_ONCE).execute(query)
            with closing(rows):
                for row in rows:
                    yield row.number, row.kind, row.content

    def cut(self, link: ChainLink, least_term: int) -> None:
        """Remove every row after an event, which becomes the last.

        least_term: of the writers from now on where it is not known which ones there have been, more than any of these had.
        """
        head = Head(link, self.term or min(max(self._stored_term(), least_term), MAX_TERM))
        with self._reporting(), self._writing(WORK_S) as connection:
            connection.execute(_EVENTS.delete().where(_EVENTS.c.number > link.number))
            connection.execute(_HEAD.delete())
            connection.execute(_HEAD.insert(), [{"id": 1, **_row(head)}])
        self._head = head

    def keep(self) -> None:
        """Keep the right to write. Raises `TakenError` if another process has it by now."""
        with self._reporting(), self._writing() as connection:
            connection.exec_driver_sql("SELECT 1")

    def close(self) -> None:
        """Let go of the database."""
        if self._connection is not None:
            if self.is_shared and not self._connection.invalidated:
                unlock_session(self._connection)
            self._connection.close()
            self._connection = None
        self._engine.dispose()
        if self._lock is not None:
            with suppress(OSError):
                os.close(self._lock)
            self._lock = None

    def damage(self, what: str) -> InputError:
        """Return the error of a journal that is not as it was written."""
        return InputError("journal", self.url, f"a journal that is as it was written: {what}; {_REMEDY}")

    def newer(self, what: str, error: NewerError) -> NewerError:
        """Return the error of a journal that a newer Beamer wrote. what: of it holds the value of `error`, "event 7 is"."""
        return NewerError("journal", self.url, f"a journal that this Beamer reads: {what} {error.value}, not {error.expected}")

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """Begin a transaction that sees the journal as it is now, whatever is written meanwhile."""
        with self._engine.connect() as connection:
            if self._engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")  # SQLite's driver would leave the statement out before a query.
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def _writing(self, silence_s: float = SILENT_S) -> Iterator[sa.Connection]:
        """Begin a transaction in the session that has the right to write. silence_s: as of `be_heard_within`."""
        if self._connection is None or self._connection.invalidated:
            self._connection = self._session()
        be_heard_within(self._connection, silence_s)
        with self._connection.begin():
            yield self._connection

    def _session(self) -> sa.Connection:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        connection = self._engine.connect()
        try:
            if self.is_shared:
                lock_session(connection, self.url)
                # Another process may have had the lock, and written, between two sessions of this one.
                if self.term and self._head_of(connection) != self._head:
                    raise TakenError(f"the journal {self.url} was written by another process", "start this one again")
                connection.rollback()
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin(self, damaged: bool) -> None:
        """Count this writer, whose events come after the last one. Raises `InputError` if that is another one.

        damaged: whether it may be, or the head may be lost; then there is no term before `cut`.
        """
        with self._reporting(), self._engine.connect() as connection:
            try:
                head = self._head_of(connection)
            except InputError:
                if not damaged:
                    raise
                return
            last = connection.execute(sa.select(_EVENTS).order_by(_EVENTS.c.number.desc()).limit(1)).one_or_none()
        snapshot = self.snapshot()
        known = ChainLink(last.number, last.checksum) if last else snapshot.link if snapshot else BEGINNING
        if known.number != head.link.number and not damaged:
            raise self.damage(f"its last event is {known.number}, {head.link.number} were written")
        self._write_head(Head(head.link, head.term + 1))

    def _write_head(self, head: Head) -> None:
        with self._reporting(), self._writing() as connection:
            connection.execute(_HEAD.update().values(**_row(head)))
        self._head = head

    def _stored_term(self) -> int:
        """Return the term that is in the journal, whether or not it is as it was written."""
        with self._reporting(), self._engine.connect() as connection:
            return connection.execute(sa.select(_HEAD.c.term)).scalars().first() or 0

    def _head_of(self, connection: sa.Connection) -> Head:
        found = connection.execute(sa.select(_HEAD)).one_or_none()
        if found is None:
            raise self.damage("how many events were written is not known")
        head = Head(ChainLink(found.number, found.checksum), found.term)
        if found.seal != head.seal or head.term < 0:
            raise self.damage("where it ends, and its writer's term, are not as they were written")
        return head

    def _check_version(self) -> None:
        with self._reporting(), self._engine.connect() as connection:
            tables = set(sa.inspect(connection).get_table_names())
            is_present = "alembic_version" in tables and self._has_present_schema(connection)
        if not is_present:
            expected = "a journal of this version of Beamer, which its controller or scheduler makes of an older one"
            raise InputError("journal", self.url, expected)

    def _migrate(self) -> None:
        with self._reporting(), self._writing(WORK_S) as connection:
            tables = set(sa.inspect(connection).get_table_names())
            if tables and "alembic_version" not in tables:
                raise InputError("journal", self.url, f"{_EXPECTED}; it has the tables {', '.join(sorted(tables))}")
            if tables and self._has_present_schema(connection):
                return
            from alembic import command  # The import takes as long as that of all of SQLAlchemy.
            from alembic.config import Config

            config = Config()
            config.set_main_option("script_location", MIGRATIONS)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _has_present_schema(self, connection: sa.Connection) -> bool:
        """Say whether the database has this version's schema, not an older one. Raises `NewerError` for an unknown one."""
        found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
        present = _SCHEMAS[-1]
        if found is not None and found < _SCHEMAS[0]:
            raise InputError("journal", self.url, f"a journal of a released Beamer: its schema is {found}, not {present}")
        if found is not None and found not in _SCHEMAS:
            expected = f"a journal that this Beamer reads: its schema is {found}, not {present} or an older one; {UPGRADE}"
            raise NewerError("journal", self.url, expected)
        return bool(found == present)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            reason = without_secrets(str(error.orig).strip(), self.location)
            if "not a database" in reason:
                raise InputError("journal", self.url, f"{_EXPECTED} ({reason})") from error
            if any(sign in reason for sign in _SIGNS_OF_DAMAGE):
                raise self.damage(reason) from error
            failure = SilentError if self.is_shared and self._is_lost(error) else PlatformError
            raise failure(
                f"the journal {self.url} cannot be read and written ({reason})",
                "give a database that this process may create and write",
            ) from error

    def _is_lost(self, error: sa.exc.DBAPIError) -> bool:
        """Say whether an error tells of a session that has ended, or could not begin, and not of what was asked in it."""
        return error.connection_invalidated or self._connection is None or self._connection.invalidated


def _row(head: Head) -> dict[str, int]:
    return {"number": head.link.number, "checksum": head.link.checksum, "term": head.term, "seal": head.seal}
