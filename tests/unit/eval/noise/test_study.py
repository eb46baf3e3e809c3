"""The experiment on noisy losses: its searches, and one of them in small."""

import math
from itertools import islice, pairwise

import pytest

from eval.gpu.fresh_samples import PROBLEMS
from eval.noise.command import NOISE
from eval.noise.report import NoiseStudy
from eval.noise.runs import NoiseCell, NoiseConfig, NoiseContender, run_contender

FIFO = NoiseContender(policy="fifo")


@pytest.fixture(scope="module")
def config() -> NoiseConfig:
    return NOISE.read_config()


@pytest.fixture(scope="module")
def small(config: NoiseConfig) -> NoiseCell:
    cell = config.cell("regression, one good, 8 per poll")
    return cell.model_copy(update={"trial_s": 2.0, "rates": (0.8, 0.1, 0.05)})


def test_every_search_tries_eight_rates_in_many_orders(config: NoiseConfig) -> None:
    assert len(config.cells) == 8
    assert config.seeds >= 25
    for name in config.cells:
        cell = config.cell(name)
        assert len(cell.learning_rates) == 8
        assert list(cell.rates) == sorted(cell.rates, reverse=True)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_losses_are_noisy_fall_and_diverge(problem: str, config: NoiseConfig) -> None:
    cell = config.cell(f"{problem}, one good, 64 per poll")
    losses = PROBLEMS[problem]
    good = list(islice(losses(cell.learning_rates[0], 1), cell.iterations))
    assert good == list(islice(losses(cell.learning_rates[0], 1), cell.iterations))
    assert good != list(islice(losses(cell.learning_rates[0], 2), cell.iterations))
    assert min(good[: cell.iterations // 10]) > cell.target > min(good)
    rises = sum(after > before for before, after in pairwise(good))
    assert 0.4 < rises / len(good) < 0.6
    assert min(islice(losses(cell.learning_rates[1], 1), cell.iterations)) > cell.target
    diverging = list(islice(losses(cell.diverging, 1), 2000))
    assert not math.isfinite(diverging[-1]) or diverging[-1] > 10 * diverging[0]


def test_a_search_ends_when_a_loss_has_reached_the_target(small: NoiseCell) -> None:
    runs = {policy: run_contender(small, NoiseContender(policy=policy), 1) for policy in ("fifo", "hermes")}
    for run in runs.values():
        assert 0 < run["reached_s"] <= 4 * small.trial_s
        assert 0 <= run["worse"] < 1
    assert runs["fifo"] == run_contender(small, FIFO, 1)
    never = small.model_copy(update={"target": 0.0})
    assert run_contender(never, FIFO, 1)["reached_s"] == math.inf


def test_the_table_has_a_row_for_each_search_and_one_for_all(config: NoiseConfig) -> None:
    runs = {
        name: {policy: [{"reached_s": 2.0 + place, "worse": 0.1}] * 2 for place, policy in enumerate(config.contenders)}
        for name in config.cells
    }
    ((table,),) = NoiseStudy(config, runs).tables().values()
    assert table.row_count == len(config.cells) + 1
    *_, last = zip(*(column.cells for column in table.columns), strict=True)
    assert last == ("all", "2.0", "3.0", "4.0", "5.0", "1.50", "2.00", "2.50", "10%", "10%", "10%")
