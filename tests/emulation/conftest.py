"""Emulation tier: whole runs on real packets; skipped, with the reason, where the machine cannot run them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.errors import PlatformError
from beamer.scenario import Scenario, load
from topologies.emulation.platform import require
from topologies.emulation.supervisor import EmulatedRun, emulated_run

HERE = Path(__file__).parent
SMALL = HERE / "small.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        require()
    except PlatformError as error:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture
def small() -> Scenario:
    return load(SMALL)


@pytest.fixture
def run() -> Iterator[EmulatedRun]:
    """A run of the small scenario under `beamer` that is up, its studies not yet begun."""
    logs = os.environ.get("BEAMER_TEST_LOGS")
    with emulated_run(SMALL, "beamer", keep_logs=Path(logs) if logs else None) as up:
        yield up
