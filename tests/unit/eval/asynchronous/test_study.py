"""The experiment on searches without barriers: its cells, its arithmetic, and one of them in small."""

from pathlib import Path

import pytest
import yaml

from eval.asynchronous.command import ASYNCHRONOUS, asynchronous
from eval.asynchronous.report import AsynchronousStudy
from eval.asynchronous.runs import AsynchronousConfig, run_policy, scenario


@pytest.fixture(scope="module")
def config() -> AsynchronousConfig:
    return ASYNCHRONOUS.read_config()


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
    runs = {name: [run_policy(small, name, config.queues, seed) for seed in (1, 2)] for name in config.policies}
    tables = AsynchronousStudy(config, {"small": runs}).tables()
    assert {name: table.row_count for name, (table,) in tables.items()} == dict.fromkeys(
        ("first", "best", "end", "SCT", "losses"), 1
    )
    for several in runs.values():
        for run in several:
            assert 0 < run["first_s"] <= run["best_s"] <= run["search_s"]
            assert run["sct_s"] > 0


def test_a_measure_that_no_cell_has_has_no_table(config: AsynchronousConfig) -> None:
    runs = {name: [{"first_s": 2.0, "best_s": 2.0, "search_s": 2.0, "loss": 1.0}] * 2 for name in config.policies}
    assert set(AsynchronousStudy(config, {"cell": runs}).tables()) == {"first", "best", "end", "losses"}


@pytest.mark.long
def test_known_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(ASYNCHRONOUS.config_file.read_text())
    content["base"] |= {"trials": 6, "slots": 2, "hosts": 8, "settings": {"eta": 2, "iterations": 1, "halvings": 1}}
    content["cells"] = {"tiny": {}}
    content["policies"] = ["fair", "beamer"]
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(content))
    monkeypatch.chdir(tmp_path)
    for known in (0, 4):
        asynchronous(config_file=file, seeds=2, json_file=tmp_path / "out" / "figures.json", processes=1)
        assert (tmp_path / "out" / "figures.json").exists()
        output = capsys.readouterr().out
        assert f"4 runs, {known} of them known" in output
        assert "tiny" in output
