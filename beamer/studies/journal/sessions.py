"""Sessions with a journal's database that do not outlast the database: a server of which nothing is heard is given up in time.

A server that is gone without a word, behind a firewall that drops packets or a proxy that hangs, ends no connection, and a
client would wait for its answer for ever. The kernel is asked to notice what it can (keepalives, TCP_USER_TIMEOUT); silence on
a connection whose packets are acknowledged, as by a proxy, is noticed here.
"""

import time
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa

from beamer.errors import PlatformError
from beamer.lazy_commands import install_command
from beamer.studies.journal.location import DRIVERS, Location, parse_location

SESSION_S = 2.5  # The server ends a session after so much silence, as another controller is to lead within 5 s.
# A server is given up after so much silence: longer, as a disk may be slow, while another controller may lead already.
SILENT_S = 4.0
# A server may be silent for so long while it works at what may take long, such as bringing an older journal up to date.
WORK_S = 30.0
_EXTRAS = {"psycopg": "postgresql"}  # extras of Beamer, by the package of a database
_LIBPQ = {
    "connect_timeout": round(SESSION_S),
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": round(SILENT_S) - 1,
    "tcp_user_timeout": round(1000 * SILENT_S),
}

T = TypeVar("T")


def engine_of(url: Location) -> sa.Engine:
    """Return what makes sessions with a database; none is made yet.

    Raises `InputError` for a URL that names none, `PlatformError` where the package is missing that reaches it.
    """
    parsed = parse_location(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    try:
        engine = sa.create_engine(parsed, connect_args={} if is_sqlite else _defaults(parsed))
    except ModuleNotFoundError as error:
        remedy = f"install it: {install_command(_EXTRAS.get(str(error.name), 'controller'))}"
        raise PlatformError(f"Python package {error.name!r} is not installed", remedy) from error
    if is_sqlite:
        sa.event.listen(engine, "connect", _set_up_sqlite)
    else:
        assert parsed.drivername.endswith(DRIVERS["postgresql"])
        sa.event.listen(engine, "do_connect", _connect_bounded)
    return engine


def be_heard_within(connection: sa.Connection, silence_s: float) -> None:
    """Give a session with PostgreSQL up when its server is silent for so long while something is asked of it."""
    if connection.dialect.name != "sqlite":
        driven: Any = connection.connection.driver_connection
        driven.silence_s = silence_s


def heard_within(wanted: Generator[int, int, T], silence_s: Callable[[], float], give_up: Callable[[], Exception]) -> Any:
    """Do what one of psycopg's generators does, which yields what to wait for, unless nothing comes of it for too long.

    give_up: returns what is raised then.
    """
    try:
        wait_for = next(wanted)
        heard_s = time.monotonic()
        while True:
            ready = yield wait_for
            now = time.monotonic()
            if ready:
                heard_s = now
            elif now - heard_s > silence_s():
                raise give_up()
            wait_for = wanted.send(ready)
    except StopIteration as stop:
        return stop.value


def _defaults(parsed: sa.URL) -> dict[str, Any]:
    """Return libpq's options but for those that a URL has."""
    return {name: value for name, value in _LIBPQ.items() if name not in parsed.query}


def _connect_bounded(_dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
    return _bounded_connection().connect(*arguments, **options)


@cache
def _bounded_connection() -> Any:
    """Return psycopg's connection, bounded; made here, as psycopg is in an extra."""
    import psycopg

    class BoundedConnection(psycopg.Connection[Any]):
        """silence_s: after which it is given up."""

        silence_s = SILENT_S

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            return super().wait(heard_within(gen, lambda: self.silence_s, self._give_up), *args, **options)

        def _give_up(self) -> Exception:
            self.pgconn.finish()
            return psycopg.OperationalError(f"the server was silent for {self.silence_s:g} s")

    return BoundedConnection


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
