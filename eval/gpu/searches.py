"""Searches to schedule: configurations of a network with what their losses would be, few of them good.

A configuration's loss goes from its start to its floor along a shape, from 1 down to 0, made up or as accuracies were measured.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.config_section import ConfigSection
from eval.gpu.loss_noise import LossNoise

Floats = NDArray[np.float64]
Shape = Callable[[Floats], Floats]

GRID = np.concatenate([np.linspace(0.0, 1.0, 401), np.geomspace(1.01, 1000.0, 400)])
SMOOTHED = 5  # epochs
CLASSES = 10
GUESS = math.log(CLASSES)  # the cross-entropy of guessing one of so many
ABOVE = 1.03  # a configuration that is not good stays above the target by this factor, noise or not


@dataclass(frozen=True)
class Configuration:
    """One configuration of a search. losses: before the first epoch and after each; epoch_s: how long each takes."""

    kind: str
    losses: tuple[float, ...]
    epoch_s: float

    @property
    def good(self) -> bool:
        """Whether it reaches the target."""
        return self.kind == "good"


class SearchSpace(ConfigSection):
    """What searches are drawn from.

    epochs: of every configuration. target: loss relative to that of guessing. noise, unstable_noise: relative deviations of the
    loss of one that has learned; one that has learned nothing reports the loss of guessing without noise. bad: the share of
    each kind among those that are not good. epoch_s, epoch_spread: median and deviation of the logarithm of an epoch's seconds.
    """

    epochs: int
    target: float
    noise: float
    unstable_noise: float
    bad: dict[str, float]
    epoch_s: float
    epoch_spread: float

    @property
    def target_loss(self) -> float:
        """The loss that good configurations reach."""
        return self.target * GUESS


def exponential(x: Floats) -> Floats:
    """Fall by a constant factor."""
    return np.exp(-x)


def hyperbolic(x: Floats) -> Floats:
    """Fall as the inverse of the time."""
    return 1.0 / (1.0 + x)


SYNTHETIC: tuple[Shape, ...] = (exponential, hyperbolic)


@lru_cache
def measured_shapes(folder: Path) -> tuple[Shape, ...]:
    """Return the shapes of measured accuracies, one per batch size: what is missing to the best, at the share of epochs."""
    return tuple(_measured(path) for path in sorted(folder.glob("validation-*.csv")))


def _measured(path: Path) -> Shape:
    with path.open(newline="") as file:
        metric = np.array([float(row["metric"]) for row in csv.DictReader(file)])
    guess = 1.0 / CLASSES
    # a training loss is the mean over an epoch's batches, and moves less than the accuracy measured after it
    smooth = np.convolve(np.pad(metric, SMOOTHED // 2, "edge"), np.full(SMOOTHED, 1.0 / SMOOTHED), "valid")
    values = np.concatenate([[1.0], np.clip((smooth.max() - smooth) / (smooth.max() - guess), 0.0, 1.0)])
    at = np.linspace(0.0, 1.0, len(values))
    return lambda x: np.interp(x, at, values)


@dataclass(frozen=True)
class BatchReports:
    """Reports that are the loss of a single batch. noise: of such losses. apart: batches from one report to the next."""

    noise: LossNoise
    apart: int

    def reported(self, trend: Floats, rng: np.random.Generator) -> Floats:
        """Return the losses of the batches that are reported. trend: at the reports, from the first loss on."""
        at = np.arange((len(trend) - 1) * self.apart + 1)
        levels = np.interp(at / self.apart, np.arange(len(trend)), trend) / trend[0]
        return np.asarray(trend * self.noise.factors(levels, rng)[:: self.apart])


def draw(
    space: SearchSpace,
    configurations: int,
    good: int,
    shapes: Sequence[Shape],
    seed: int,
    only: str | None = None,
    reports: BatchReports | None = None,
) -> tuple[Configuration, ...]:
    """Return a search's configurations in random order, `good` of them good.

    only: the kind of all others; None: as drawn. reports: how losses are reported; None: with the noise of the space.
    """
    rng = np.random.default_rng(seed)
    kinds = ["good"] * good
    bad = {only: 1.0} if only else space.bad
    names, shares = list(bad), np.array(list(bad.values()))
    kinds += [names[i] for i in rng.choice(len(names), configurations - good, p=shares / shares.sum())]
    return tuple(_configuration(space, kinds[i], shapes, rng, reports) for i in rng.permutation(configurations))


def _configuration(
    space: SearchSpace, kind: str, shapes: Sequence[Shape], rng: np.random.Generator, reports: BatchReports | None
) -> Configuration:
    shape = shapes[int(rng.integers(len(shapes)))]
    start = GUESS * rng.uniform(0.95, 1.15)
    epochs = np.arange(space.epochs + 1.0)
    losses = KINDS[kind](space, shape, start, epochs, rng)
    if reports is None or kind == "unstable":
        noise = space.unstable_noise if kind == "unstable" else space.noise
        learned = 1.0 - losses / start
        losses = losses * np.exp(rng.normal(0.0, noise, len(losses)) * learned)
    else:
        losses = reports.reported(losses, rng)
    if kind != "good":
        losses = np.maximum(losses, space.target_loss * ABOVE)
    elif losses.min() > space.target_loss:
        losses[-1] = space.target_loss
    epoch_s = space.epoch_s * math.exp(rng.normal(0.0, space.epoch_spread))
    return Configuration(kind, tuple(map(float, losses)), float(epoch_s))


def _falling(space: SearchSpace, shape: Shape, start: float, floor: float, reaches: float, epochs: Floats) -> Floats:
    """Return losses from `start` towards `floor` that pass the target after `reaches` epochs."""
    mark = (space.target_loss - floor) / (start - floor)
    passed = float(GRID[np.argmax(shape(GRID) <= mark)])
    return floor + (start - floor) * shape(epochs / reaches * passed)


def _good(space: SearchSpace, shape: Shape, start: float, epochs: Floats, rng: np.random.Generator) -> Floats:
    floor = space.target_loss * rng.uniform(0.3, 0.85)
    return _falling(space, shape, start, floor, space.epochs * rng.uniform(0.4, 0.9), epochs)


def _slow(space: SearchSpace, shape: Shape, start: float, epochs: Floats, rng: np.random.Generator) -> Floats:
    floor = space.target_loss * rng.uniform(0.3, 0.85)
    return _falling(space, shape, start, floor, space.epochs * rng.uniform(1.5, 5.0), epochs)


def _plateau(space: SearchSpace, shape: Shape, start: float, epochs: Floats, rng: np.random.Generator) -> Floats:
    floor = space.target_loss * rng.uniform(1.1, 2.5)
    return floor + (start - floor) * exponential(epochs / (space.epochs * rng.uniform(0.03, 0.15)))


def _flat(space: SearchSpace, shape: Shape, start: float, epochs: Floats, rng: np.random.Generator) -> Floats:
    return start * (1.0 - 0.02 * epochs / space.epochs)


def _diverging(space: SearchSpace, shape: Shape, start: float, epochs: Floats, rng: np.random.Generator) -> Floats:
    losses = _plateau(space, shape, start, epochs, rng)
    losses[int(space.epochs * rng.uniform(0.05, 0.6)) :] = math.nan
    return losses


KINDS: Mapping[str, Callable[[SearchSpace, Shape, float, Floats, np.random.Generator], Floats]] = {
    "good": _good,
    "slow": _slow,
    "plateau": _plateau,
    "flat": _flat,
    "diverging": _diverging,
    "unstable": _slow,
}
