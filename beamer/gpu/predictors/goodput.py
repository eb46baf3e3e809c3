"""Goodput: how much a job learns per second on a placement and at a batch size, as Pollux defines it.

[Qiao, Choe, Subramanya, Neiswanger, Ho, Zhang, Ganger and Xing 2021, sections 3.1 (statistical efficiency, with the gradient
noise scale of McCandlish, Kaplan, Amodei et al. 2018) and 3.2 (step times)]

A step of `m` samples on `n` GPUs takes `(T_grad^g + T_sync^g)^(1/g)` seconds, g between 1 (no overlap) and 10 (all of it),
with `T_grad = a + b m/n`, and `T_sync` nothing on one GPU, `s0 + s1 (n - 2)` on one node and `r0 + r1 (n - 2)` on several. With
gradient accumulation in k sub-steps it takes `(k - 1) T_grad` more, all of it with m/k samples in the place of m. A
sample of a batch of m is worth `(phi + m0) / (phi + m)` of one of a batch of m0, where phi, the noise scale, is m0 times the
variance of a gradient of m0 over its squared norm. Goodput is samples per second times that.

Ours is how it is fitted: all jobs at once, by damped Gauss-Newton steps on the logarithms of parameters and step times, with a
weak prior at a first guess, where Pollux minimises the same logarithmic error job by job. As in Pollux, what was not measured
is assumed to cost nothing, so that it is tried: synchronising is free until it was measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from beamer.gpu.arrays import Bools, Floats, Ints
from beamer.gpu.model import Job, Speed
from beamer.gpu.ties import comparable

PARAMETERS = 7
A, B, S0, S1, R0, R1, G = range(PARAMETERS)  # columns of the parameters, named as in the text above; G: the exponent
MAX_ITERATIONS = 30  # The number of Gauss-Newton steps is bounded, for the time of a fit that does not converge.
CONVERGED_BELOW = 1e-3  # A decrease by a smaller share of the cost ends a fit.
MIN_GAIN = 1e-9  # A change by a smaller share of the cost is rounding, by which no step may be judged (`beamer.gpu.ties`).
MIN_DEVIATION = 0.05  # Logarithms of step times deviate at least so much, even where the few measured ones agree.
PRIOR_WEIGHT = (MIN_DEVIATION / 3.0) ** 2  # The weight is a square: a parameter may well be e^3 times its first guess.
MIN_STEP_S = 1e-12  # Under a logarithm, so many seconds stand for "takes no time".
MAX_STEP_S = 1e9  # A step time of 30 years or more, in seconds, was not measured.
EXPONENT_RANGE = 9.0  # The exponent lies between 1 and 1 plus this range, as in Pollux.
MAX_LOGIT = 30.0  # At a logit of plus or minus this value, the exponent is within 1e-12 of its range's end, and e^30 is finite.
MIN_COLUMNS = 4  # Rows of measurements are filled up to so many columns, so that most jobs are fitted together.
# Only the latest reports are searched for gradient statistics: not every report has them, and older ones are outdated.
REPORTS_SEARCHED = 20
MAX_NOISE_SCALE = 1e12  # samples; keeps goodputs finite where the gradient has almost no mean
# The sizes go from smallest to largest in equal ratios: over a factor of 64, neighbours differ by a fifth.
BATCH_SIZES_TRIED = 24
# The damping is relative to the curvature, as that of Levenberg and Marquardt.
FIRST_DAMPING, MIN_DAMPING, MAX_DAMPING = 1e-2, 1e-9, 1e9
DAMPING_DOWN, DAMPING_UP = 5.0, 4.0  # factors after a step that lowered the cost, and after one that did not
LAST_DAMPING = 1e6  # At this damping, a fit without a better step ends.
MAX_STEP = 2.0  # A step changes a parameter's logarithm by at most this much, as the model is far from linear beyond.
# Fits start at these guesses, which a weak prior holds on to. The data soon overrule them: any plausible split would do.
GUESSED_CONSTANT = 0.5  # share of the fastest step
GUESSED_PER_SAMPLE = 0.5  # share of the least time per sample of a GPU, as the rest of a step
GUESSED_SYNC = 0.2  # share of the slowest step
GUESSED_SYNC_PER_GPU = 0.02  # share of the slowest step, for each GPU beyond two: a tenth of the synchronisation
GUESSED_LOGIT = -1.0  # The exponent is then 3.4: computing and synchronising overlap somewhat.


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Fitted step times, a row per job. theta: logarithms of a, b, s0, s1, r0, r1, and the exponent's logit."""

    theta: Floats

    def at(self, rows: Ints, gpus: Ints, nodes: Ints, batch: Floats, sub_steps: Floats | float = 1.0) -> Floats:
        """Return the seconds of steps of `batch` samples of the jobs `rows`; of one never measured, 1 per sample."""
        of = _parts(self.theta[rows], gpus, nodes, batch / (gpus * sub_steps))
        return np.asarray(np.exp(of.log_step) + (sub_steps - 1.0) * of.compute)


def fit_steps(jobs: Sequence[Sequence[Speed]]) -> StepTimes:
    """Fit the step times of many jobs at once, each on what was measured of it; impossible rows are left out."""
    usable = [
        [s for s in speeds if 0 < s.step_s < MAX_STEP_S and min(s.gpus, s.batch_size, s.sub_steps) > 0] for speeds in jobs
    ]
    count = len(usable)
    theta = np.zeros((count, PARAMETERS))
    theta[:, [A, S0, S1, R0, R1]] = np.log(MIN_STEP_S)
    by_columns: dict[int, list[int]] = {}
    for row, speeds in enumerate(usable):
        # Columns depend on the row's own number alone, so that a fit's last digit does not depend on the other jobs.
        if speeds:
            by_columns.setdefault(max(MIN_COLUMNS, 1 << (len(speeds) - 1).bit_length()), []).append(row)
    for columns, rows in by_columns.items():
        theta[rows] = _fit([usable[row] for row in rows], columns)
    return StepTimes(theta)


def noise_scale(job: Job) -> float:
    """Return phi in samples, of the last gradients; 0, under which large batches gain nothing, where none was measured."""
    for report in job.reports[: -REPORTS_SEARCHED - 1 : -1]:
        if report.gradient_sqr > 0 and report.gradient_var >= 0 and isfinite(report.gradient_sqr + report.gradient_var):
            return float(min(job.request.batch_size * report.gradient_var / report.gradient_sqr, MAX_NOISE_SCALE))
    return 0.0


def efficiency(noise: Floats, requested: Floats, batch: Floats) -> Floats:
    """Return what a sample of a batch is worth, relative to one of the batch size requested."""
    return np.asarray((noise + requested) / (noise + batch))


def best_goodput(
    times: StepTimes,
    rows: Ints,
    gpus: Ints,
    nodes: Ints,
    noise: Floats,
    requested: Floats,
    low: Floats,
    high: Floats,
    sub_steps: Callable[[Floats], Floats] = np.ones_like,
) -> tuple[Floats, Ints]:
    """Return the largest goodput of each of `rows` on its GPUs, in samples worth those of the batch requested per second.

    Batch sizes from `low` to `high` are tried, in equal ratios; the second result is the best one.
    sub_steps: in how many each of them is taken, given a row per job.
    """
    share = np.linspace(0.0, 1.0, BATCH_SIZES_TRIED)
    batch = np.round(low[:, None] * (high / low)[:, None] ** share)
    step_s = times.at(rows[:, None], gpus[:, None], nodes[:, None], batch, sub_steps(batch))
    goodput = batch / step_s * efficiency(noise[:, None], requested[:, None], batch)
    chosen = comparable(goodput).argmax(axis=1)
    at = np.arange(len(rows))
    return goodput[at, chosen], batch[at, chosen].astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Parts:
    """What steps consist of, and the logarithm of how long they take. both: what the shorter part adds to the longer one's."""

    value: Floats
    near: Bools
    far: Bools
    extra: Ints
    compute: Floats
    sync: Floats
    part: Floats
    exponent: Floats
    ratio: Floats
    both: Floats
    log_step: Floats


def _parts(theta: Floats, gpus: Ints, nodes: Ints, local: Floats) -> _Parts:
    """Return the parts of steps of `local` samples per GPU. theta: one more axis than `local`."""
    value = np.exp(theta)
    extra = np.maximum(gpus - 2, 0)
    near, far = (gpus > 1) & (nodes == 1), (gpus > 1) & (nodes > 1)
    compute = value[..., A] + value[..., B] * local
    sync_near = near * (value[..., S0] + value[..., S1] * extra)
    sync_far = far * (value[..., R0] + value[..., R1] * extra)
    compute, sync = np.maximum(compute, MIN_STEP_S), np.maximum(sync_near + sync_far, MIN_STEP_S)
    logit = np.clip(theta[..., G], -MAX_LOGIT, MAX_LOGIT)
    part = 1.0 / (1.0 + np.exp(-logit))
    exponent = 1.0 + EXPONENT_RANGE * part
    log_compute, log_sync = np.log(compute), np.log(sync)
    largest = np.maximum(log_compute, log_sync)
    ratio = np.exp(-exponent * np.abs(log_compute - log_sync))
    both = np.log1p(ratio)
    return _Parts(value, near, far, extra, compute, sync, part, exponent, ratio, both, largest + both / exponent)


def _log_step(theta: Floats, gpus: Ints, nodes: Ints, local: Floats, sub_steps: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of step times, and their slopes along theta on one more axis. theta: one more axis than `local`.

    local: samples of a sub-step on each GPU.
    """
    of = _parts(theta, gpus, nodes, local)
    value, exponent = of.value, of.exponent
    log_compute, log_sync = np.log(of.compute), np.log(of.sync)
    largest = np.maximum(log_compute, log_sync)
    larger = 1.0 / (1.0 + of.ratio)
    by_compute = np.where(log_compute >= log_sync, larger, 1.0 - larger)
    by_sync = 1.0 - by_compute
    by_exponent = -of.both / exponent**2 + (by_compute * (log_compute - largest) + by_sync * (log_sync - largest)) / exponent
    # Only the last sub-step overlaps with synchronising.
    log_total = np.logaddexp(of.log_step, np.log(np.maximum(sub_steps - 1.0, MIN_STEP_S)) + log_compute)
    last = np.exp(of.log_step - log_total)  # share of the last sub-step in the time
    by_compute, by_sync, by_exponent = by_compute * last + 1.0 - last, by_sync * last, by_exponent * last
    slopes = np.stack(
        (
            by_compute * value[..., A] / of.compute,
            by_compute * value[..., B] * local / of.compute,
            by_sync * of.near * value[..., S0] / of.sync,
            by_sync * of.near * value[..., S1] * of.extra / of.sync,
            by_sync * of.far * value[..., R0] / of.sync,
            by_sync * of.far * value[..., R1] * of.extra / of.sync,
            by_exponent * EXPONENT_RANGE * of.part * (1.0 - of.part),
        ),
        axis=-1,
    )
    return log_total, np.asarray(slopes)


def _fit(speeds: Sequence[Sequence[Speed]], columns: int) -> Floats:
    """Fit jobs of up to `columns` measurements; return theta."""
    # A measurement that is repeated to fill a row has no weight.
    table = np.array([[_figures(job[min(i, len(job) - 1)]) for i in range(columns)] for job in speeds], np.float64)
    count = np.array([len(job) for job in speeds])
    weight = (np.arange(columns) < count[:, None]).astype(np.float64)
    gpus, nodes = table[..., 0].astype(np.int64), table[..., 1].astype(np.int64)
    local, target, sub_steps = table[..., 2], np.log(table[..., 3]), table[..., 4]
    apart = weight * (table[..., 5] > 0)  # These measurements include how long computing took.
    computed = np.log(np.where(apart > 0, table[..., 5], 1.0))
    near, far = (gpus > 1) & (nodes == 1), (gpus > 1) & (nodes > 1)
    seen = np.stack((np.ones(len(table), np.bool_), near.any(axis=1), far.any(axis=1)), axis=1)
    active = np.stack(
        (
            seen[:, 0],
            seen[:, 0],
            seen[:, 1],
            (near & (gpus > 2)).any(axis=1),
            seen[:, 2],
            (far & (gpus > 2)).any(axis=1),
            seen[:, 1] | seen[:, 2],
        ),
        axis=1,
    )
    guess = _guess(local, table[..., 3] / sub_steps, active)

    def evaluate(point: Floats, of: Ints) -> tuple[Floats, Floats, Floats]:
        log_s, slopes = _log_step(point[:, None, :], gpus[of], nodes[of], local[of], sub_steps[of])
        log_compute, of_compute = _log_compute(point[:, None, :], local[of])
        weighs, alone = weight[of], apart[of]
        off = np.concatenate(((log_s - target[of]) * weighs, (log_compute - computed[of]) * alone), axis=1)
        slopes = np.concatenate((slopes * weighs[..., None], of_compute * alone[..., None]), axis=1)
        return (
            off,
            slopes * active[of][:, None, :],
            (off**2).sum(axis=1) + PRIOR_WEIGHT * ((point - guess[of]) ** 2).sum(axis=1),
        )

    theta = guess.copy()
    going = np.arange(len(table))  # A job is done by its own figures, whatever the others still need.
    off, slopes, cost = evaluate(theta, going)
    damping = np.full(len(table), FIRST_DAMPING)
    unit = np.eye(PARAMETERS)
    for _ in range(MAX_ITERATIONS):
        slope = slopes[going]
        curve = slope.transpose(0, 2, 1) @ slope + PRIOR_WEIGHT * unit
        down = (slope.transpose(0, 2, 1) @ off[going][..., None])[..., 0] + PRIOR_WEIGHT * (theta[going] - guess[going])
        scale = np.einsum("bii->bi", curve)[:, :, None] * unit
        move = -np.linalg.solve(curve + damping[going][:, None, None] * scale, down[..., None])[..., 0]
        trial = theta[going] + np.clip(move, -MAX_STEP, MAX_STEP) * active[going]
        new_off, new_slopes, new_cost = evaluate(trial, going)
        gain = cost[going] - new_cost
        better = gain > MIN_GAIN * cost[going]
        falls = gain > CONVERGED_BELOW * cost[going]
        going_on = (damping[going] < LAST_DAMPING) & (gain < -MIN_GAIN * cost[going])
        moved = going[better]
        theta[moved], off[moved], slopes[moved], cost[moved] = (
            trial[better],
            new_off[better],
            new_slopes[better],
            new_cost[better],
        )
        damping[going] = np.where(better, damping[going] / DAMPING_DOWN, damping[going] * DAMPING_UP)
        damping = np.clip(damping, MIN_DAMPING, MAX_DAMPING)
        going = going[np.where(better, falls, going_on)]
        if not len(going):
            break
    # The parameters of one kind of synchronisation stand for those of the other until that is measured.
    for ours, others, column in ((S0, R0, 2), (S1, R1, 2), (R0, S0, 1), (R1, S1, 1)):
        copied = ~seen[:, column] & seen[:, 3 - column]
        theta[copied, others] = theta[copied, ours]
    return theta


def _log_compute(theta: Floats, local: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of the times that computing takes, as `_log_step`."""
    constant, by_sample = np.exp(theta[..., A]), np.exp(theta[..., B]) * local
    compute = np.maximum(constant + by_sample, MIN_STEP_S)
    slopes = np.zeros((*local.shape, PARAMETERS))
    slopes[..., A], slopes[..., B] = constant / compute, by_sample / compute
    return np.log(compute), slopes


def _figures(speed: Speed) -> tuple[float, ...]:
    """Return a row of measurements; the last column: seconds that a sub-step computed, 0 where that is not known."""
    local = speed.batch_size / (speed.gpus * speed.sub_steps)
    compute_s = (speed.step_s - speed.sync_s) / speed.sub_steps if 0 < speed.sync_s < speed.step_s else 0.0
    return speed.gpus, speed.nodes, local, speed.step_s, speed.sub_steps, compute_s


def _guess(local: Floats, step_s: Floats, active: Bools) -> Floats:
    """Return where the fit starts: logarithms of the parameters, and the exponent's logit."""
    start = np.stack(
        (
            GUESSED_CONSTANT * step_s.min(axis=1),
            GUESSED_PER_SAMPLE * (step_s / local).min(axis=1),
            GUESSED_SYNC * step_s.max(axis=1),
            GUESSED_SYNC_PER_GPU * step_s.max(axis=1),
            GUESSED_SYNC * step_s.max(axis=1),
            GUESSED_SYNC_PER_GPU * step_s.max(axis=1),
        ),
        axis=1,
    )
    guess = np.log(np.maximum(np.where(active[:, :G], start, MIN_STEP_S), MIN_STEP_S))
    return np.concatenate((guess, np.full((len(guess), 1), GUESSED_LOGIT)), axis=1)
