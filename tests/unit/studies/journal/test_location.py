"""URLs of journals: what is refused, and that no password is shown, wherever it stands and however wrong the rest is."""

import subprocess
import sys
from pathlib import Path

import pytest

from beamer.errors import BeamerError, InputError
from beamer.studies.journal.location import check_no_secret, parse_location, shown, sqlite_file, sqlite_url
from beamer.studies.journal.store import Journal

SECRET = "s3cr3tpw"
WITH_SECRET = [
    f"postgresql+psycopg://u:{SECRET}@127.0.0.1:9/db",
    f"postgresql+psycopg://127.0.0.1:9/db?user=u&password={SECRET}",
    f"postgresql+psycopg://127.0.0.1:9/db?sslpassword={SECRET}&user=u",
    f"postgresql+asyncpgx://u:{SECRET}@h/db",
    f"postgresql+psycopg2://u:{SECRET}@h/db",
    f"postgres://u:{SECRET}@h/db",
    f"orakel://u:{SECRET}@h/db",
    f"postgresql+psycopg://u:{SECRET}@h:port/db",
    f"postgresql+psycopg://u:{SECRET}@h:99999999/db",
    f"postgresql+psycopg://u:x@{SECRET}@127.0.0.1:9/db",
    f"postgresql+psycopg://u:x/{SECRET}@127.0.0.1:9/db",
    f"postgresql+psycopg://u:{SECRET}",
    f"postgresql+psycopg://:{SECRET}@127.0.0.1:9/db",
    f"postgresql+psycopg:/u:{SECRET}@h/db",
    f"u:{SECRET}@h/db",
    f"host=h password={SECRET}",
    f"sqlite:///:memory:?password={SECRET}",
]
WITHOUT = [
    "sqlite:////var/lib/beamer/journal.db",
    "sqlite:////var/lib/a@b:c.db",
    "postgresql+psycopg://u@h:5432/db",
    "postgresql+psycopg://u@[::1]:5432/db",
    "postgresql+psycopg://[::1]:5432/db",
    "postgresql+psycopg:///db?host=/run/postgresql&user=u",
    "postgresql+psycopg://h/db?passfile=/etc/beamer/pgpass",
    "journal.db",
]


@pytest.mark.parametrize("url", WITH_SECRET)
def test_no_error_shows_a_password(url: str) -> None:
    assert SECRET not in shown(url)
    with pytest.raises(BeamerError) as raised:
        Journal(url)
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value.args)
    with pytest.raises(InputError, match=r"--journal: got .*pgpass") as refused:
        check_no_secret(url, "--journal")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("url", WITHOUT)
def test_what_is_no_secret_is_shown(url: str) -> None:
    assert shown(url) == url
    check_no_secret(url, "--journal")


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://h:port/db", "postgres://h/db", "mysql://h/db", "sqlite+aiosqlite:///x.db"]
)
def test_a_url_that_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"journal: got .*expected a database URL such as"):
        parse_location(url)


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "a:b@c?d=e.db"
    assert sqlite_file(sqlite_url(path)) == path


@pytest.mark.parametrize(
    "command",
    [
        ["controller.cli", "--fabric", "f.json", "--journal"],
        ["beamer.cli", "journal", "check"],
        ["beamer.cli", "journal", "repair"],
    ],
    ids=["beamer-controller", "check", "repair"],
)
def test_a_password_on_a_command_line_is_refused_and_not_repeated(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "f.json").write_text("{}")
    url = f"postgresql+psycopg://u:{SECRET}@127.0.0.1:9/db"
    done = subprocess.run(
        [sys.executable, "-m", *command, url], check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "pgpass" in done.stderr
    assert SECRET not in done.stdout + done.stderr
