"""Every engine that another package registers passes the suite of engines, and so does that of examples/, installed for this.

The local engine has a harness of its own, which can do more: tests/processes/test_local_conformance.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer import entry_points
from beamer.gpu.engine import Placement
from beamer.schedule.engine_settings import ENGINES
from beamer.testing.engine_harness import RegisteredHarness
from beamer.testing.engines import ENGINE_CHECKS, EngineCheck
from tests.support.example_packages import install
from tests.support.tiers import long

EXAMPLE = "one-process"
OFTEN = {"runs_a_job_to_its_end", "suspends_and_resumes", "resizes", "stops_for_good", "hands_jobs_over", "refuses_placements"}
CHECKS = [check if check.__name__ in OFTEN else long(check)[0] for check in ENGINE_CHECKS]
OTHERS = [*(name for name in ENGINES if name != "local"), EXAMPLE]


@pytest.fixture(scope="module", autouse=True)
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the example where this process finds it."""
    packages = tmp_path_factory.mktemp("packages")
    install("engine", packages)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(packages))
        patch.setattr(ENGINES, "_others", entry_points.find(ENGINES.group))
        yield


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conforms(check: EngineCheck, name: str, tmp_path: Path) -> None:
    harness = RegisteredHarness(name, tmp_path)
    try:
        check(harness)
    finally:
        harness.close()


def test_the_harness_sees_processes_and_their_end(tmp_path: Path) -> None:
    harness = RegisteredHarness(EXAMPLE, tmp_path, niceness=1)
    key = harness.job("job", 10**6)
    assert not harness.has_processes(key)
    harness.engine.start(key, Placement((("one", 0),)))
    harness.wait(lambda: harness.engine.report()[key].reports)
    assert harness.has_processes(key)
    harness.close()
    assert not harness.has_processes(key)
