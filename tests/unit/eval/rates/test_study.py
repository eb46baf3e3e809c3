"""The experiment on modes: its cells, and one of them in small."""

from pathlib import Path

import pytest
import yaml

from beamer.errors import InputError
from eval.rates.command import RATES, rates
from eval.rates.report import RatesStudy
from eval.rates.runs import ModeEntry, RatesConfig, run_mode

TINY = {
    "topology": {"shape": "single", "hosts": 8, "rate": "10gbit"},
    "studies": 2,
    "search": {"kind": "successive-halving", "trials": 3, "eta": 3, "iterations": 1},
}


@pytest.fixture(scope="module")
def config() -> RatesConfig:
    return RATES.read_config()


def test_every_cell_holds_twelve_studies(config: RatesConfig) -> None:
    assert config.seeds >= 12
    for name in config.cells:
        assert len(config.cell(name).scenario(config.first_seed).studies) == 12


def test_a_mode_on_every_number_of_queues_that_the_question_names(config: RatesConfig) -> None:
    assert {(entry.mode, entry.queues) for entry in config.modes} == {
        ("rates", 1), *((mode, queues) for mode in ("classes", "hybrid") for queues in (2, 4, 8)),
    }  # fmt: skip
    with pytest.raises(InputError, match="--mode"):
        ModeEntry(mode="clases", queues=2).build()


def test_a_small_cell_from_end_to_end(config: RatesConfig) -> None:
    small = config.base.model_copy(update=TINY)
    runs = {who: [run_mode(small, *entry, seed) for seed in (1, 2)] for who, entry in config.entries.items()}
    tables = RatesStudy(config, {"small": runs}).tables()
    assert {name: [table.row_count for table in several] for name, several in tables.items()} == {
        "mean": [8], "p95": [8], "changes": [8], "hybrid": [6],
    }  # fmt: skip
    for several in runs.values():
        assert all(0 < run["mean_s"] <= run["p95_s"] for run in several)


def test_known_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(RATES.config_file.read_text())
    content["base"] |= TINY
    content["cells"] = {"tiny": {}}
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(content))
    monkeypatch.chdir(tmp_path)
    for known in (0, 18):
        rates(config_file=file, seeds=2, json_file=tmp_path / "out" / "figures.json", processes=1)
        assert (tmp_path / "out" / "figures.json").exists()
        output = capsys.readouterr().out
        assert f"18 runs, {known} of them known" in output
        assert "hybrid, K = 2" in output
    with pytest.raises(InputError, match="--cells"):
        rates(config_file=file, cells="large", json_file=tmp_path / "out" / "figures.json")
