"""Real processes: jobs on the local engine, databases, controllers; whatever a test starts is gone when it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.engines.local.supervisor.groups import KINDS
from tests.processes.site import Site, of_directory, until, works
from tests.support.nvidia.standin import no_gpu_driver
from tests.support.postgresql import PostgreSQL, binaries, postgresql

__all__ = ("no_gpu_driver",)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for engine in made.engines:
        engine.close()
    engine = made.engine()
    for job in list(engine.report()):
        engine.stop(job)
    engine.close()
    until(lambda: not of_directory(tmp_path), "all processes to be gone")


@pytest.fixture(params=[kind for kind in KINDS if kind != "auto"])
def group(request: pytest.FixtureRequest, site: Site) -> str:
    """Return every kind of process group in turn, which the site's engines then use."""
    kind: str = request.param
    if not works(kind):
        pytest.skip(f"no process group of kind {kind} can be made here: needs root and its hierarchy")
    site.group = kind
    return kind


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    """Return a PostgreSQL server."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with postgresql(programs) as running:
        yield running


@pytest.fixture
def url(server: PostgreSQL) -> str:
    """Return the URL of a new database."""
    return server.database()
