"""Speed models: the seconds of a job's step on numbers of workers and parameter servers that it was not measured on.

A model is a sum of terms, each with a factor of at least 0, fitted by non-negative least squares to the measured steps, as
Optimus does it [Peng, Bao, Chen, Wu and Guo 2018, section 3.2]. Residuals are relative to the measured step, which is ours: a
job's steps differ by orders of magnitude.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from statistics import median

import numpy as np
import scipy  # type: ignore[import-untyped]  # SciPy loads scipy.optimize at its first use, as that takes a while.

from beamer.gpu.model import Job, Speed

MIN_SHAPES = 3
"""Measured combinations of workers, servers and batch size below which no model is fitted: with two, no residual is left."""

MAX_SHAPES = 64
"""Combinations that a model is fitted to, the latest, so that a fit takes no longer the more was measured."""


@dataclass(frozen=True)
class StepFormula:
    """The terms of a step's seconds, for w workers, p servers and a batch of M samples, all workers together."""

    name: str
    terms: Callable[[float, float, float], tuple[float, ...]]


SYNC = StepFormula("t0 M/w + t1 + t2 w/p + t3 w + t4 p", lambda w, p, m: (m / w, 1.0, w / p, w, p))
"""Synchronous training with parameter servers [Peng et al. 2018, section 3.2]: computing, a constant, the transfer to and from
the servers, and what every worker and every server adds."""

ASYNC = StepFormula("(t0 + t1 w/p + t2 w + t3 p) / w", lambda w, p, m: (1.0 / w, 1.0 / p, 1.0, p / w))
"""Asynchronous training with parameter servers [Peng et al. 2018, section 3.2]: the seconds in which all workers together do a
step."""

ALL_REDUCE = StepFormula("t0 M/w + t1 + t2 w", lambda w, p, m: (m / w, 1.0, w))
"""Synchronous training without servers: computing, a constant, and what grows with the ring. Ours, after `SYNC`: Optimus knows
jobs with parameter servers only."""

ASSUMED = StepFormula("t0 M/w", lambda w, p, m: (m / w,))
"""Ours: a job without servers that was measured on too few shapes to fit; its speed is linear in its workers."""

ASSUMED_SERVERS = StepFormula("t0 (M/w + M/p)", lambda w, p, m: (m / w + m / p,))
"""Ours: a job with servers that was measured on too few shapes to fit; at w = p workers and servers take half a step each."""


@dataclass(frozen=True)
class SpeedModel:
    """A fitted formula. factors: of its terms."""

    formula: StepFormula
    factors: tuple[float, ...]

    def step_s(self, workers: int, servers: int = 1, batch_size: float = 1.0) -> float:
        """Return the seconds of a step."""
        return sum(map(float.__mul__, self.factors, self.formula.terms(float(workers), float(servers), float(batch_size))))


def fit_speed(formula: StepFormula, speeds: Iterable[Speed]) -> SpeedModel | None:
    """Fit a formula to measured steps; None if fewer than `MIN_SHAPES` shapes were measured."""
    # Of equal shapes the latest measurement counts, as the machine may have changed.
    usable = {(s.gpus, s.servers, s.batch_size): s for s in speeds if _usable(s)}
    latest = list(usable.values())[-MAX_SHAPES:]
    if len(latest) < MIN_SHAPES:
        return None
    design = np.array([formula.terms(float(s.gpus), float(max(s.servers, 1)), float(s.batch_size)) for s in latest])
    step = np.array([s.step_s for s in latest])
    rows, target = design / step[:, None], np.ones(len(step))
    length = np.sqrt((rows**2).sum(0))
    factors, _ = scipy.optimize.nnls(rows / length, target)
    if not factors.any() or not np.isfinite(factors).all():
        return None
    return SpeedModel(formula, tuple(map(float, factors / length)))


def _usable(speed: Speed) -> bool:
    return 0 < speed.step_s < inf and speed.gpus > 0 and 0 < speed.batch_size < inf and speed.servers >= 0


def speed_of(job: Job, typical_s: float = 1.0) -> SpeedModel:
    """Return the model of a job's steps: fitted if enough was measured, otherwise linear, through what was.

    typical_s: seconds of a step of the requested batch on one worker where nothing was measured.
    """
    request = job.request
    synchronised = ASYNC if request.asynchronous else SYNC
    fitted = fit_speed(synchronised if request.servers else ALL_REDUCE, job.speeds) if len(job.speeds) >= MIN_SHAPES else None
    if fitted:
        return fitted
    formula = ASSUMED_SERVERS if request.servers else ASSUMED
    usable = [s for s in job.speeds if _usable(s)] or [Speed(1, 1, 1, request.batch_size, typical_s)]
    factors = [s.step_s / formula.terms(float(s.gpus), float(max(s.servers, 1)), float(s.batch_size))[0] for s in usable]
    return SpeedModel(formula, (float(median(factors)),))


def typical_step_s(jobs: Iterable[Job]) -> float:
    """Return the median over jobs of the seconds of a step of the requested batch on one worker, speeds taken as linear.

    Without a measured job it is 1.
    """
    steps = [
        s.step_s * s.gpus * job.request.batch_size / s.batch_size
        for job in jobs
        for s in job.speeds[-1:]
        if 0 < s.step_s < inf and s.batch_size > 0
    ]
    return median(steps) if steps else 1.0


def interpolated_throughput(measured: Mapping[int, float], count: float) -> float:
    """Return the throughput at `count` from those measured at other counts, 0 where none was.

    Straight lines between neighbours, from 0 at 0; beyond the largest the last line is extended, never falling below 0. As the
    artifact of ONES does it [Bian, Li, Wang and You 2021].
    """
    points = sorted((float(n), x) for n, x in measured.items() if n > 0 and 0 <= x < inf)
    if not points:
        return 0.0
    points.insert(0, (0.0, 0.0))
    right = next((i for i, (n, _) in enumerate(points) if n >= count), len(points) - 1)
    (n0, x0), (n1, x1) = points[max(right - 1, 0)], points[max(right, 1)]
    return max(x0 + (x1 - x0) * (count - n0) / (n1 - n0), 0.0)


def throughputs(speeds: Iterable[Speed]) -> dict[int, float]:
    """Return samples per second by number of GPUs, the mean over the shapes measured with as many."""
    by_gpus: dict[int, list[float]] = {}
    for speed in speeds:
        if 0 < speed.step_s < inf:
            by_gpus.setdefault(speed.gpus, []).append(speed.batch_size / speed.step_s)
    return {gpus: sum(values) / len(values) for gpus, values in by_gpus.items()}
