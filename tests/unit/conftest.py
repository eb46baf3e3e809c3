"""A port for a test's own server, which no other program is given meanwhile."""

from collections.abc import Iterator

import pytest

from beamer.engines.local.supervisor.ports import kept_port


@pytest.fixture
def free_port() -> Iterator[int]:
    with kept_port() as port:
        yield port
