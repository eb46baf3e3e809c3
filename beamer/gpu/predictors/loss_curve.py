"""Loss curves: those of Optimus and SLAQ, fitted to the losses that a job reported, and extrapolated.

Optimus [Peng, Bao, Chen, Wu and Guo 2018, section 3.1]: loss = 1/(b0 k + b1) + b2 after k iterations, b >= 0, by non-negative
least squares, outliers replaced first. SLAQ [Zhang, Stafman, Or and Freedman 2017]: one curve for methods that converge
sublinearly, one for those that converge linearly or faster, recent losses weighing more. How the fits are found is ours: in
units of what was reported (the last iteration, the largest loss), by trying floors or rates on a grid; for each of them the
other parameters are a small non-negative least-squares problem, solved for the whole grid, and for all histories of one length,
at once. Whatever cannot be fitted (fewer than three points, no fall) is a constant level.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from beamer.gpu.arrays import Floats
from beamer.gpu.predictors.least_squares import inverse_grams, nnls_of_each
from beamer.gpu.ties import comparable_errors

Parameters = tuple[float, ...]
T = TypeVar("T")

History = tuple[Sequence[float], Sequence[float]]
"""Iterations, and the loss after each."""

MAX_POINTS = 64
"""Points that a curve is fitted to; longer histories are thinned out evenly, so that a fit takes as long for any of them."""

MIN_POINTS = 3
"""Points below which nothing is fitted: a curve has three parameters."""

MAX_LOSS = 1e100
"""Losses beyond this are not fitted: their squares would overflow."""

MIN_RANGE = 1e-9  # Losses in a smaller range, relative to the largest, differ by rounding alone: nothing falls.
# The slope at a crossing is taken over this share of the iterations until it, too short for the curve to bend.
SLOPE_STEP = 1e-3
FARTHEST_CROSSING = 1e12  # A curve that has not crossed within so many first steps of a search never will.
BISECTIONS = 12  # After a search has doubled its step, the bisections leave a 4096th of the last one.

# Relative to the inverse of the largest loss, this lets a curve start above what was seen, but not at infinity.
MIN_INVERSE = 1e-9

RANGES_BELOW = 10.0  # A floor may be so many ranges of the losses below the lowest loss.
# The tried floors lie above (positive) or below the lowest loss, in units of the range of losses.
_FLOORS = np.concatenate([[0.2, 0.1, 0.05, 0.02, 0.01, 0.0], -np.geomspace(1e-3, RANGES_BELOW, 14)])
# The tried exponential rates, per length of the history, go from hardly falling to over within its first few hundredths.
_RATES = np.geomspace(0.05, 100.0, 24)
_STEPS = np.linspace(0.0, 1.0, 9)  # A finer grid has these points between the neighbours of the best point.
_REFINEMENTS = 3  # So many grids are tried in turn, each finer than the last.
_FITTED_AT_ONCE = 64  # So many histories keep NumPy's calls cheap beside the arithmetic, and still stay in the cache.


@dataclass(frozen=True)
class Estimate:
    """A predicted value with its standard deviation, infinite where nothing that was measured supports the value."""

    value: float
    deviation: float

    @property
    def known(self) -> bool:
        """Whether anything that was measured supports the value."""
        return self.deviation < inf


@dataclass(frozen=True)
class CurveFamily:
    """A family of falling curves over x.

    value: of parameters and x. gradient: by each parameter, a column each, for an array of x.
    """

    name: str
    value: Callable[[Parameters, Any], Any]
    gradient: Callable[[Parameters, Floats], tuple[Floats, ...]]


def _inverse_gradient(p: Parameters, x: Floats) -> tuple[Floats, ...]:
    square = (p[0] * x + p[1] + MIN_INVERSE) ** -2.0
    return -x * square, -square, np.ones_like(x)


def _quadratic(p: Parameters, x: Any) -> Any:
    return 1.0 / ((p[0] * x + p[1]) * x + p[2] + MIN_INVERSE) + p[3]


def _quadratic_gradient(p: Parameters, x: Floats) -> tuple[Floats, ...]:
    square = ((p[0] * x + p[1]) * x + p[2] + MIN_INVERSE) ** -2.0
    return -x * x * square, -x * square, -square, np.ones_like(x)


def _geometric_gradient(p: Parameters, x: Floats) -> tuple[Floats, ...]:
    fall = np.exp(-p[0] * x)
    return -p[1] * x * fall, fall, np.ones_like(x)


INVERSE = CurveFamily("1/(b0 k + b1) + b2", lambda p, x: 1.0 / (p[0] * x + p[1] + MIN_INVERSE) + p[2], _inverse_gradient)
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
        value = self.reaches(loss, since)
        return self._spread(value, since, (since + value,), (1.0,))

    def reaches(self, loss: float, since: float = 0.0) -> float:
        """Return the value of `until_loss` without its deviation, which takes as long again."""
        return _crossing(lambda k: self.at(since + k) - loss, max(since, self.unit_iterations))

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
        with np.errstate(all="ignore"):  # A value that overflows is unknown.
            gradient = np.stack(self.family.gradient(self.parameters, x)) @ np.asarray(signs, float)
            variance = float(gradient @ np.asarray(self.covariance) @ gradient)
        return max(variance, 0.0) if isfinite(variance) else inf


def thinned(reports: Sequence[T], most: int = MAX_POINTS) -> Sequence[T]:
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
    batch = _Batch.of([seen], np.ones_like(seen.x))
    return batch.curves(INVERSE, _fit_floor(batch, 1))[0]


def fit_weighted(iterations: Sequence[float], losses: Sequence[float], decay: float = 0.9) -> LossCurve:
    """Fit SLAQ's two curves to one history, as `fit_weighted_of_each` does."""
    return fit_weighted_of_each([(iterations, losses)], decay)[0]


def fit_weighted_of_each(histories: Sequence[History], decay: float = 0.9) -> list[LossCurve]:
    """Fit SLAQ's two curves to each history and return the one with the smaller error, by history [Zhang et al. 2017].

    The recent losses weigh most. SLAQ is given the curve with the optimiser's class; choosing it by the error is ours. A curve
    does not depend on the histories that it is fitted together with.
    decay: weight of a point relative to the next one, of those that the history is thinned out to.
    """
    every = [_Seen.of(iterations, losses, smooth=False) for iterations, losses in histories]
    curves: dict[int, LossCurve] = {}
    by_length: dict[int, list[int]] = {}
    for i, seen in enumerate(every):
        if seen.falls:
            by_length.setdefault(len(seen.x), []).append(i)
        else:
            curves[i] = seen.level()
    for points, indices in by_length.items():
        weights = decay ** np.arange(points - 1, -1, -1.0)
        for first in range(0, len(indices), _FITTED_AT_ONCE):
            chosen = indices[first : first + _FITTED_AT_ONCE]
            batch = _Batch.of([every[i] for i in chosen], weights)
            curves |= zip(chosen, batch.better((QUADRATIC, _fit_floor(batch, 2)), (GEOMETRIC, _fit_rate(batch))), strict=True)
    return [curves[i] for i in range(len(every))]


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
        good = np.isfinite(x) & np.isfinite(y) & (x >= 0) & (np.abs(y) < MAX_LOSS)
        # A job that went back to a checkpoint reports some iterations twice: the later report counts.
        x, index = np.unique(x[good][::-1], return_index=True)
        y = y[good][::-1][index]
        if smooth:
            y = _without_outliers(y)
        least = float(y.min(initial=0.0))
        base = least - RANGES_BELOW * float(np.ptp(y)) if least < 0 else 0.0
        unit_loss = float((y - base).max(initial=0.0)) or 1.0
        unit_iterations = float(x.max(initial=0.0)) or 1.0
        return cls(x / unit_iterations, (y - base) / unit_loss, unit_iterations, unit_loss, base)

    @property
    def falls(self) -> bool:
        """Whether there is anything to fit: enough points, and later losses below the first ones."""
        n = len(self.x)
        return (
            n >= MIN_POINTS
            and float(np.ptp(self.y)) > MIN_RANGE
            and float(self.y[-(n // 3) :].mean()) < float(self.y[: n // 3].mean())
        )

    def level(self) -> LossCurve:
        """Return the curve that stays where the loss is; unknown with too few points."""
        n = len(self.y)
        if n < MIN_POINTS:
            value = float(self.y[-1]) if n else nan
            return LossCurve(LEVEL, (value,), ((inf,),), inf, self.unit_iterations, self.unit_loss, self.base)
        noise = float(self.y.std())
        mean = (float(self.y.mean()),)
        return LossCurve(LEVEL, mean, ((noise**2 / n,),), noise, self.unit_iterations, self.unit_loss, self.base)


@dataclass(frozen=True)
class _Batch:
    """Histories of one length that fall: x, y by history and point; weights by point. Parameters have a row per history."""

    seen: Sequence[_Seen]
    x: Floats
    y: Floats
    weights: Floats

    @classmethod
    def of(cls, seen: Sequence[_Seen], weights: Floats) -> "_Batch":
        return cls(seen, np.stack([one.x for one in seen]), np.stack([one.y for one in seen]), weights)

    def rows(self, chosen: NDArray[np.intp]) -> "_Batch":
        """Return some of the histories."""
        return _Batch([self.seen[i] for i in chosen.tolist()], self.x[chosen], self.y[chosen], self.weights)

    def error(self, family: CurveFamily, parameters: Floats) -> Floats:
        """Return the weighted sum of squared residuals of each."""
        value = family.value(tuple(parameters.T[:, :, None]), self.x)
        return np.asarray((self.weights * (value - self.y) ** 2).sum(1))

    def better(self, one: tuple[CurveFamily, Floats], other: tuple[CurveFamily, Floats]) -> list[LossCurve]:
        """Return the curve of each of two families and their parameters that has the smaller error, `one` of equals."""
        is_other = comparable_errors(self.error(*other)) < comparable_errors(self.error(*one))
        found: dict[int, LossCurve] = {}
        for (family, parameters), is_better in ((one, ~is_other), (other, is_other)):
            chosen = np.nonzero(is_better)[0]
            if len(chosen):
                found |= zip(chosen.tolist(), self.rows(chosen).curves(family, parameters[chosen]), strict=True)
        return [found[i] for i in range(len(self.seen))]

    def curves(self, family: CurveFamily, parameters: Floats) -> list[LossCurve]:
        """Return the curves with the covariances that follow from their residuals."""
        unknowns = parameters.shape[1]
        free = float(self.weights.sum()) ** 2 / float((self.weights**2).sum()) - unknowns
        if free <= 0:
            noise, covariance = np.full(len(self.seen), inf), np.full((len(self.seen), unknowns, unknowns), inf)
        else:
            noise = np.sqrt(self.error(family, parameters) / float(self.weights.mean()) / (free + unknowns))
            noise *= sqrt((free + unknowns) / free)
            gradient = family.gradient(tuple(parameters.T[:, :, None]), self.x)
            columns = np.stack(gradient, 2) * np.sqrt(self.weights)[:, None]
            covariance = (noise**2)[:, None, None] * inverse_grams(columns)
        return [
            LossCurve(family, tuple(values), tuple(map(tuple, square)), deviation, one.unit_iterations, one.unit_loss, one.base)
            for one, values, square, deviation in zip(
                self.seen, parameters.tolist(), covariance.tolist(), noise.tolist(), strict=True
            )
        ]


def _without_outliers(y: Floats) -> Floats:
    """Replace what lies outside the range of its four neighbours by their mean; the ends, which have them on one side, stay."""
    if len(y) < 5:
        return y
    around = np.stack([y[:-4], y[1:-3], y[3:-1], y[4:]])
    middle = y[2:-2]
    outside = (middle > around.max(0)) | (middle < around.min(0))
    return np.concatenate([y[:2], np.where(outside, around.mean(0), middle), y[-2:]])


def _fit_floor(batch: _Batch, degree: int) -> Floats:
    """Return the coefficients, highest power first, and the floor of the polynomial's inverse that is nearest to the losses."""
    powers = np.stack([batch.x**power for power in range(degree, -1, -1)], 2)
    products = (powers[:, :, :, None] * powers[:, :, None, :]).reshape(*powers.shape[:2], -1)
    losses = batch.y[:, None, :]

    def tried(floors: Floats) -> tuple[Floats, Floats]:
        above = losses - floors[:, :, None]
        target = 1.0 / np.maximum(above, MIN_INVERSE)
        # An error of the inverse counts by its effect on the loss; points below the floor cannot be inverted.
        trust = batch.weights * np.where(above > 0, above, 0.0) ** 4
        gram, moment = trust @ products, (trust * target) @ powers
        solved = nnls_of_each(gram.reshape(-1, degree + 1, degree + 1), moment.reshape(-1, degree + 1))
        coefficients = solved.reshape(moment.shape)
        value = 1.0 / (coefficients @ powers.transpose(0, 2, 1) + MIN_INVERSE) + floors[:, :, None]
        return coefficients, ((value - losses) ** 2) @ batch.weights

    # A loss that was never negative has no floor below 0.
    floors = np.maximum(batch.y.min(1)[:, None] + np.ptp(batch.y, axis=1)[:, None] * _FLOORS, 0.0)
    return _refined(tried, floors)


def _fit_rate(batch: _Batch) -> Floats:
    """Return the rate, the amplitude and the floor of the exponential that is nearest to the losses."""

    def tried(rates: Floats) -> tuple[Floats, Floats]:
        falls = np.exp(-rates[:, :, None] * batch.x[:, None, :])
        design = np.stack([falls, np.ones_like(falls)], 3)
        weighted = design * batch.weights[:, None]
        gram = weighted.transpose(0, 1, 3, 2) @ design
        moment = (batch.y[:, None, None, :] @ weighted)[:, :, 0]
        coefficients = nnls_of_each(gram.reshape(-1, 2, 2), moment.reshape(-1, 2)).reshape(moment.shape)
        value = (design @ coefficients[:, :, :, None])[:, :, :, 0]
        return coefficients, ((value - batch.y[:, None, :]) ** 2) @ batch.weights

    found = _refined(tried, np.broadcast_to(_RATES, (len(batch.x), len(_RATES))))
    return np.roll(found, 1, axis=1)  # The rate comes first.


def _refined(tried: Callable[[Floats], tuple[Floats, Floats]], grid: Floats) -> Floats:
    """Return the best coefficients and the grid's value they belong to, after finer grids around the best of the one before.

    grid: values to try, a row per history. A row of the result: the coefficients, then the value.
    """
    rows = np.arange(len(grid))
    for _ in range(_REFINEMENTS):
        coefficients, errors = tried(grid)
        best = comparable_errors(errors).argmin(1)
        found = np.column_stack((coefficients[rows, best], grid[rows, best]))
        around = np.stack([grid[rows, np.clip(best + step, 0, grid.shape[1] - 1)] for step in (-1, 0, 1)], 1)
        low, high = around.min(1)[:, None], around.max(1)[:, None]
        grid = low + (high - low) * _STEPS
    return found


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
