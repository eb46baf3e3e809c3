"""How far a job has come on its way to convergence, as a Beta distribution: the progress model of ONES.

[Bian, Li, Wang and You 2021, and their artifact, re-written] The share `rho` of its work that a job has done is taken as
Beta(alpha, beta): alpha, the epochs it has processed; beta, 1 plus the output of a perceptron with one hidden layer of
`HIDDEN_UNITS` for five features of the job. It is trained on the negative log-likelihood of the shares of jobs that have ended.
Learning rate, steps, weight decay and the standardisation of the features are ours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # type: ignore[import-untyped]  # SciPy loads scipy.special at its first use, as that takes a while.

from beamer.gpu.arrays import Floats
from beamer.gpu.ties import comparable

HIDDEN_UNITS = 64  # The artifact has so many hidden units.
# The artifact's features are log of the epoch's samples, first loss, epochs processed, relative drop of the loss, accuracy.
FEATURES = 5
TRAINING_STEPS = 200  # The number of full-batch steps bounds the time of a training.
LEARNING_RATE = 0.01  # Adam's learning rate is ten times its authors', as a training has few steps.
# Adam's decay rates and epsilon are those of Kingma and Ba 2015, "Adam: a method for stochastic optimization", Algorithm 1. The
# weight of a new value is written out: in floating point 1 - 0.9 is not 0.1, and the last digit of a model would be another.
MEAN_DECAY, MEAN_NEW = 0.9, 0.1  # per step, for the mean of gradients: beta_1 and 1 - beta_1
SQUARE_DECAY, SQUARE_NEW = 0.999, 1e-3  # per step, for the mean of squared gradients: beta_2 and 1 - beta_2
ADAM_EPSILON = 1e-8  # This is added to the root of that mean and keeps a step finite where gradients vanish.
# The decay per step, relative to the learning rate, is strong against overfitting to the few jobs of an online training.
WEIGHT_DECAY = 0.5
MIN_EPOCHS = 1.0  # Alpha is at least so large: without evidence every share would be as likely as none.
SHARE_MARGIN = 1e-3  # Shares keep this distance from 0 and 1, which have no density.
MAX_FEATURE = 1e4  # A reported value beyond this is taken to be wrong.
MAX_FIGURE = 1e18  # Reported values are bounded before features are made of them, so that their ratios stay finite.
MIN_FIRST_LOSS = 1e-9  # A first loss nearer to 0 counts as 1: no drop can be relative to it.
MIN_DEVIATION = 1e-6  # A feature is divided by its deviation, and one that is the same for all samples has none.
MIN_TOTAL_EPOCHS = 1e-9  # This keeps the share of a job without a total finite.
# The tried values go from almost done to a thousand epochs left, 3 % apart.
CONSTANT_BETAS = 1.0 + np.geomspace(1e-2, 1e3, 400)
# A new model's last weights have this deviation, relative to He's: it says about the same of all jobs at first.
OUTPUT_WEIGHTS = 0.1


@dataclass(frozen=True)
class ProgressSample:
    """A job's progress at one time.

    size: samples of an epoch. first_loss, loss, accuracy: first and last reported. epochs: processed until then.
    total: epochs that it had processed when it ended; 0 where it has not.
    """

    size: float
    first_loss: float
    loss: float
    accuracy: float
    epochs: float
    total: float = 0.0


@dataclass(frozen=True)
class BetaModel:
    """A trained perceptron, as plain numbers.

    centre, scale: by which its inputs are standardised. hidden: its first layer's weights, row by row of `HIDDEN_UNITS`; bias:
    of the first layer. out, out_bias: the second layer's. samples: how many it was trained on.
    """

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    hidden: tuple[float, ...]
    bias: tuple[float, ...]
    out: tuple[float, ...]
    out_bias: float
    samples: int

    def beta(self, figures: Floats) -> Floats:
        """Return beta for each row of `figures`."""
        inputs = (figures - np.array(self.centre)) / np.array(self.scale)
        layer = np.maximum(inputs @ np.array(self.hidden).reshape(HIDDEN_UNITS, FEATURES).T + np.array(self.bias), 0.0)
        return np.asarray(1.0 + np.maximum(layer @ np.array(self.out) + self.out_bias, 0.0))


def features_of(samples: Iterable[ProgressSample]) -> Floats:
    """Return the perceptron's inputs, a row of `FEATURES` for each sample; not a number becomes zero."""
    rows = np.array([(s.size, s.first_loss, s.epochs, s.loss, s.accuracy) for s in samples], np.float64).reshape(-1, FEATURES)
    size, first, epochs, loss, accuracy = np.clip(
        np.nan_to_num(rows, posinf=MAX_FEATURE, neginf=-MAX_FEATURE), -MAX_FIGURE, MAX_FIGURE
    ).T
    drop = 1.0 - loss / np.where(np.abs(first) < MIN_FIRST_LOSS, 1.0, first)
    columns = (np.log(np.maximum(size, 1.0)), first, epochs, drop, accuracy)
    return np.asarray(np.clip(np.stack(columns, axis=1), -MAX_FEATURE, MAX_FEATURE))


def alpha_from_epochs(epochs: Floats) -> Floats:
    """Return alpha of jobs that have processed so many epochs."""
    return np.asarray(np.maximum(epochs, MIN_EPOCHS))


def prior_beta(remaining_epochs: Floats) -> Floats:
    """Return beta of jobs of which nothing was learnt: as if each ended after the epochs it was submitted for (ours)."""
    return np.asarray(1.0 + np.maximum(remaining_epochs, 0.0))


def constant(samples: Sequence[ProgressSample]) -> float:
    """Return the one beta under which the samples' shares are likeliest."""
    alpha, rho = _known(samples)
    return float(CONSTANT_BETAS[comparable(_log_density(alpha, CONSTANT_BETAS[:, None], rho).mean(axis=1)).argmax()])


def fit(
    samples: Sequence[ProgressSample], rng: np.random.Generator, start: BetaModel | None = None, steps: int = TRAINING_STEPS
) -> BetaModel:
    """Train a perceptron on jobs that have ended: full batches, Adam with decoupled weight decay, equal for equal arguments.

    start: an earlier one that is trained further; its standardisation stays.
    """
    figures = features_of(samples)
    alpha, rho = _known(samples)
    scale = np.maximum(figures.std(axis=0), MIN_DEVIATION)
    model = start or _untrained(rng, figures.mean(axis=0), scale, constant(samples) - 1.0)
    inputs = (figures - np.array(model.centre)) / np.array(model.scale)
    layers = [
        np.array(model.hidden).reshape(HIDDEN_UNITS, FEATURES),
        np.array(model.bias),
        np.array(model.out),
        np.array([model.out_bias]),
    ]
    first = [np.zeros_like(layer) for layer in layers]
    second = [np.zeros_like(layer) for layer in layers]
    for step in range(1, steps + 1):
        gradient = _gradient(inputs, alpha, rho, *layers)
        for layer, mean, square, slope in zip(layers, first, second, gradient, strict=True):
            mean += MEAN_NEW * (slope - mean)
            square += SQUARE_NEW * (slope * slope - square)
            move = mean / (1 - MEAN_DECAY**step) / (np.sqrt(square / (1 - SQUARE_DECAY**step)) + ADAM_EPSILON)
            layer -= LEARNING_RATE * (move + WEIGHT_DECAY * layer)
    # Training amplifies the last bits of its sums, and the next training must start from the same bits everywhere.
    hidden, bias, out, out_bias = (tuple(layer.astype(np.float32).ravel().tolist()) for layer in layers)
    return BetaModel(model.centre, model.scale, hidden, bias, out, out_bias[0], len(samples))


def _untrained(rng: np.random.Generator, centre: Floats, scale: Floats, out_bias: float) -> BetaModel:
    """Return a model to begin with: weights as He, Zhang, Ren and Sun 2015 draw them for rectifiers."""
    return BetaModel(
        tuple(centre.tolist()),
        tuple(scale.tolist()),
        tuple((rng.standard_normal(HIDDEN_UNITS * FEATURES) * (2.0 / FEATURES) ** 0.5).tolist()),
        (0.0,) * HIDDEN_UNITS,
        tuple((rng.standard_normal(HIDDEN_UNITS) * OUTPUT_WEIGHTS * (2.0 / HIDDEN_UNITS) ** 0.5).tolist()),
        out_bias,
        0,
    )


def _known(samples: Sequence[ProgressSample]) -> tuple[Floats, Floats]:
    rows = np.array([(sample.epochs, sample.total) for sample in samples], np.float64).reshape(-1, 2)
    epochs, total = np.nan_to_num(rows, posinf=MAX_FEATURE, neginf=0.0).T
    return alpha_from_epochs(epochs), np.clip(epochs / np.maximum(total, MIN_TOTAL_EPOCHS), SHARE_MARGIN, 1.0 - SHARE_MARGIN)


def _log_density(alpha: Floats, beta: Floats, rho: Floats) -> Floats:
    return np.asarray((alpha - 1.0) * np.log(rho) + (beta - 1.0) * np.log1p(-rho) - scipy.special.betaln(alpha, beta))


def _gradient(
    inputs: Floats, alpha: Floats, rho: Floats, hidden: Floats, bias: Floats, out: Floats, out_bias: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the slopes of the mean negative log-likelihood along each layer."""
    before = inputs @ hidden.T + bias
    layer = np.maximum(before, 0.0)
    raw = layer @ out + out_bias[0]
    beta = 1.0 + np.maximum(raw, 0.0)
    slope = -(np.log1p(-rho) + scipy.special.psi(alpha + beta) - scipy.special.psi(beta)) / len(rho)
    # Below zero the rectifier has no slope; a slope that would raise beta is let through, or beta could never be learnt again.
    slope = np.where((raw > 0.0) | (slope < 0.0), slope, 0.0)
    back = np.outer(slope, out) * (before > 0.0)
    return back.T @ inputs, back.sum(axis=0), layer.T @ slope, np.array([slope.sum()])
