"""Where a journal is: a database's URL, checked, and shown without the secrets that it may hold."""

import re
from pathlib import Path
from urllib.parse import unquote

import sqlalchemy as sa

from beamer.errors import InputError

Location = str | sa.URL
"""Where a database is: a URL as SQLAlchemy writes it, or one in parts, which holds whatever characters a path has."""

DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
"""The package that reaches each kind of database."""

EXPECTED_URL = "a database URL such as 'sqlite:////var/lib/beamer/journal.db' or 'postgresql+psycopg://user@host/database'"
_HIDDEN = "***"
_AFTER_USER = re.compile(r"(?<=://)([^:/?#\[]*):(?![0-9]*(?:[/?#]|$))(.*@|[^/?#]*)", re.DOTALL)
_SECRET_OPTION = re.compile(r"([?&](?!passfile=)[^=&]*(?:pass|pwd|secret|token)[^=&]*=)([^&]*)", re.IGNORECASE)


def sqlite_url(path: Path) -> Location:
    """Return the URL of a SQLite file."""
    return sa.URL.create("sqlite", database=str(path))


def shown(url: Location) -> str:
    """Return a location as it may be printed: without passwords, whether or not it can be parsed."""
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    if "://" not in text and re.search("[@=]", text):
        return _HIDDEN  # The text has libpq's own form, or is a misspelt URL.
    hidden = _AFTER_USER.sub(lambda found: f"{found[1]}:{_HIDDEN}{'@' if found[2].endswith('@') else ''}", text)
    return _SECRET_OPTION.sub(lambda found: found[1] + _HIDDEN, hidden)


def without_secrets(text: str, url: Location) -> str:
    """Return what a driver says of a URL without any part of its passwords."""
    given = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    found = [match[2] for pattern in (_AFTER_USER, _SECRET_OPTION) for match in pattern.finditer(given)]
    for secret in sorted({part for whole in found for part in whole.split("@") if part}, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN).replace(unquote(secret), _HIDDEN)
    return text


def parse_location(url: Location) -> sa.URL:
    """Return a URL in parts. Raises `InputError` for what is none, or names a database that holds no journal."""
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:  # A port that is no number raises a ValueError.
        raise InputError("journal", shown(url), EXPECTED_URL) from error
    backend, _, driver = parsed.drivername.partition("+")
    if backend not in DRIVERS or driver not in ("", DRIVERS[backend]):
        raise InputError("journal", shown(url), EXPECTED_URL)
    return parsed.set(drivername=f"{backend}+{DRIVERS[backend]}")


def sqlite_file(url: Location) -> Path | None:
    """Return the file of a SQLite database, None for other databases. Raises `InputError` for one that is not in a file."""
    parsed = parse_location(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise InputError("journal", shown(url), "a file's path, as in 'sqlite:////var/lib/beamer/journal.db': it is to last")
    return Path(parsed.database)


def check_no_secret(url: str, field: str) -> None:
    """Raise `InputError` for a password in a URL that was given on a command line, where every user of the machine sees it."""
    if shown(url) != url:
        expected = "a URL without a password, which every process of this machine could read: put it into ~/.pgpass"
        raise InputError(field, shown(url), f"{expected}, or a file that PGPASSFILE or ?passfile= names")
