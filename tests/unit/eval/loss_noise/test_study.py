"""The study of noise: its models, its figures of losses whose noise is known, and one of its cells in small."""

import numpy as np
import pytest

from eval.gpu.loss_noise import LossNoise
from eval.loss_noise.command import LOSS_NOISE
from eval.loss_noise.models import PROBLEMS
from eval.loss_noise.runs import LAGS, LossNoiseConfig, bands, noise_figures, run_rate


@pytest.fixture(scope="module")
def config() -> LossNoiseConfig:
    return LOSS_NOISE.read_config()


def test_every_model_is_trained_on_both_kinds_of_data_at_the_same_rates(config: LossNoiseConfig) -> None:
    cells = [config.cell(name) for name in config.cells]
    assert {(one.problem, bool(one.epoch)) for one in cells} == {
        (name, finite) for name in PROBLEMS for finite in (True, False)
    }
    for name in PROBLEMS:
        assert len({one.rates for one in cells if one.problem == name}) == 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_gradient_is_what_finite_differences_say(name: str) -> None:
    rng = np.random.default_rng(1)
    problem = PROBLEMS[name](rng)
    samples = problem.draw(rng, 8)
    weights = [one + 0.1 * rng.normal(size=one.shape) for one in problem.weights]
    _, gradient = problem.gradient(tuple(weights), samples)
    for place, slope in enumerate(gradient):
        direction = rng.normal(size=slope.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [one + step * direction if place == other else one for other, one in enumerate(weights)]
            ends.append(problem.gradient(tuple(moved), samples)[0])
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((slope * direction).sum()), rel=1e-5, abs=1e-8)


def test_bands_grow_by_four_up_to_the_last_iteration() -> None:
    assert bands(100) == [0, 4, 16, 64, 100]
    assert bands(64) == [0, 4, 16, 64]


@pytest.mark.parametrize("epoch", [0, 16])
def test_known_noise_is_found(epoch: int) -> None:
    """Standard errors: of a deviation at most 0.002, of a correlation 0.004."""
    noise, rng = LossNoise((0.3, 0.9), (0.2, 0.1), epoch), np.random.default_rng(1)
    trend = 2.0 * (0.3 + 0.7 * np.exp(-np.arange(4096) / 512))
    figures = noise_figures(np.array([trend * noise.factors(trend / 2.0, rng) for _ in range(16)]))
    assert figures["deviation until 4096"] == pytest.approx(0.2, abs=0.01)
    found = LossNoise.of_runs([figures], epoch)
    assert found.deviation(np.array([0.35, 0.6, 0.9])) == pytest.approx(noise.deviation(np.array([0.35, 0.6, 0.9])), abs=0.01)
    for lag in LAGS:
        expected = -max(1.0 - lag / epoch, 0.0) / (epoch - 1) if epoch else 0.0
        assert figures[f"correlation at {lag}"] == pytest.approx(expected, abs=0.015)


def test_a_run_is_drawn_from_its_seed(config: LossNoiseConfig) -> None:
    cell = config.cell("softmax regression, finite data").model_copy(update={"iterations": 512, "members": 3})
    one = run_rate(cell, 0.4, 1)
    assert one == run_rate(cell, 0.4, 1) != run_rate(cell, 0.4, 2)
    assert one["deviation until 4"] < one["deviation until 512"] < 0.3
    assert one["correlation at 1"] < 0
