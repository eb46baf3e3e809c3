"""The shipped scenario, simulated: what it is there to show, seen in a second instead of minutes."""

import shlex
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from beamer.network.policies import NETWORK_POLICIES
from beamer.sim import SimResult, simulate
from beamer.workloads.command import workload
from beamer.workloads.scenario import Scenario, load, shipped
from eval.emulation import CONFIG, SHIPPED_SEED, EmulationConfig


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load(shipped())


@pytest.fixture(scope="module")
def runs(scenario: Scenario) -> dict[str, SimResult]:
    return {name: simulate(scenario, name) for name, policy in NETWORK_POLICIES.items() if not policy.needs_coflows}


def test_it_is_what_the_command_in_its_header_draws(tmp_path: Path) -> None:
    header = " ".join(line.lstrip("#").rstrip("\\") for line in shipped().read_text().splitlines() if line.startswith("#     "))
    beamer, command, *options = shlex.split(header)
    assert (beamer, command) == ("beamer", "workload")
    options[options.index("--out") + 1] = str(tmp_path / "drawn.yaml")
    app = typer.Typer()
    app.command()(workload)
    result = CliRunner().invoke(app, options)
    assert result.exception is None
    content = [line for line in shipped().read_text().splitlines(keepends=True) if not line.startswith("#")]
    assert (tmp_path / "drawn.yaml").read_text() == "".join(content)


def test_it_is_drawn_from_the_distribution_that_is_evaluated() -> None:
    config = EmulationConfig.model_validate(yaml.safe_load(CONFIG.read_text()))
    drawn = config.base.document(SHIPPED_SEED) | {"name": "overlapping-searches"}
    assert drawn == yaml.safe_load(shipped().read_text())


def test_searches_differ_and_arrive_one_after_another(scenario: Scenario) -> None:
    assert len({study.arrival_s for study in scenario.studies}) == len(scenario.studies)
    first = [study.stages[0].jobs for study in scenario.studies]
    assert len({job.sync_bytes for jobs in first for job in jobs}) > 1
    assert len({len(jobs) for jobs in first}) > 1
    assert len({len(job.workers) for jobs in first for job in jobs}) > 1
    assert len({jobs[0].iterations for jobs in first}) > 2


def test_beamer_ends_stages_a_third_earlier_than_fair(runs: dict[str, SimResult]) -> None:
    assert runs["beamer"].mean_sct_s <= 0.67 * runs["fair"].mean_sct_s
    assert runs["beamer"].p95_sct_s <= 1.05 * runs["fair"].p95_sct_s


def test_knowing_stages_is_worth_more_than_bytes(runs: dict[str, SimResult]) -> None:
    assert runs["beamer"].mean_sct_s <= 0.95 * runs["sebf"].mean_sct_s


def test_no_study_pays_for_it(runs: dict[str, SimResult]) -> None:
    for study, makespan_s in runs["fair"].makespans_s.items():
        assert runs["beamer"].makespans_s[study] <= 1.1 * makespan_s


def test_looking_beyond_the_stage_costs_nothing(runs: dict[str, SimResult]) -> None:
    assert runs["beamer"].mean_sct_s <= runs["beamer-stage"].mean_sct_s


def test_every_policy_moves_the_same_bytes(runs: dict[str, SimResult]) -> None:
    for run in runs.values():
        assert sum(run.link_bytes.values()) == pytest.approx(sum(runs["fair"].link_bytes.values()), rel=1e-6)
