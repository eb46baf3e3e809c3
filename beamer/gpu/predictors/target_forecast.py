"""Forecasts for the jobs of a search: the probability that a job reaches the search's target, and after how many iterations.

The rule is ours, the curves are published. A loss curve falls ever more slowly, so that a job which would miss its target even
if its loss kept falling at its mean exponential rate so far, or along a line at its recent slope, will not reach it: few
reports rule such jobs out. For the others two curves are extrapolated, SLAQ's, which have a floor [Zhang, Stafman, Or and
Freedman 2017], and a power law, which has none; the more optimistic one counts, as its errors soon show.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from statistics import median
from typing import NamedTuple

from beamer.gpu.model import Job, Report
from beamer.gpu.predictors.batch_cache import BatchCache
from beamer.gpu.predictors.loss_curve import LossCurve, fit_weighted_of_each, thinned
from beamer.gpu.predictors.loss_trend import has_diverged, recent_trend

MIN_PROBABILITY = 1e-3  # A job that is ruled out has a probability above 0, so that such jobs still rank among each other.
DIVERGED_PROBABILITY = 1e-6  # A job that has diverged is less likely to reach its target than any that is ruled out.
MAX_PROBABILITY = 0.98  # No job has a higher probability, as no extrapolation is certain.
REPORTS_TO_FIT = 5  # Curves are extrapolated from so many reports on; with fewer they fit everything.
PROBABILITY_BEFORE_FIT = 0.5  # A job with fewer reports that is not ruled out has at least this probability.
JUDGED_S = 1.0  # So does one whose losses are too noisy to tell a fall, in its first seconds of service.
SLOPE_ERRORS = (4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.0)
"""A slope may be so many standard errors steeper than measured before a job is ruled out, with 2, 3, ... degrees of freedom and
with 11 or more: 97.5 % of Student's distribution, as the error of few reports is unsure itself."""
DECAY = 0.8  # In the power law, a loss has this weight relative to the next one, as the exponent changes as training goes on.
POINTS_TO_FIT = 3  # A power law is fitted from so many losses on: a line through two leaves no residual.
# The residual has at least so many degrees of freedom: by their weights many losses may count as hardly more than two.
MIN_DEGREES = 0.5
MAX_LOG_ITERATIONS = 50.0  # No job reaches a target beyond e^50 iterations, and the power of e stays finite.
MIN_DEVIATION = 1e-12  # The least deviation of an extrapolated loss keeps its distance to the target, in deviations, finite.
MIN_LOG_DEVIATION = 1e-9  # The least deviation of a loss's logarithm does the same.
MIN_WEIGHT = 1e-12  # The least probability of all curves together keeps their mean finite where all rule the target out.
MIN_ITERATIONS = 1e-9  # A job that has not reached the target has at least so many iterations left.
MAX_REMEMBERED = 1 << 16  # The number of forecasts is several times the jobs of the largest cluster that is benchmarked.
# A job without a known end runs so many times longer; this is generous, as jobs ruled out are never tried again.
ASSUMED_TIMES_DONE = 100.0
RECENT_PART, MIN_RECENT = 3, 4  # The recent slope is that of the last third of the reports, but of at least four.


@dataclass(frozen=True)
class TargetForecast:
    """probability: of reaching the target within the job's iterations. iterations_left: until then, if it does."""

    probability: float
    iterations_left: float


class _Judged(NamedTuple):
    """What a forecast follows from.

    end: iterations after which the job ends. noisy_slope: the lowest that its losses may have, where they are too noisy yet to
    tell one; otherwise None. The rest as in `forecasts`.
    """

    iterations: tuple[float, ...]
    losses: tuple[float, ...]
    target: float
    end: float
    least_reports: int
    prior: float
    noisy_slope: float | None

    @property
    def left(self) -> float:
        """Iterations that the job has left."""
        return max(self.end - self.iterations[-1], 1.0)


def forecasts(jobs: Sequence[Job], least_reports: int, prior: float) -> dict[str, TargetForecast]:
    """Return the forecasts of jobs by key; one that has no target ends after its iterations.

    A job whose end is not known is taken to run on for `ASSUMED_TIMES_DONE` times what it has done.

    least_reports: the initial one included, before a job is judged; prior: its probability until then.
    """
    found: dict[str, TargetForecast] = {}
    to_judge: dict[str, _Judged] = {}
    for job in jobs:
        one = _stated(job, least_reports, prior)
        if isinstance(one, TargetForecast):
            found[job.key] = one
        else:
            to_judge[job.key] = one
    return found | dict(zip(to_judge, _JUDGED(list(to_judge.values())), strict=True))


def judged_reports(job: Job) -> Sequence[Report]:
    """Return the reports by which a job with a target is judged: where that is an accuracy, those that have one."""
    if job.request.target_loss is not None:
        return job.reports
    return [report for report in job.reports if report.accuracy is not None]


def _stated(job: Job, least_reports: int, prior: float) -> "TargetForecast | _Judged":
    """Return a job's forecast, or what it follows from where its losses have to be judged."""
    request = job.request
    end = float(request.iterations) if request.known_end else ASSUMED_TIMES_DONE * max(job.done, float(request.epoch))
    remaining = max(end - job.done, 0.0)
    if request.target_loss is None and request.target_accuracy is None:
        return TargetForecast(1.0, remaining)
    reports = thinned(judged_reports(job))
    if request.target_loss is not None:
        if has_diverged(job):
            return TargetForecast(DIVERGED_PROBABILITY, remaining)
        target = request.target_loss
        losses = tuple([report.loss for report in reports])
    else:  # The accuracy missing to 1 serves as the loss.
        target = 1.0 - (request.target_accuracy or 0.0)
        losses = tuple([1.0 - (report.accuracy or 0.0) for report in reports])
    if not losses:
        return TargetForecast(prior, remaining)
    if not math.isfinite(losses[-1]):
        return TargetForecast(MIN_PROBABILITY, remaining)
    if losses[-1] <= target:
        return TargetForecast(MIN_PROBABILITY, remaining)  # The job has reached the target, and nothing more is to be gained.
    trend = recent_trend(job, REPORTS_TO_FIT, JUDGED_S) if request.target_loss is not None else None
    slope = None if trend is None or trend.is_judged else -trend.bound(0.0, has_gpus=False) / trend.iterations
    return _Judged(tuple([report.iteration for report in reports]), losses, target, end, least_reports, prior, slope)


def _judge(every: Sequence[_Judged]) -> list[TargetForecast]:
    """Return the forecast of each, the curves of all of them fitted together."""
    found = [_without_curves(one) for one in every]
    to_fit = [i for i, known in enumerate(found) if known is None]
    fitted = fit_weighted_of_each([(every[i].iterations, every[i].losses) for i in to_fit])
    for i, curve in zip(to_fit, fitted, strict=True):
        found[i] = _by_curves(every[i], curve)
    return [one for one in found if one]


def _without_curves(one: _Judged) -> TargetForecast | None:
    """Return the forecast of a job that is ruled out, or that has reported too little to extrapolate; None of any other."""
    if len(one.losses) < one.least_reports:
        return TargetForecast(one.prior, one.left)
    before_fit = TargetForecast(max(one.prior, PROBABILITY_BEFORE_FIT), one.left)
    if one.noisy_slope is not None:
        lowest = median(one.losses[-REPORTS_TO_FIT:]) + one.noisy_slope * one.left
        return TargetForecast(MIN_PROBABILITY, one.left) if lowest > one.target else before_fit
    history = one.iterations, one.losses, one.end
    if _at_mean_rate(*history) > one.target or _at_recent_slope(*history) > one.target:
        return TargetForecast(MIN_PROBABILITY, one.left)
    return before_fit if len(one.losses) < REPORTS_TO_FIT else None


def _by_curves(one: _Judged, fitted: LossCurve) -> TargetForecast:
    curves = (_by_curve(one, fitted), _by_power_law(one.iterations, one.losses, one.target, one.end))
    probability = max(curve.probability for curve in curves)
    # The mean of both is weighed by their probabilities.
    total = max(sum(curve.probability for curve in curves), MIN_WEIGHT)
    until = sum(curve.probability * curve.iterations_left for curve in curves) / total
    probability = min(max(probability, MIN_PROBABILITY), MAX_PROBABILITY)
    return TargetForecast(probability, min(max(until, MIN_ITERATIONS), one.left))


_JUDGED: BatchCache[_Judged, TargetForecast] = BatchCache(_judge, MAX_REMEMBERED)


def _by_curve(one: _Judged, curve: LossCurve) -> TargetForecast:
    """Forecast by SLAQ's curves, which have a floor."""
    final = curve.loss(one.end)
    deviation = final.deviation if math.isfinite(final.deviation) else abs(one.losses[-1] - one.target)
    probability = _normal((one.target - final.value) / max(deviation, MIN_DEVIATION)) if math.isfinite(final.value) else 0.0
    until = curve.reaches(one.target, one.iterations[-1])
    return TargetForecast(probability, min(until, one.left) if math.isfinite(until) and until > 0 else one.left)


def _by_power_law(iterations: tuple[float, ...], losses: tuple[float, ...], target: float, end: float) -> TargetForecast:
    """Forecast by a power law of the iterations, which has no floor: a line through the recent losses on logarithmic axes."""
    done, left = iterations[-1], max(end - iterations[-1], 1.0)
    seen = [(k, loss) for k, loss in zip(iterations, losses, strict=True) if k > 0 and 0 < loss < math.inf]
    if len(seen) < POINTS_TO_FIT or target <= 0:
        return TargetForecast(0.0, left)
    x, y = [math.log(k) for k, _ in seen], [math.log(loss) for _, loss in seen]
    weights = [DECAY**age for age in range(len(seen) - 1, -1, -1)]
    line = _line(x, y, weights)
    middle, level, slope, spread = line.x, line.y, line.slope, line.spread
    count = 1.0 / sum(weight**2 for weight in line.weights)  # So many points would count the same if all weighed the same.
    residual = sum(map(mul, line.weights, line.squares)) * count / max(count - 2.0, MIN_DEGREES)
    ahead = math.log(end) - middle
    deviation = math.sqrt(residual * (1.0 + 1.0 / count + ahead**2 / (count * spread)))
    probability = _normal((math.log(target) - level - slope * ahead) / max(deviation, MIN_LOG_DEVIATION))
    if slope >= 0:
        return TargetForecast(probability, left)
    until = math.exp(min(middle + (math.log(target) - level) / slope, MAX_LOG_ITERATIONS)) - done
    return TargetForecast(probability, min(max(until, 1.0), left))


def _at_mean_rate(iterations: tuple[float, ...], losses: tuple[float, ...], end: float) -> float:
    """Return the loss at `end` if it fell exponentially at the rate seen between the first and the best report so far.

    Where losses are noisy, the first one may be a low one by chance: the largest of the first third counts.
    """
    first = max(losses[: max(len(losses) // RECENT_PART, 1)])
    finite = [(loss, k) for loss, k in zip(losses, iterations, strict=True) if math.isfinite(loss) and k > iterations[0]]
    if not math.isfinite(first) or first <= 0 or not finite:
        return -math.inf
    best, at = min(finite)
    if best <= 0:
        return -math.inf
    if best >= first:
        return first
    rate = math.log(first / best) / (at - iterations[0])
    return first * math.exp(-rate * max(end - iterations[0], 0.0))  # A job may have gone on beyond its end.


def _at_recent_slope(iterations: tuple[float, ...], losses: tuple[float, ...], end: float) -> float:
    """Return the loss at `end` if it fell on along a line through the recent reports, as steeply as their noise allows."""
    recent = max(len(losses) // RECENT_PART, MIN_RECENT)
    seen = [(k, loss) for k, loss in zip(iterations, losses, strict=True) if math.isfinite(loss)][-recent:]
    if len(seen) < MIN_RECENT:
        return -math.inf
    line = _line([k for k, _ in seen], [loss for _, loss in seen], [1.0] * len(seen))
    error = math.sqrt(sum(line.squares) / (len(seen) - 2) / (line.spread * len(seen)))
    errors = SLOPE_ERRORS[min(len(seen) - 2, len(SLOPE_ERRORS) + 1) - 2]
    return line.y + (line.slope - errors * error) * (end - line.x)


class _Line(NamedTuple):
    """A weighted least-squares line: means, its slope, the variance of x, weights of sum 1, squares of the residuals."""

    x: float
    y: float
    slope: float
    spread: float
    weights: Sequence[float]
    squares: Sequence[float]


def _line(x: Sequence[float], y: Sequence[float], weights: Sequence[float]) -> _Line:
    """Fit a line; of few points, for which plain numbers take less time than arrays."""
    total = sum(weights)
    weights = [weight / total for weight in weights]
    middle = sum(map(mul, weights, x))
    level = sum(map(mul, weights, y))
    from_middle, from_level = [one - middle for one in x], [one - level for one in y]
    weighted = list(map(mul, weights, from_middle))
    spread = sum(map(mul, weighted, from_middle))
    slope = sum(map(mul, weighted, from_level)) / spread
    residuals = [up - slope * along for along, up in zip(from_middle, from_level, strict=True)]
    return _Line(middle, level, slope, spread, weights, list(map(mul, residuals, residuals)))


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))
