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


def test_searches_that_differ_are_ordered_better_than_by_bytes(runs: dict[str, SimResult]) -> None:
    assert runs["beamer"].mean_sct_s < runs["sebf"].mean_sct_s


def test_the_file_is_what_its_header_says(tmp_path: Path) -> None:
    text, out = shipped().read_text(), tmp_path / "again.yaml"
    header = "".join(line.removeprefix("#").rstrip("\\") for line in text.splitlines() if line.startswith("#   "))
    app = typer.Typer()
    app.command()(workload)
    options = shlex.split(header)[2:]
    assert CliRunner().invoke(app, [*options[: options.index("--out")], "--out", str(out)]).exit_code == 0
    changed = {"name": "mixed-searches", "start_up_s": 0.5}
    assert yaml.safe_load(text) == yaml.safe_load(out.read_text()) | changed


def test_every_policy_moves_the_same_bytes(runs: dict[str, SimResult]) -> None:
    for run in runs.values():
        assert sum(run.link_bytes.values()) == pytest.approx(sum(runs["fair"].link_bytes.values()), rel=1e-6)
