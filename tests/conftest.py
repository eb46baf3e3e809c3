"""Tests on real kernels and switches are skipped, with the reason, where the machine cannot have them."""

import pytest

from beamer.errors import PlatformError
from topologies.emulation.platform import require

PRIVILEGED = {"netns", "emulation"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        require()
    except PlatformError as error:
        for item in items:
            if PRIVILEGED & {marker.name for marker in item.iter_markers()}:
                item.add_marker(pytest.mark.skip(reason=str(error)))
