"""What the study of noise consists of, as in `eval/configs/loss-noise.yaml`, and one run of it.

A seed draws a problem: what is to be learned, the initial weights and the finite data. Its members differ in nothing but the
samples of their batches, so that their mean is the trend, without smoothing, and what is left is noise.
"""

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any, Literal

import numpy as np
from pydantic import Field

from eval.config_section import ConfigSection
from eval.gpu.loss_noise import LEVEL, LEVEL_DEVIATION, LEVELS
from eval.loss_noise.models import PROBLEMS, Floats, LearningProblem, Samples

LAGS = (1, 2, 4, 8, 12, 16, 32, 64)  # iterations
DEVIATION, CORRELATION = "deviation until", "correlation at"  # figures of a run, with an iteration and a lag behind it
MIN_ITERATIONS = 4  # that a deviation by level is of
SETTLED = 8  # Correlations are those of iterations after the first eighth, where the trend changes little within the lags.


class LossNoiseCell(ConfigSection):
    """A model on its data. rates: of learning, tried apart. batch: samples of one.

    epoch: batches of the finite data, which are shuffled for each epoch; 0: fresh samples. members: trained on one problem.
    """

    problem: Literal["softmax regression", "perceptron", "attention"]
    rates: tuple[float, ...] = Field(min_length=2)
    batch: int = Field(ge=1)
    epoch: int = Field(ge=0)
    iterations: int = Field(ge=1)
    members: int = Field(ge=2)


class LossNoiseConfig(ConfigSection):
    """What the study consists of, as in the config file."""

    seeds: int = Field(ge=2)
    first_seed: int
    base: dict[str, Any]
    cells: dict[str, dict[str, Any]]

    def cell(self, name: str) -> LossNoiseCell:
        """Return the cell of that name."""
        return LossNoiseCell.model_validate(self.base | self.cells[name])


def run_rate(cell: LossNoiseCell, rate: float, seed: int) -> dict[str, float]:
    """Return the figures of `noise_figures` of a model at a learning rate, on the problem of a seed."""
    rng = np.random.default_rng((seed, 0))
    problem = PROBLEMS[cell.problem](rng)
    examples = problem.draw(rng, cell.batch * cell.epoch) if cell.epoch else None
    members = (np.random.default_rng((seed, 1 + member)) for member in range(cell.members))
    curves = [
        list(islice(_losses(problem, _batches(problem, examples, cell.batch, one), rate), cell.iterations)) for one in members
    ]
    return noise_figures(np.array(curves))


def noise_figures(curves: Floats) -> dict[str, float]:
    """Return what losses deviate from their trend by, relative to it. curves: a row per member, a column per iteration.

    "deviation until N": standard deviation in iterations up to N, from the N before on. "level at L", "deviation at L": means
    of the iterations in which the trend, relative to the first loss, is between L and the next. "correlation at K": of
    iterations that are K apart, over the members.
    """
    members, iterations = curves.shape
    trend = curves.mean(axis=0)
    # The mean of a few members follows their noise, which takes that share of the variance away.
    residuals = (curves / trend - 1.0) * np.sqrt(members / (members - 1))
    variances, levels = (residuals**2).mean(axis=0), trend / trend[0]
    found = {}
    for first, last in pairwise(bands(iterations)):
        found[f"{DEVIATION} {last}"] = float(np.sqrt(variances[first:last].mean()))
    for place, low in enumerate(LEVELS, 1):
        inside = np.digitize(levels, LEVELS) == place
        if inside.sum() >= MIN_ITERATIONS:
            found[f"{LEVEL} {low}"] = float(levels[inside].mean())
            found[f"{LEVEL_DEVIATION} {low}"] = float(np.sqrt(variances[inside].mean()))
    settled = slice(iterations // SETTLED, None)
    standard = residuals[:, settled] / np.sqrt(variances[settled])
    for lag in LAGS:
        found[f"{CORRELATION} {lag}"] = float((standard[:, :-lag] * standard[:, lag:]).mean())
    return found


def bands(iterations: int) -> list[int]:
    """Return the ends of bands of iterations, each four times as long as the one before."""
    inner = [4**power for power in range(1, 20) if 4**power < iterations]
    return [0, *inner, iterations]


def _batches(problem: LearningProblem, examples: Samples | None, size: int, rng: np.random.Generator) -> Iterator[Samples]:
    """Yield batches: fresh samples, or the examples in a new order each epoch."""
    while examples is None:
        yield problem.draw(rng, size)
    while True:
        inputs, targets = examples
        for chosen in rng.permutation(len(targets)).reshape(-1, size):
            yield inputs[chosen], targets[chosen]


def _losses(problem: LearningProblem, batches: Iterator[Samples], rate: float) -> Iterator[float]:
    """Yield the loss of each batch, before the model learns from it."""
    weights = problem.weights
    for samples in batches:
        loss, gradient = problem.gradient(weights, samples)
        yield loss
        weights = tuple(one - rate * slope for one, slope in zip(weights, gradient, strict=True))
