"""The trials of constants: their config, and what changes a constant."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from beamer.network.policies import beamer
from eval.network.cells import Contender
from eval.network.command import NETWORK
from eval.network.runs import run_contender
from eval.trials.command import TRIALS, trials
from eval.trials.report import TrialsStudy
from eval.trials.runs import TrialsConfig, Variant, changed, run_variant

SMALL = {"studies": 3, "search": {"kind": "successive-halving", "eta": 2, "iterations": 1}, "trials": (2, 4), "workers": (2,)}


@pytest.fixture(scope="module")
def config() -> TrialsConfig:
    return TRIALS.read_config()


def test_seeds_are_apart_from_those_of_the_study(config: TrialsConfig) -> None:
    study = NETWORK.read_config()
    mine = set(range(config.first_seed, config.first_seed + config.seeds))
    assert not mine & set(range(study.first_seed, study.first_seed + study.seeds))


def test_cells_are_those_of_the_study_and_references_are_as_shipped(config: TrialsConfig) -> None:
    assert set(config.compared()) <= set(NETWORK.read_config().cells())
    for group in config.groups.values():
        assert config.variants[group.reference].constants == {}
        assert group.reference not in group.variants


@pytest.mark.parametrize(
    ("variants", "named"),
    [
        ({"live": {"constants": {"RANK_EXPONNT": 1.0}}}, "did you mean 'RANK_EXPONENT'"),
        ({"live": {"policy": "fair", "constants": {"RANK_EXPONENT": 1.0}}}, "none but with beamer"),
        ({"live": {}}, "overdue"),
    ],
)
def test_what_does_not_exist_is_refused(config: TrialsConfig, variants: Any, named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        TrialsConfig.model_validate(config.model_dump() | {"variants": variants})


def test_a_constant_is_changed_for_a_run_and_no_longer() -> None:
    before = beamer.AGE_POWER
    with changed({"AGE_POWER": before + 1}):
        assert before + 1 == beamer.AGE_POWER
    assert before == beamer.AGE_POWER


def test_a_variant_is_run_with_its_constants() -> None:
    cell = NETWORK.read_config().base.model_copy(update=SMALL)
    shipped = [run_variant(cell, Variant(allocator="greedy"), 8, seed) for seed in range(4)]
    for seed, run in enumerate(shipped):
        whole = run_contender(cell, Contender(policy="beamer", allocator="greedy"), 8, seed)
        assert run == {measure: whole[measure] for measure in ("mean_s", "p95_s")}
    other = Variant(allocator="greedy", constants={"RANK_EXPONENT": 0.0})
    assert [run_variant(cell, other, 8, seed) for seed in range(4)] != shipped


def test_a_table_has_a_column_per_cell_and_one_of_all(config: TrialsConfig) -> None:
    runs = {
        cell: {name: [{"mean_s": 1.0 + (name == "rank^1, slack^0.2"), "p95_s": 3.0}] * 2 for name in variants}
        for cell, variants in config.compared().items()
    }
    for name, (means, tails) in TrialsStudy(config, runs).tables().items():
        group = config.groups[name]
        assert [column.header for column in means.columns] == ["variant", *group.cells, "all of these"]
        shown = dict(zip(means.columns[0].cells, means.columns[-1].cells, strict=True))
        assert shown == {v: "2.00 [2.00, 2.00]" if v == "rank^1, slack^0.2" else "1.00 [1.00, 1.00]" for v in group.variants}
        assert set(tails.columns[-1].cells) == {"1.00 [1.00, 1.00]"}


@pytest.mark.long
def test_known_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(TRIALS.config_file.read_text())
    few = {"variants": ["rank^1, slack^0.2"], "cells": ["2 alike, ratio 0", "2 alike, ratio 1"]}
    content["groups"] = {"index": content["groups"]["index"] | few}
    file = tmp_path / "few.yaml"
    file.write_text(yaml.safe_dump(content))
    monkeypatch.chdir(tmp_path)
    for known in (0, 8):
        trials(config_file=file, seeds=2, json_file=tmp_path / "figures.json", processes=1)
        output = capsys.readouterr().out
        assert f"8 runs, {known} of them known" in output
        assert "rank^1, slack^0.2" in output
