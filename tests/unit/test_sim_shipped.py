"""The shipped scenario, simulated: what it is there to show, seen in a second instead of minutes."""

import pytest

from beamer.network.policies import NETWORK_POLICIES
from beamer.sim import SimResult, simulate
from beamer.workloads.scenario import Scenario, load, shipped


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load(shipped())


@pytest.fixture(scope="module")
def runs(scenario: Scenario) -> dict[str, SimResult]:
    return {name: simulate(scenario, name) for name, policy in NETWORK_POLICIES.items() if not policy.needs_coflows}


def test_beamer_ends_stages_a_quarter_earlier_than_fair(runs: dict[str, SimResult]) -> None:
    assert runs["beamer"].mean_sct_s <= 0.75 * runs["fair"].mean_sct_s


def test_no_study_pays_for_it(runs: dict[str, SimResult]) -> None:
    for study, makespan_s in runs["fair"].makespans_s.items():
        assert runs["beamer"].makespans_s[study] <= 1.1 * makespan_s


def test_looking_beyond_the_stage_pays(runs: dict[str, SimResult]) -> None:
    assert runs["beamer"].mean_sct_s < runs["beamer-stage"].mean_sct_s


def test_every_policy_moves_the_same_bytes(runs: dict[str, SimResult]) -> None:
    for run in runs.values():
        assert sum(run.link_bytes.values()) == pytest.approx(sum(runs["fair"].link_bytes.values()), rel=1e-6)
