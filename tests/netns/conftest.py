"""Namespace tier: real kernels and switches; skipped, with the reason, where the machine cannot have them."""

from pathlib import Path

import pytest

from beamer.errors import PlatformError
from topologies.emulation.platform import require

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        require()
    except PlatformError as error:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=str(error)))
