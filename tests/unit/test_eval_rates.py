"""The experiment on modes: its cells, and one of them in small."""

from pathlib import Path

import pytest
import yaml

from beamer.errors import InputError
from eval.rates import CONFIG, IDEAL, MEASURES, ModeEntry, RatesConfig, by_mode, rates, run_seed, table

TINY = {
    "topology": {"shape": "single", "hosts": 8, "rate": "10gbit"},
    "studies": 2,
    "search": {"kind": "successive-halving", "trials": 3, "eta": 3, "iterations": 1},
}


@pytest.fixture(scope="module")
def config() -> RatesConfig:
    return RatesConfig.model_validate(yaml.safe_load(CONFIG.read_text()))


def test_every_cell_holds_twelve_studies(config: RatesConfig) -> None:
    assert config.seeds >= 30
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
    results = {"small": [run_seed(small, config.modes, seed) for seed in (1, 2)]}
    for measure in MEASURES:
        assert table(config, results, measure).row_count == len(config.names)
    for name in (IDEAL, *config.names):
        for mean_s, p95_s, longest_s in zip(
            *(by_mode(results["small"], name, measure) for measure in ("mean_s", "p95_s", "longest_s")), strict=True
        ):
            assert 0 < mean_s <= longest_s
            assert p95_s <= longest_s


def test_the_command_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(CONFIG.read_text())
    content["base"] |= TINY
    content["cells"] = {"tiny": {}}
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(content))
    rates(config_file=file, seeds=2, cells=None, json_file=tmp_path / "out" / "figures.json", processes=1)
    assert (tmp_path / "out" / "figures.json").exists()
    assert "hybrid, K = 2" in capsys.readouterr().out
