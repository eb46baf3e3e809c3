"""The study of searches that train: its config, what it keeps of runs, and its table."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from rich.console import Console

from beamer.errors import InputError
from eval import training as module
from eval.pairs import policies_of
from eval.training import COMMITTED, CONFIG, TrainingConfig, TrainingStudy, check_programs, kept, repeated
from topologies.emulation.searches import with_stand_ins

RENEW = "run `python -m eval training --docs`"
ONE, OTHER = "fifo + fair", "tiresias + beamer"


@pytest.fixture(scope="module")
def config() -> TrainingConfig:
    return TrainingConfig.model_validate(yaml.safe_load(CONFIG.read_text()))


def document(search_s: float, simulated_s: float, *findings: str) -> dict[str, Any]:
    sides = {"mean_search_s": search_s, "mean_sct_s": search_s / 2, "end_s": search_s}
    simulated = {"mean_search_s": simulated_s, "mean_sct_s": simulated_s / 2, "end_s": simulated_s, "trials": []}
    ended = {"s/a": "killed", "t/a": "finished", "s/b": "finished"}  # in whatever order searches came
    trials = [{"key": key, "status": status} for key, status in ended.items()]
    accounts = {"class_share_min": 0.995, "dropped_share": 0.002, "findings": list(findings)}
    return {**sides, **accounts, "trials": trials, "simulated": simulated, "idle_share": 0.5}


def test_of_a_run_the_best_trials_are_kept_and_both_sides() -> None:
    found = kept(document(10.0, 8.0))
    assert found["best"] == ["s/b", "t/a"]
    assert found["simulated"] == {"mean_search_s": 8.0, "mean_sct_s": 4.0, "end_s": 8.0}
    assert "idle_share" not in found


def test_ratios_are_to_the_first_pair_in_the_same_repetition(capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainingConfig(scenario="digits.yaml", pairs=(ONE, OTHER), repetitions=3)
    slow = [kept(document(search_s, 80.0)) for search_s in (100.0, 50.0, 200.0)]
    fast = [kept(document(search_s, 40.0, *why)) for search_s, why in ((50.0, ["slow"]), (50.0, []), (40.0, []))]
    Console(width=220).print(TrainingStudy(config, {ONE: slow, OTHER: fast}).pairs_table())
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if "tiresias" in line]
    for cell in ("50.0 (40.0 to 50.0)", "0.50", "40.0", "1.25", "25.0 (20.0 to 25.0)", "99.5%, 0.2%", " 1 "):
        assert cell in row
    assert any("every run ended with s/b" in line for line in lines)


def test_an_invalid_run_is_repeated_and_each_repetition_is_kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [document(1.0, 1.0, "slow"), *(document(search_s, 1.0) for search_s in (2.0, 3.0, 4.0, 5.0))]
    asked: list[tuple[str, ...]] = []

    def run(scenario: Path, *options: str) -> list[dict[str, Any]]:
        asked.append((scenario.name, *options))
        return [runs[len(asked) - 1]]

    monkeypatch.setattr(module, "emulated_figures", run)
    config = TrainingConfig(scenario="digits.yaml", pairs=(ONE, OTHER), repetitions=2)
    written: list[dict[str, list[float]]] = []

    def keep(study: TrainingStudy) -> None:
        assert study.config.repetitions == len(written) + 1
        written.append({who: [each["mean_search_s"] for each in found] for who, found in study.runs.items()})

    repeated(config, Console(quiet=True), keep)
    assert written == [{ONE: [2.0], OTHER: [3.0]}, {ONE: [2.0, 4.0], OTHER: [3.0, 5.0]}]
    one, other = (
        ("digits.yaml", "--gpu-policy", gpu, "--policies", network) for gpu, network in map(policies_of, (ONE, OTHER))
    )
    assert asked == [one, one, other, one, other]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"scenario": "digit.yaml"}, "scenario: got 'digit.yaml'.*did you mean 'digits.yaml'"),
        ({"pairs": [ONE, "tiresias"]}, "pairs: got 'tiresias'"),
        ({"pairs": [ONE, "tiresia + fair"]}, "did you mean 'tiresias'"),
        ({"repetitions": 0}, "repetitions"),
    ],
)
def test_what_cannot_be_run_is_refused(config: TrainingConfig, change: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        TrainingConfig.model_validate(config.model_dump() | change)


def test_stand_ins_are_no_searches_that_train(config: TrainingConfig) -> None:
    check_programs(config, lambda scenario: (scenario, ()))
    with pytest.raises(InputError, match=r"scenario: got 'digits.yaml'.*in place of digits"):
        check_programs(config, partial(with_stand_ins, is_installed=lambda module: False))


def test_the_committed_figures_are_of_the_config(config: TrainingConfig) -> None:
    assert COMMITTED.read().config == config, RENEW
