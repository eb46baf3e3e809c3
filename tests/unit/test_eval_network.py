"""The study's arithmetic, and one of its cells in small."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.network import CONFIG, NetworkConfig, plot, ratios, run_seed, scenario, significantly_worse, summary
from eval.statistics import Interval


@pytest.fixture(scope="module")
def config() -> NetworkConfig:
    return NetworkConfig.model_validate(yaml.safe_load(CONFIG.read_text()))


def test_an_interval_is_students() -> None:
    interval = Interval.of([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(4.302653 / 3**0.5)  # t for 2 degrees of freedom at 97.5 %


def test_a_difference_counts_when_it_is_the_same_for_most_seeds() -> None:
    means = ((1.1, 1.0), (2.11, 2.0), (9.1, 9.0), (4.11, 4.0))
    runs: list[dict[str, Any]] = [{"bound_s": 1.0, "mean_sct_s": {"a": a, "b": b}} for a, b in means]
    assert significantly_worse(runs, "a", "b")
    assert not significantly_worse(runs, "b", "a")
    runs[0]["mean_sct_s"]["a"] = 0.1
    assert not significantly_worse(runs, "a", "b")


def test_every_cell_of_the_config_can_be_drawn(config: NetworkConfig) -> None:
    assert config.seeds >= 30
    assert set(config.queue_cells) <= set(config.cells)
    for name in config.cells:
        cell = config.cell(name)
        if cell.hosts <= 64:
            work = scenario(cell, config.first_seed)
            assert len(work.studies) == cell.studies
            assert len(work.fabric.hosts) == cell.hosts


def test_a_small_cell_from_end_to_end(config: NetworkConfig, tmp_path: Path) -> None:
    small = config.base.model_copy(update={"hosts": 8, "studies": 2, "trials": 3, "iterations": 1})
    runs = [run_seed(small, config.policies, [], seed) for seed in (1, 2)]
    for contender in config.policies:
        assert all(ratio >= 1 - 1e-9 for ratio in ratios(runs, contender.name))
        assert all(ratio >= 1 for ratio in ratios(runs, contender.name, "best"))
    table = summary(config, {"small": runs})
    assert table.row_count == 1
    plot(config, {"small": runs}, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
