"""Means and paired ratios over seeds, with their confidence intervals of `CONFIDENCE`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval of `CONFIDENCE` by Student's t."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Return the interval of independent values, at least two; infinite, or not a number, if one of them is."""
        if not np.isfinite(values).all():
            missing = math.nan if np.isnan(values).any() else math.inf
            return cls(missing, missing)
        spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
        return cls(float(np.mean(values)), float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * spread)

    def __str__(self) -> str:
        return f"{self.mean:.3f} ±{self.half_width:.3f}"


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of paired ratios with its confidence interval, by Student's t on their logarithms.

    Unlike the mean of ratios it does not depend on which of the two is the base.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], base: Sequence[float]) -> "Ratio":
        """Return the ratio of values to those of a base, seed by seed.

        Infinite where a value is; not a number where a base is, or one of both is 0.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.asarray(values, float)) - np.log(np.asarray(base, float))
        if not np.isfinite(logs).all():
            never = math.inf if np.isfinite(base).all() and np.isinf(values).any() else math.nan
            return cls(never, never, never)
        interval = Interval.of(list(map(float, logs)))
        return cls(*(math.exp(interval.mean + sign * interval.half_width) for sign in (0, -1, 1)))

    @property
    def above(self) -> bool:
        """Whether it is above 1 beyond chance."""
        return self.low > 1

    def __str__(self) -> str:
        if not math.isfinite(self.mean):
            return "" if math.isnan(self.mean) else "never ends"
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"
