"""A PostgreSQL server of a test's or an experiment's own, from Debian's packages, reachable over a Unix socket alone."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from beamer.errors import PlatformError

USER = "postgres"  # Debian's package makes this user; the server refuses to run as root.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class DatabaseSocket:
    """Where a database of a server is reached."""

    directory: Path
    database: str

    @property
    def path(self) -> Path:
        """The server's Unix socket."""
        return self.directory / ".s.PGSQL.5432"

    def through(self, host: str, port: int) -> str:
        """Return the URL of the database through something that listens elsewhere."""
        return f"postgresql+psycopg://{USER}@{host}:{port}/{self.database}"


def socket_of(url: str) -> DatabaseSocket:
    """Return where a database is that `PostgreSQL.database` has made."""
    parts = urlsplit(url)
    return DatabaseSocket(Path(parse_qs(parts.query)["host"][0]), parts.path.lstrip("/"))


class PostgreSQL:
    """A running server. url: of a database as SQLAlchemy writes it."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self._binaries = binaries
        self._directory = directory
        self._databases = 0

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs as its user and return what it prints."""
        command = [str(self._binaries / program), *arguments]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self._directory, **_as_user()
        )
        if done.returncode != 0:
            raise PlatformError(f"{program} failed: {done.stderr.strip()}", "see PostgreSQL's documentation")
        return done.stdout

    def database(self) -> str:
        """Return the URL of a new database."""
        self._databases += 1
        name = f"journal{self._databases}"
        self.query(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg:///{name}?host={self._directory}&user={USER}"

    def query(self, text: str, database: str = "postgres") -> str:
        """Return what a statement returns, as text."""
        return self.run("psql", "-h", str(self._directory), "-U", USER, "-d", database, "-tAc", text)


def missing() -> str | None:
    """Return why no journal can be kept in PostgreSQL here, None if one can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed"
    return "PostgreSQL is not installed" if binaries() is None else None


def binaries() -> Path | None:
    """Return where the newest server's programs are, None where none is installed or none may run."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if not found or (os.geteuid() == 0 and shutil.which("psql") is None):
        return None
    return found[-1].parent


@contextmanager
def postgresql(programs: Path) -> Iterator[PostgreSQL]:
    """Run a server until the context ends."""
    directory = Path(tempfile.mkdtemp(prefix="beamer-postgresql-"))
    if os.geteuid() == 0:
        shutil.chown(directory, USER, USER)
    server = PostgreSQL(programs, directory)
    try:
        server.run("initdb", "-D", "data", "-U", USER, "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        command = [str(programs / "postgres"), "-D", "data", "-k", str(directory), "-c", "listen_addresses="]
        log = (directory / "log").open("w")
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, **_as_user())
        try:
            _await_start(programs, directory, running)
            yield server
        finally:
            running.send_signal(signal.SIGINT)  # a fast shutdown: sessions are ended
            running.wait(PATIENCE_S)
            log.close()
    finally:
        shutil.rmtree(directory)


def _await_start(programs: Path, directory: Path, running: "subprocess.Popen[bytes]") -> None:
    """Wait until the server accepts sessions."""
    deadline = time.monotonic() + PATIENCE_S
    asking = [str(programs / "pg_isready"), "-h", str(directory)]
    while subprocess.run(asking, check=False, capture_output=True).returncode != 0:
        if running.poll() is not None or time.monotonic() > deadline:
            raise PlatformError(f"PostgreSQL did not start: {(directory / 'log').read_text()}", "see its log")
        time.sleep(0.05)


def _as_user() -> dict[str, Any]:
    return {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
