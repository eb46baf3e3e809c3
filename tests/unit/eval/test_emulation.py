"""The emulated comparison on drawn works: what it draws, the arithmetic of its tables, and the docs that show them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from rich.console import Console

from beamer.errors import InputError
from beamer.workloads.scenario import parse
from eval.emulation import COMMITTED, CONFIG, EmulationConfig, EmulationStudy, Ratios, _until_kept_up, emulation
from topologies.emulation.studies import check_emulable

RENEW = "run `python -m eval emulation --docs`"


@pytest.fixture(scope="module")
def config() -> EmulationConfig:
    return EmulationConfig.model_validate(yaml.safe_load(CONFIG.read_text()))


def document(mean_s: float, makespans_s: dict[str, float], *findings: str) -> dict[str, Any]:
    found: dict[str, Any] = {"mean_sct_s": mean_s, "p95_sct_s": 2 * mean_s, "makespans_s": makespans_s}
    return found | {"class_share_min": 0.995, "dropped_share": 0.002, "findings": list(findings)}


def test_ten_works_on_two_topologies_and_one_with_eight_queues_can_be_emulated(config: EmulationConfig) -> None:
    scenarios = [parse(config.work(name)) for name in config.works]
    for scenario in scenarios:
        check_emulable(scenario)
    works, queues = scenarios[:10], scenarios[10:]
    assert len({scenario.seed for scenario in works}) == 10
    assert {scenario.fabric.name for scenario in works} == {"leaf-spine", "fat-tree"}
    assert {len(scenario.fabric.hosts) for scenario in works} == {8, 16}
    assert {scenario.seed for scenario in queues} <= {scenario.seed for scenario in works}
    assert {(s.transport.queue_packets, s.transport.congestion_control) for s in queues} == {
        (packets, control) for packets in (20, 50, 100, 300) for control in ("reno", "cubic")
    }


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        (["valid"], 0),
        (["slow", "valid"], 1),
        (["slow", "slow", "slow"], 2),
        (["lossy"], 0),
        (["slow", "mixed"], 1),
    ],
)
def test_a_run_is_repeated_if_the_machine_did_not_keep_up_and_for_nothing_else(runs: list[str], kept: int) -> None:
    lossy = {"dropped_share": 0.02}
    documents = {
        "valid": document(1.0, {}),
        "slow": document(1.0, {}, "a link with backlog carried 84% of its rate (limit 85%)"),
        "lossy": document(1.0, {}, "queues dropped 2.0%") | lossy,
        "mixed": document(1.0, {}, "queues dropped 2.0%", "too slow") | lossy,
    }
    left = [documents[run] for run in runs]
    assert _until_kept_up(lambda: left.pop(0)) == documents[runs[kept]]
    assert not left


def test_a_work_that_cannot_be_drawn_is_refused_when_the_config_is_read(config: EmulationConfig) -> None:
    with pytest.raises(ValidationError, match="workers"):
        EmulationConfig.model_validate(config.model_dump() | {"works": {"too large": {"seed": 1, "workers": [64]}}})


def test_ratios_are_to_the_baseline_and_the_makespan_is_that_of_the_search_that_fares_worst() -> None:
    found = Ratios.of(document(6.0, {"a": 9.0, "b": 2.0}), document(8.0, {"a": 10.0, "b": 1.0}))
    assert found == Ratios(0.75, 0.75, 2.0)


def test_a_work_has_a_row_with_both_sides_and_which_bounds_it_broke(
    config: EmulationConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {
        "emulated": {"fair": document(8.0, {"a": 8.0}, "too slow"), "beamer": document(6.0, {"a": 4.0})},
        "simulated": {"fair": document(10.0, {"a": 8.0}), "beamer": document(5.0, {"a": 6.0})},
    }
    close = {"emulated": {**runs["emulated"], "fair": document(9.1, {"a": 8.0})}, "simulated": runs["simulated"]}
    Console(width=400).print(EmulationStudy(config, {"one": runs, "two": close}, {}).works_table())
    row, other = (line for line in capsys.readouterr().out.splitlines() if "one" in line or "two" in line)
    for cell in ("0.75 (0.50)", "0.50 (0.75)", "fair 0.80, beamer 1.20", "fair 99.5%, 0.2%"):
        assert cell in row
    assert "fair: too slow; fair: mean 20.0% below simulated (bound 10%); beamer: mean 20.0% above simulated" in row
    assert "valid; beamer: mean 20.0% above simulated (bound 10%)" in other
    assert "fair: mean" not in other


def test_the_committed_figures_are_of_the_config(config: EmulationConfig) -> None:
    assert COMMITTED.read().config == config, RENEW


def test_a_work_without_a_seed_is_refused(config: EmulationConfig) -> None:
    with pytest.raises(ValidationError, match=r"works\.one\.seed: got None"):
        EmulationConfig.model_validate(config.model_dump() | {"works": {"one": {}}})


def test_works_that_are_not_emulated_cannot_be_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--simulate"):
        emulation(CONFIG, tmp_path / "figures.json", works="fat-tree", simulate_only=True)
    with pytest.raises(InputError, match="a part of one of leaf-spine, 8 hosts, rings"):
        emulation(CONFIG, tmp_path / "figures.json", works="torus")


def test_figures_are_of_a_work_as_it_is_drawn_now(config: EmulationConfig) -> None:
    study = COMMITTED.read()
    name = next(iter(config.works))
    assert study.has(config, name)
    assert not study.has(config.model_copy(update={"works": config.works | {name: {"seed": 77}}}), name)
    assert not study.has(config.model_copy(update={"policies": ("fair", "sebf")}), name)
