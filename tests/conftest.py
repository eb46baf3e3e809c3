"""What all tests share: a port for a server of their own; and the reason to skip what this machine cannot run."""

from collections.abc import Iterator

import pytest

from beamer.engines.local.supervisor.ports import kept_port
from beamer.errors import PlatformError
from topologies.emulation.platform import require

PRIVILEGED = {"netns", "emulation"}


@pytest.fixture
def own_port() -> Iterator[int]:
    """A port that no other program is given while the test runs."""
    with kept_port() as port:
        yield port


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        require()
    except PlatformError as error:
        for item in items:
            if PRIVILEGED & {marker.name for marker in item.iter_markers()}:
                item.add_marker(pytest.mark.skip(reason=str(error)))
