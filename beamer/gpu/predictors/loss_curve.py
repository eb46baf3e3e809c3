"""Loss curves: those of Optimus and SLAQ, fitted to the losses that a job reported, and extrapolated.

Optimus [Peng, Bao, Chen, Wu and Guo 2018, section 3.1]: loss = 1/(b0 k + b1) + b2 after k iterations, b >= 0, by non-negative
least squares, outliers replaced first. SLAQ [Zhang, Stafman, Or and Freedman 2017]: one curve for methods that converge
sublinearly, one for those that converge linearly or faster, recent losses weighing more. How the fits are found is ours: in
units of what was reported (the last iteration, the largest loss), by trying floors or rates on a grid; for each of them the
other parameters are a small non-negative least-squares problem, solved for the whole grid at once. Whatever cannot be fitted
(fewer than three points, no fall) is a constant level.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from beamer.gpu.predictors.estimate import Estimate
from beamer.gpu.predictors.least_squares import inverse_gram, nnls_of_each

Floats = NDArray[np.float64]
Parameters = tuple[float, ...]
T = TypeVar("T")

MOST_POINTS = 64
"""Points that a curve is fitted to; longer histories are thinned out evenly, so that a fit takes as long for any of them."""

FEWEST_POINTS = 3
"""Points below which nothing is fitted: a curve has three parameters."""

LARGEST_LOSS = 1e100
"""Losses beyond this are taken for garbage: their squares would overflow."""

LEAST_RANGE = 1e-9  # of losses, relative to the largest: below it they differ by rounding alone, and nothing falls
SLOPE_STEP = 1e-3  # of the iterations until a crossing: over which the slope there is taken, too short for the curve to bend
FARTHEST_CROSSING = 1e12  # first steps of a search: a curve that has not crossed by then never will
BISECTIONS = 12  # after a search has doubled its step: they leave a 4096th of the last one

SMALLEST_INVERSE = 1e-9  # relative to the inverse of the largest loss: a curve may start above what was seen, not at infinity

# floors that are tried, above (positive) or below the lowest loss, in units of the range of losses
_FLOORS = np.concatenate([[0.2, 0.1, 0.05, 0.02, 0.01, 0.0], -np.geomspace(1e-3, 10.0, 14)])
# exponential rates that are tried, per length of the history: from hardly falling to over within its first few hundredths
_RATES = np.geomspace(0.05, 100.0, 24)
_STEPS = np.linspace(0.0, 1.0, 9)  # of a finer grid between the neighbours of the best point
_REFINEMENTS = 3  # grids in turn, each finer than the last


@dataclass(frozen=True)
class CurveFamily:
    """A family of falling curves over x.

    value: of parameters and x. gradient: by each parameter, a column each, for an array of x.
    """

    name: str
    value: Callable[[Parameters, Any], Any]
    gradient: Callable[[Parameters, Floats], tuple[Floats, ...]]


def _inverse_gradient(p: Parameters, x: Floats) -> tuple[Floats, ...]:
    square = (p[0] * x + p[1] + SMALLEST_INVERSE) ** -2.0
    return -x * square, -square, np.ones_like(x)


def _quadratic(p: Parameters, x: Any) -> Any:
    return 1.0 / ((p[0] * x + p[1]) * x + p[2] + SMALLEST_INVERSE) + p[3]


def _quadratic_gradient(p: Parameters, x: Floats) -> tuple[Floats, ...]:
    square = ((p[0] * x + p[1]) * x + p[2] + SMALLEST_INVERSE) ** -2.0
    return -x * x * square, -x * square, -square, np.ones_like(x)


def _geometric_gradient(p: Parameters, x: Floats) -> tuple[Floats, ...]:
    fall = np.exp(-p[0] * x)
    return -p[1] * x * fall, fall, np.ones_like(x)


INVERSE = CurveFamily("1/(b0 k + b1) + b2", lambda p, x: 1.0 / (p[0] * x + p[1] + SMALLEST_INVERSE) + p[2], _inverse_gradient)
"""Optimus' curve of stochastic gradient descent, which converges as 1/k [Peng et al. 2018, section 3.1]."""

QUADRATIC = CurveFamily("1/(a k^2 + b k + c) + d", _quadratic, _quadratic_gradient)
"""SLAQ's curve of methods that converge sublinearly [Zhang et al. 2017]."""

GEOMETRIC = CurveFamily("mu^(k - b) + c", lambda p, x: p[1] * np.exp(-p[0] * x) + p[2], _geometric_gradient)
"""SLAQ's curve of methods that converge linearly or faster [Zhang et al. 2017], as (rate, amplitude, c): mu = e^-rate."""

LEVEL = CurveFamily("c", lambda p, x: p[0] + 0.0 * x, lambda p, x: (np.ones_like(x),))


@dataclass(frozen=True)
class LossCurve:
    """A fitted curve: loss(k) = base + unit_loss * family(k / unit_iterations).

    parameters, covariance: of the family, in those units. noise: standard deviation of losses around the curve, in unit_loss;
    infinite where there were too few points to tell.
    """

    family: CurveFamily
    parameters: Parameters
    covariance: tuple[Parameters, ...]
    noise: float
    unit_iterations: float = 1.0
    unit_loss: float = 1.0
    base: float = 0.0

    def at(self, iteration: float) -> float:
        """Return the loss after so many iterations."""
        return float(self.base + self.unit_loss * self.family.value(self.parameters, iteration / self.unit_iterations))

    def loss(self, iteration: float) -> Estimate:
        """Return the loss that would be measured after so many iterations."""
        return Estimate(self.at(iteration), self.unit_loss * sqrt(self.noise**2 + self._variance((iteration,), (1.0,))))

    def until_loss(self, loss: float, since: float = 0.0) -> Estimate:
        """Return the iterations after `since` until the loss is reached; infinite, and unknown, if it never is."""
        value = _crossing(lambda k: self.at(since + k) - loss, max(since, self.unit_iterations))
        return self._spread(value, since, (since + value,), (1.0,))

    def until_drop(self, threshold: float, epoch: float, since: float = 0.0) -> Estimate:
        """Return the iterations after `since` until an epoch's drop is below `threshold` of the largest loss.

        threshold: above 0. epoch: iterations.
        """
        mark = threshold * self.unit_loss
        value = _crossing(lambda k: self.at(since + k) - self.at(since + k + epoch) - mark, epoch)
        return self._spread(value, since, (since + value, since + value + epoch), (1.0, -1.0))

    def _spread(self, value: float, since: float, ends: Sequence[float], signs: Sequence[float]) -> Estimate:
        """Return `value` with the deviation that follows from the slope at which it was crossed."""
        if not isfinite(value) or not isfinite(self.noise):
            return Estimate(value, inf)
        step = max(self.unit_iterations, value) * SLOPE_STEP
        there = sum(sign * self.at(end) for sign, end in zip(signs, ends, strict=True))
        after = sum(sign * self.at(end + step) for sign, end in zip(signs, ends, strict=True))
        slope = abs(there - after) / step
        deviation = self.unit_loss * sqrt(self._variance(ends, signs))
        if slope > 0:
            return Estimate(value, deviation / slope)
        return Estimate(value, 0.0 if value == 0 else inf)

    def _variance(self, iterations: Sequence[float], signs: Sequence[float]) -> float:
        """Return the variance, in unit_loss squared, of the signed sum of the curve's values, from that of its parameters."""
        if not isfinite(self.noise):
            return inf
        x = np.asarray(iterations, float) / self.unit_iterations
        with np.errstate(all="ignore"):  # what overflows is unknown
            gradient = np.stack(self.family.gradient(self.parameters, x)) @ np.asarray(signs, float)
            variance = float(gradient @ np.asarray(self.covariance) @ gradient)
        return max(variance, 0.0) if isfinite(variance) else inf


def thinned(reports: Sequence[T], most: int = MOST_POINTS) -> Sequence[T]:
    """Return at most so many of the reports, evenly spread, the first and the last among them."""
    if len(reports) <= most:
        return reports
    last = len(reports) - 1
    return [reports[round(i * last / (most - 1))] for i in range(most)]


def fit_inverse(iterations: Sequence[float], losses: Sequence[float]) -> LossCurve:
    """Fit Optimus' curve to losses, outliers replaced by the mean of their neighbours [Peng et al. 2018, section 3.1]."""
    seen = _Seen.of(iterations, losses, smooth=True)
    if not seen.falls:
        return seen.level()
    weights = np.ones_like(seen.x)
    return seen.curve(INVERSE, _fit_floor(seen, weights, 1), weights)


def fit_weighted(iterations: Sequence[float], losses: Sequence[float], decay: float = 0.9) -> LossCurve:
    """Fit SLAQ's two curves, the recent losses weighing most, and return the one with the smaller error [Zhang et al. 2017].

    SLAQ is given the curve with the optimiser's class; choosing it by the error is ours.
    decay: weight of a point relative to the next one, of those that the history is thinned out to.
    """
    seen = _Seen.of(iterations, losses, smooth=False)
    if not seen.falls:
        return seen.level()
    weights = decay ** np.arange(len(seen.x) - 1, -1, -1.0)
    curves = (
        seen.curve(QUADRATIC, _fit_floor(seen, weights, 2), weights),
        seen.curve(GEOMETRIC, _fit_rate(seen, weights), weights),
    )
    return min(curves, key=lambda curve: _error(curve.family, curve.parameters, seen, weights))


@dataclass(frozen=True)
class _Seen:
    """What is fitted, in units of what was seen: x up to 1, y from at least 0 up to 1."""

    x: Floats
    y: Floats
    unit_iterations: float
    unit_loss: float
    base: float

    @classmethod
    def of(cls, iterations: Sequence[float], losses: Sequence[float], smooth: bool) -> "_Seen":
        x, y = np.asarray(thinned(iterations), float), np.asarray(thinned(losses), float)
        good = np.isfinite(x) & np.isfinite(y) & (x >= 0) & (np.abs(y) < LARGEST_LOSS)
        # a job that went back to a checkpoint reports some iterations twice: the later report counts
        x, index = np.unique(x[good][::-1], return_index=True)
        y = y[good][::-1][index]
        if smooth:
            y = _without_outliers(y)
        base = min(float(y.min(initial=0.0)), 0.0)
        unit_loss = float((y - base).max(initial=0.0)) or 1.0
        unit_iterations = float(x.max(initial=0.0)) or 1.0
        return cls(x / unit_iterations, (y - base) / unit_loss, unit_iterations, unit_loss, base)

    @property
    def falls(self) -> bool:
        """Whether there is anything to fit: enough points, and later losses below the first ones."""
        n = len(self.x)
        return (
            n >= FEWEST_POINTS
            and float(np.ptp(self.y)) > LEAST_RANGE
            and float(self.y[-(n // 3) :].mean()) < float(self.y[: n // 3].mean())
        )

    def level(self) -> LossCurve:
        """Return the curve that stays where the loss is; unknown with too few points."""
        n = len(self.y)
        if n < FEWEST_POINTS:
            value = float(self.y[-1]) if n else nan
            return LossCurve(LEVEL, (value,), ((inf,),), inf, self.unit_iterations, self.unit_loss, self.base)
        noise = float(self.y.std())
        mean = (float(self.y.mean()),)
        return LossCurve(LEVEL, mean, ((noise**2 / n,),), noise, self.unit_iterations, self.unit_loss, self.base)

    def curve(self, family: CurveFamily, parameters: Parameters, weights: Floats) -> LossCurve:
        """Return the curve with the covariance that follows from its residuals."""
        free = float(weights.sum()) ** 2 / float((weights**2).sum()) - len(parameters)
        if free <= 0:
            noise, covariance = inf, np.full((len(parameters),) * 2, inf)
        else:
            noise = sqrt(_error(family, parameters, self, weights) / float(weights.mean()) / (free + len(parameters)))
            noise *= sqrt((free + len(parameters)) / free)
            columns = np.stack(family.gradient(parameters, self.x), 1) * np.sqrt(weights)[:, None]
            covariance = noise**2 * inverse_gram(columns)
        listed = tuple(tuple(map(float, row)) for row in covariance)
        return LossCurve(family, parameters, listed, noise, self.unit_iterations, self.unit_loss, self.base)


def _without_outliers(y: Floats) -> Floats:
    """Replace what lies outside the range of its four neighbours by their mean; the ends, which have them on one side, stay."""
    if len(y) < 5:
        return y
    around = np.stack([y[:-4], y[1:-3], y[3:-1], y[4:]])
    middle = y[2:-2]
    outside = (middle > around.max(0)) | (middle < around.min(0))
    return np.concatenate([y[:2], np.where(outside, around.mean(0), middle), y[-2:]])


def _error(family: CurveFamily, parameters: Parameters, seen: _Seen, weights: Floats) -> float:
    return float((weights * (family.value(parameters, seen.x) - seen.y) ** 2).sum())


def _fit_floor(seen: _Seen, weights: Floats, degree: int) -> Parameters:
    """Return the coefficients, highest power first, and the floor of the polynomial's inverse that is nearest to the losses."""
    powers = np.stack([seen.x**power for power in range(degree, -1, -1)], 1)
    products = (powers[:, :, None] * powers[:, None, :]).reshape(len(powers), -1)
    lowest, spread = float(seen.y.min()), float(np.ptp(seen.y))

    def tried(floors: Floats) -> tuple[Floats, Floats]:
        above = seen.y - floors[:, None]
        target = 1.0 / np.maximum(above, SMALLEST_INVERSE)
        # an error of the inverse counts by what it does to the loss; points below the floor cannot be inverted
        trust = weights * np.where(above > 0, above, 0.0) ** 4
        coefficients = nnls_of_each((trust @ products).reshape(-1, degree + 1, degree + 1), (trust * target) @ powers)
        value = 1.0 / (coefficients @ powers.T + SMALLEST_INVERSE) + floors[:, None]
        return coefficients, ((value - seen.y) ** 2) @ weights

    # a loss that is never negative has no floor below 0
    floors = np.maximum(lowest + spread * _FLOORS, 0.0)
    return _refined(tried, floors)


def _fit_rate(seen: _Seen, weights: Floats) -> Parameters:
    """Return the rate, the amplitude and the floor of the exponential that is nearest to the losses."""

    def tried(rates: Floats) -> tuple[Floats, Floats]:
        design = np.stack([np.exp(-rates[:, None] * seen.x), np.ones((len(rates), len(seen.x)))], 2)
        weighted = design * weights[:, None]
        coefficients = nnls_of_each(weighted.transpose(0, 2, 1) @ design, seen.y @ weighted)
        return coefficients, (((design @ coefficients[:, :, None])[:, :, 0] - seen.y) ** 2) @ weights

    amplitude, floor, rate = _refined(tried, _RATES)
    return rate, amplitude, floor


def _refined(tried: Callable[[Floats], tuple[Floats, Floats]], grid: Floats) -> Parameters:
    """Return the best coefficients and the grid's value they belong to, after finer grids around the best of the one before."""
    for _ in range(_REFINEMENTS):
        coefficients, errors = tried(grid)
        best = int(np.argmin(errors))
        parameters = (*map(float, coefficients[best]), float(grid[best]))
        around = np.sort(grid[max(best - 1, 0) : best + 2])
        if not around[-1] > around[0]:
            break
        grid = around[0] + (around[-1] - around[0]) * _STEPS
    return parameters


def _crossing(above: Callable[[float], float], step: float) -> float:
    """Return where a falling function is no longer above 0, to a thousandth; infinite beyond `FARTHEST_CROSSING` steps."""
    if not above(0.0) > 0:
        return 0.0
    low, high = 0.0, step
    while above(high) > 0:
        low, high = high, 2.0 * high
        if high > FARTHEST_CROSSING * step:
            return inf
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if above(middle) > 0 else (low, middle)
    return high
