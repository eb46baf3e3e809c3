"""Emulation tier: whole runs on real packets."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamer.client.credentials import TOKEN_VARIABLE
from beamer.network.policies import network_policy
from beamer.testing.fabrics import star
from beamer.workloads.scenario import Scenario, load
from controller.warm_up import warm_up
from tests.emulation.leftovers import leftovers
from topologies.emulation.exchange import RunConfig
from topologies.emulation.supervisor import EmulatedRun, emulated_run

HERE = Path(__file__).parent
SMALL = HERE / "small.yaml"
LASTING = HERE / "lasting.yaml"


@pytest.fixture(autouse=True, scope="session")
def _compiled() -> None:
    """Compile what a controller decides by, as `beamer emulate` does: until it has done so itself, jobs send without a plan."""
    warm_up(star(3), network_policy("beamer"), 8, None)


@pytest.fixture(autouse=True)
def _with_a_sites_own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated controller asks for no token, and is to see none."""
    monkeypatch.setenv(TOKEN_VARIABLE, "a-sites-own")


@pytest.fixture
def small() -> Scenario:
    return load(SMALL)


@pytest.fixture
def lasting() -> Scenario:
    return load(LASTING)


@pytest.fixture
def run() -> Iterator[EmulatedRun]:
    """A run of the small scenario under `beamer` that is up, its studies not yet begun."""
    with running(SMALL) as up:
        yield up


@pytest.fixture
def lasting_run() -> Iterator[EmulatedRun]:
    """A run of the lasting scenario under `beamer` that is up, its studies not yet begun."""
    with running(LASTING) as up:
        yield up


@contextmanager
def running(scenario: Path) -> Iterator[EmulatedRun]:
    """Bring up `scenario` under `beamer`, its studies not yet begun; assert in the end that nothing of it is left."""
    logs = os.environ.get("BEAMER_TEST_LOGS")
    with emulated_run(RunConfig(scenario, "beamer"), keep_logs=Path(logs) if logs else None) as up:
        before = leftovers(up.run.id)
        yield up
    assert not leftovers(up.run.id, before.namespaces), "a run that came to its end left something behind"
