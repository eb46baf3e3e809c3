"""The noise of simulated losses is the measured one."""

import json
from pathlib import Path

import numpy as np
import pytest

from beamer.errors import InputError
from eval.gpu.loss_noise import LossNoise, recorded_noise
from eval.gpu.searches import BatchReports
from eval.loss_noise.command import LOSS_NOISE
from eval.loss_noise.report import LossNoiseStudy
from eval.loss_noise.runs import LAGS

COUNT = 200_000
DEVIATION_TOLERANCE = 0.02  # relative
CORRELATION_TOLERANCE = 0.03  # What is common to consecutive batches of a trajectory is left out of the simulator.


@pytest.fixture(scope="module")
def study() -> LossNoiseStudy:
    return LOSS_NOISE.committed.read()


@pytest.mark.parametrize("cell", LOSS_NOISE.read_config().cells)
def test_simulated_losses_deviate_and_are_correlated_as_measured(study: LossNoiseStudy, cell: str) -> None:
    noise = recorded_noise(cell)
    runs = [run for runs in study.runs[cell].values() for run in runs]
    assert noise == LossNoise.of_runs(runs, study.config.cell(cell).epoch)
    for level, deviation in zip(noise.levels, noise.deviations, strict=True):
        factors = noise.factors(np.full(COUNT, level), np.random.default_rng(1))
        assert factors.mean() == pytest.approx(1.0, abs=0.01 * deviation + 0.001)
        assert factors.std() == pytest.approx(deviation, rel=DEVIATION_TOLERANCE)
        residuals = (factors - factors.mean()) / factors.std()
        for lag in LAGS:
            measured = np.mean([run[f"correlation at {lag}"] for runs in study.runs[cell].values() for run in runs])
            assert (residuals[:-lag] * residuals[lag:]).mean() == pytest.approx(measured, abs=CORRELATION_TOLERANCE)


def test_noise_is_drawn_from_its_seed_and_follows_the_level() -> None:
    noise, levels = LossNoise((0.5, 0.9), (0.2, 0.1), 4), np.array([1.0, 0.9, 0.7, 0.5, 0.1, np.nan])
    assert noise.deviation(levels[:5]) == pytest.approx([0.1, 0.1, 0.15, 0.2, 0.2])
    drawn = [noise.factors(levels, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert np.array_equal(drawn[0], drawn[1], equal_nan=True)
    assert not np.array_equal(drawn[0], drawn[2], equal_nan=True)
    assert list(np.isnan(drawn[0])) == [False] * 5 + [True]


def test_an_epoch_of_finite_data_has_no_noise_as_a_whole() -> None:
    noise = LossNoise((0.5,), (0.01,), 16)
    epochs = noise.factors(np.ones(1600), np.random.default_rng(1)).reshape(-1, 16)
    assert np.abs(epochs.mean(axis=1) - 1.0).max() < 1e-4
    assert epochs.std() == pytest.approx(0.01, rel=0.1)


def test_reports_are_losses_of_single_batches_some_apart() -> None:
    noise, trend = LossNoise((0.5, 1.0), (0.2, 0.1), 0), np.array([2.0, 1.5, 1.0])
    found = BatchReports(noise, 4).reported(trend, np.random.default_rng(1))
    factors = noise.factors(np.linspace(1.0, 0.5, 9), np.random.default_rng(1))
    assert found == pytest.approx(trend * factors[::4])


def test_a_cell_that_was_not_measured_is_named(tmp_path: Path) -> None:
    path = tmp_path / "loss-noise.json"
    path.write_text(json.dumps({"config": {}, "runs": {"perceptron, fresh samples": {}}}))
    with pytest.raises(InputError, match=r"got 'perceptron', expected one of perceptron, fresh samples"):
        recorded_noise("perceptron", path)
