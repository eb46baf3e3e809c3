"""Noise of simulated losses, as it was measured on models that train (`python -m eval loss-noise`).

A batch's loss deviates from the trend by an amount that depends on how far the loss has fallen. Fresh batches do so
independently. An epoch of finite data takes each sample once, so that its batches' deviations add up to nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from beamer.errors import InputError, nearest
from beamer.yaml_files import read_json

Floats = NDArray[np.float64]

RECORDED = Path(__file__).parent.parent / "results" / "loss-noise.json"
"""As `python -m eval loss-noise` writes it."""
LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Lower ends of the levels that the noise is measured at: of the trend, relative to the first loss."""
LEVEL, LEVEL_DEVIATION = "level at", "deviation at"
"""Figures of a run, with the lower end behind it."""


@dataclass(frozen=True)
class LossNoise:
    """The noise of a model's losses, one per batch.

    levels, deviations: standard deviation relative to the trend, by its level, which ascends. epoch: batches of an epoch of
    finite data; 0: fresh samples.
    """

    levels: tuple[float, ...]
    deviations: tuple[float, ...]
    epoch: int

    @classmethod
    def of_runs(cls, runs: Iterable[Mapping[str, float]], epoch: int) -> "LossNoise":
        """Return the noise of a model by its figures at several rates and seeds, each of which counts alike."""
        known = list(runs)
        points = []
        for low in LEVELS:
            there = [one for one in known if f"{LEVEL} {low}" in one]
            if there:
                points.append(tuple(fmean(one[f"{key} {low}"] for one in there) for key in (LEVEL, LEVEL_DEVIATION)))
        levels, deviations = zip(*points, strict=True)
        return cls(levels, deviations, epoch)

    def deviation(self, levels: Floats) -> Floats:
        """Return relative standard deviations at levels; beyond those measured, that of the nearest."""
        return np.interp(levels, self.levels, self.deviations)

    def factors(self, levels: Floats, rng: np.random.Generator) -> Floats:
        """Return the losses of consecutive batches relative to their trend: log-normal, of mean 1. levels: of the trend."""
        variances = np.log1p(self.deviation(levels) ** 2)
        return np.asarray(np.exp(np.sqrt(variances) * self._standard(len(levels), rng) - variances / 2))

    def _standard(self, count: int, rng: np.random.Generator) -> Floats:
        """Return deviations of mean 0 and variance 1; those of an epoch add up to 0, as without replacement."""
        if not self.epoch:
            return rng.normal(size=count)
        drawn = rng.normal(size=(-(-count // self.epoch), self.epoch))
        centred = (drawn - drawn.mean(axis=1, keepdims=True)) / np.sqrt(1.0 - 1.0 / self.epoch)
        return np.asarray(centred.ravel()[:count])


def recorded_noise(cell: str, path: Path = RECORDED) -> LossNoise:
    """Read the noise of a model and its data from a results file. Raises `InputError` for a cell that it does not have."""
    document = read_json(path, "the results")
    if cell not in document["runs"]:
        raise InputError(str(path), cell, nearest(cell, document["runs"]))
    config = document["config"]["base"] | document["config"]["cells"][cell]
    return LossNoise.of_runs((run for runs in document["runs"][cell].values() for run in runs), config["epoch"])
