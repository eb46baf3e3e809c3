"""The experiment on searches without barriers: its cells, its arithmetic, and one of them in small."""

from pathlib import Path

import pytest
import yaml

from eval.asynchronous import CONFIG, MEASURES, AsynchronousConfig, asynchronous, losses, run_seed, scenario, table


@pytest.fixture(scope="module")
def config() -> AsynchronousConfig:
    return AsynchronousConfig.model_validate(yaml.safe_load(CONFIG.read_text()))


def test_every_cell_of_the_config_can_be_drawn(config: AsynchronousConfig) -> None:
    assert config.seeds >= 20
    for name in config.cells:
        cell = config.cell(name)
        work = scenario(cell, config.first_seed)
        assert len(work.studies) == cell.studies
        assert [len(plan.slots) for plan in work.asynchronous] == [cell.slots] * cell.searches


def test_the_work_of_a_seed_is_the_same_for_every_policy(config: AsynchronousConfig) -> None:
    cell = config.cell("2 searches")
    assert scenario(cell, 5) == scenario(cell, 5)
    assert scenario(cell, 5) != scenario(cell, 6)


def test_a_small_cell_from_end_to_end(config: AsynchronousConfig) -> None:
    small = config.base.model_copy(
        update={"trials": 9, "settings": {"eta": 3, "iterations": 1, "halvings": 1}, "slots": 2, "studies": 1, "hosts": 8}
    )
    results = {"small": [run_seed(small, config.policies, config.queues, seed) for seed in (1, 2)]}
    for measure in MEASURES:
        assert table(config, results, measure).row_count == 1
    for run in results["small"]:
        for found in run["policies"].values():
            assert 0 < found["first_s"] <= found["best_s"] <= found["search_s"]
            assert found["sct_s"] > 0
    assert "beamer" in losses(config, results)


def test_a_measure_that_a_cell_does_not_have_has_no_row(config: AsynchronousConfig) -> None:
    runs = [{"policies": {name: {"first_s": 2.0} for name in config.policies}} for _ in range(2)]
    assert table(config, {"cell": runs}, "sct_s").row_count == 0


def test_the_command_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(CONFIG.read_text())
    content["base"] |= {"trials": 6, "slots": 2, "hosts": 8, "settings": {"eta": 2, "iterations": 1, "halvings": 1}}
    content["cells"] = {"tiny": {}}
    content["policies"] = ["fair", "beamer"]
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(content))
    asynchronous(config_file=file, seeds=2, cells=None, json_file=tmp_path / "out" / "figures.json", processes=1)
    assert (tmp_path / "out" / "figures.json").exists()
    assert "tiny" in capsys.readouterr().out
