"""Chained stages on one link, with exact results: the example of the model that tells the horizons apart."""

import pytest

from beamer.network.job import JobSpec
from beamer.sim import Assumptions, simulate
from beamer.studies.model import Worker
from beamer.testing.fabrics import star
from beamer.units import ETHERNET_MTU, segment
from beamer.workloads.scenario import Scenario, StagePlan, StudyPlan

SEGMENT_PAYLOAD, SEGMENT_FRAME = segment(ETHERNET_MTU)

RATE_BPS = 8 * SEGMENT_FRAME * 1000
SECOND = 1000 * SEGMENT_PAYLOAD  # payload bytes that take a link one second


def stage(name: str, seconds: float) -> StagePlan:
    """A stage of one job whose two workers exchange `seconds` of traffic in each direction."""
    workers = (Worker(0, "h1"), Worker(1, "h2"))
    return StagePlan(name, (JobSpec("job", workers, iterations=1, sync_bytes=round(seconds * SECOND)),))


def chained_scenario() -> Scenario:
    chained = StudyPlan("chained", 1.0, 0.0, tuple(stage(f"rung{i}", 1.0) for i in range(5)))
    long = StudyPlan("long", 1.0, 0.0, (stage("rung0", 2.0),))
    return Scenario("chained", star(2, RATE_BPS), seed=0, queues=8, studies=(chained, long))


@pytest.mark.parametrize(("policy", "mean_sct_s"), [("beamer-stage", 12 / 6), ("beamer", 9 / 6), ("fair", 11 / 6)])
def test_five_short_stages_against_one_long(policy: str, mean_sct_s: float) -> None:
    result = simulate(chained_scenario(), policy, assumptions=Assumptions(acknowledgements=False))

    assert result.mean_sct_s == pytest.approx(mean_sct_s, rel=1e-9)
    assert result.utilisation == pytest.approx(dict.fromkeys(("h1-s1", "s1-h1", "h2-s1", "s1-h2"), 1.0), rel=1e-6)
