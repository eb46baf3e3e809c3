from collections.abc import Callable
from math import exp, inf, isfinite, isnan, nan
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy.optimize import nnls  # type: ignore[import-untyped]

from beamer.errors import InputError
from beamer.gpu.model import Job, Request, Speed, Stage
from beamer.gpu.predictors.least_squares import nnls_of_each
from beamer.gpu.predictors.loss_curve import (
    GEOMETRIC,
    LEVEL,
    LossCurve,
    fit_inverse,
    fit_weighted,
    fit_weighted_of_each,
    thinned,
)
from beamer.gpu.predictors.speed import (
    ALL_REDUCE,
    ASSUMED,
    ASSUMED_SERVERS,
    ASYNC,
    SYNC,
    StepFormula,
    fit_speed,
    interpolated_throughput,
    speed_of,
    throughputs,
    typical_step_s,
)
from eval.gpu.dl2 import read_speeds, speed_model_errors
from tests.support.jobs import known_job

Fit = Callable[..., LossCurve]

FITS: tuple[Fit, ...] = (fit_inverse, fit_weighted)
STEPS = [20.0 * n for n in range(50)]


def inverse(k: float) -> float:
    return 1.0 / (0.01 * k + 0.4) + 0.3


def geometric(k: float) -> float:
    return 2.0 * exp(-0.01 * k) + 0.5


def test_nnls_agrees_with_lawson_and_hanson() -> None:
    rng = np.random.default_rng(0)
    for unknowns in (2, 3):
        rows, target = rng.normal(size=(300, 6, unknowns)), rng.normal(size=(300, 6))
        found = nnls_of_each(rows.transpose(0, 2, 1) @ rows, np.einsum("gnp,gn->gp", rows, target))
        expected = np.array([nnls(a, b)[0] for a, b in zip(rows, target, strict=True)])
        assert (expected == 0).any()
        assert found == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("fit", FITS)
def test_a_curve_of_its_own_form_is_found_again_and_continued(fit: Fit) -> None:
    curve: LossCurve = fit(STEPS, [inverse(k) for k in STEPS])
    for k in (0.0, 500.0, 2000.0, 5000.0):
        assert curve.at(k) == pytest.approx(inverse(k), rel=0.02)
    assert curve.loss(2000.0).deviation < 0.01


@pytest.mark.parametrize(("fit", "form"), [(fit_inverse, inverse), (fit_weighted, geometric)])
def test_losses_below_zero_fall_on_as_others_do(fit: Fit, form: Callable[[float], float]) -> None:
    curve = fit(STEPS[:20], [form(k) - 20.0 for k in STEPS[:20]])
    for k in (500.0, 1000.0, 2000.0):
        assert curve.at(k) == pytest.approx(form(k) - 20.0, abs=0.02)


def test_slaq_takes_the_form_that_fits() -> None:
    curve = fit_weighted(STEPS[:20], [geometric(k) for k in STEPS[:20]])
    assert curve.family is GEOMETRIC
    assert curve.at(2000.0) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("fit", FITS)
def test_noise_shows_in_the_deviation_and_the_prediction_lies_within_it(fit: Fit) -> None:
    off = []
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0.0, 0.02, len(STEPS))
        estimate = fit(STEPS, [inverse(k) for k in STEPS] + noise).loss(1200.0)
        assert 0.005 < estimate.deviation < 0.2
        off.append(abs(estimate.value - inverse(1200.0)) / estimate.deviation)
    assert np.median(off) < 2.0
    assert fit(STEPS, [inverse(k) for k in STEPS]).loss(1200.0).deviation < 0.005


def test_recent_losses_count_most() -> None:
    late = [3.0 if k < 500 else geometric(k - 500.0) for k in STEPS]
    off = [abs(fit_weighted(STEPS, late, decay).at(1200.0) - geometric(700.0)) for decay in (0.6, 1.0)]
    assert off[0] < 0.05 < off[1]


def test_an_outlier_is_taken_out() -> None:
    losses = [inverse(k) for k in STEPS]
    losses[20] = 5.0
    assert fit_inverse(STEPS, losses).at(2000.0) == pytest.approx(inverse(2000.0), rel=0.02)


@pytest.mark.parametrize("fit", FITS)
def test_iterations_until_a_loss_and_until_little_is_gained(fit: Fit) -> None:
    curve: LossCurve = fit(STEPS, [inverse(k) for k in STEPS])
    until = curve.until_loss(inverse(3000.0), since=980.0)
    assert until.value == pytest.approx(2020.0, rel=0.1)
    assert until.known
    assert curve.until_loss(10.0, since=980.0).value == 0.0
    never = curve.until_loss(-1.0)
    assert never.value == inf
    assert not never.known
    left = curve.until_drop(1e-3, epoch=20.0, since=980.0)
    expected = next(k for k in range(10**6) if inverse(980.0 + k) - inverse(1000.0 + k) <= 1e-3 * inverse(0.0))
    assert left.value == pytest.approx(expected, rel=0.05)
    assert left.known
    assert curve.until_drop(1e-3, epoch=20.0, since=980.0 + 2 * expected).value == 0.0


GARBAGE: dict[str, tuple[list[float], list[float]]] = {
    "nothing": ([], []),
    "one point": ([0.0], [1.0]),
    "two points": ([0.0, 10.0], [1.0, 0.5]),
    "not a number": ([0.0, 10.0, 20.0, 30.0], [nan] * 4),
    "some numbers": ([0.0, 10.0, 20.0, 30.0, 40.0, 50.0], [2.0, nan, 1.0, inf, 0.7, -inf]),
    "flat": ([float(k) for k in range(20)], [0.7] * 20),
    "zero": ([float(k) for k in range(20)], [0.0] * 20),
    "rising": ([float(k) for k in range(20)], [0.1 * k for k in range(20)]),
    "negative": ([float(k) for k in range(20)], [-1.0 - k for k in range(20)]),
    "huge": ([float(k) for k in range(20)], [1e300 / (k + 1) for k in range(20)]),
    "tiny": ([float(k) for k in range(20)], [1e-300 / (k + 1) for k in range(20)]),
    "same iteration": ([5.0] * 20, [1.0 / (k + 1) for k in range(20)]),
    "iterations to infinity": ([0.0, inf, nan, 1e15, 2e15], [2.0, 1.0, 1.0, 0.5, 0.4]),
    "a cliff": ([float(k) for k in range(20)], [1e9] + [1.0] * 19),
    "up and down": ([0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 4.0, 0.0]),
    "before the start": ([-5.0, -4.0, -3.0], [3.0, 2.0, 1.0]),
}


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("fit", FITS)
def test_garbage_gives_an_answer_and_no_false_certainty(fit: Fit, name: str) -> None:
    iterations, losses = GARBAGE[name]
    curve: LossCurve = fit(iterations, losses)
    good = [loss for k, loss in zip(iterations, losses, strict=True) if isfinite(k) and k >= 0 and abs(loss) < 1e100]
    for estimate in (curve.loss(100.0), curve.until_loss(0.1), curve.until_drop(0.01, 1.0, 5.0)):
        assert not isnan(estimate.deviation)
        assert estimate.deviation >= 0
        assert not isnan(estimate.value) or not good
    if len({k for k in iterations if isfinite(k) and k >= 0}) < 3 or len(good) < 3:
        assert curve.family is LEVEL
        assert not curve.loss(100.0).known
        assert not curve.until_drop(0.01, 1.0).known


def test_no_history_breaks_a_fit() -> None:
    values = (0.0, -1.0, 1e-300, 1e-9, 0.5, 1.0, 4.0, 1e9, 1e99, 1e300, nan, inf)
    for seed in range(1500):
        rng = Random(seed)
        count = rng.choice((3, 4, 5, 8, 20))
        curves = [fit([rng.choice((k, k, 1e9 * k)) for k in range(count)], rng.choices(values, k=count)) for fit in FITS]
        for curve in curves:
            for estimate in (curve.loss(1e6), curve.until_loss(0.5), curve.until_drop(0.01, 1.0, 2.0)):
                assert estimate.deviation >= 0


def test_histories_that_are_fitted_together_have_the_curves_of_each_alone() -> None:
    histories = list(GARBAGE.values())
    for seed in range(300):
        rng = Random(seed)
        steps = [10.0 * k for k in range(rng.choice((3, 5, 20, 200)))]
        true = rng.choice((inverse, geometric))
        histories.append((steps, [true(rng.choice((1.0, 100.0)) * k) + rng.gauss(0.0, 0.02) for k in steps]))
    for decay in (0.6, 1.0):
        for together, history in zip(fit_weighted_of_each(histories, decay), histories, strict=True):
            alone = fit_weighted(*history, decay)
            assert together.family is alone.family
            assert repr((together.parameters, together.covariance, together.noise)) == repr(
                (alone.parameters, alone.covariance, alone.noise)
            )


@pytest.mark.parametrize("name", ["flat", "zero", "rising"])
def test_what_does_not_fall_has_nothing_left_to_gain(name: str) -> None:
    left = fit_inverse(*GARBAGE[name]).until_drop(0.01, 1.0)
    assert left.value == 0.0
    assert left.known


def test_long_histories_are_thinned_out() -> None:
    assert thinned([1, 2, 3], 4) == [1, 2, 3]
    assert thinned(range(101), 5) == [0, 25, 50, 75, 100]
    many = [0.05 * n for n in range(20_000)]
    assert fit_inverse(many, [inverse(k) for k in many]).at(2000.0) == pytest.approx(inverse(2000.0), rel=0.02)


TRUE = {SYNC.name: (0.02, 0.1, 0.3, 0.01, 0.02), ASYNC.name: (1.0, 0.2, 0.02, 0.1), ALL_REDUCE.name: (0.02, 0.1, 0.01)}


def true_s(formula: StepFormula, workers: int, servers: int, batch_size: float = 32.0) -> float:
    terms = formula.terms(float(workers), float(servers), batch_size)
    return sum(factor * term for factor, term in zip(TRUE[formula.name], terms, strict=True))


@pytest.mark.parametrize("formula", [SYNC, ASYNC, ALL_REDUCE], ids=lambda formula: formula.name)
def test_a_speed_model_is_found_again(formula: StepFormula) -> None:
    shapes = [(1, 1), (2, 1), (1, 3), (4, 2), (4, 6), (8, 4), (8, 9), (3, 3)]
    model = fit_speed(formula, [Speed(w, 1, p, 32, true_s(formula, w, p)) for w, p in shapes])
    assert model is not None
    for w, p in ((6, 2), (12, 12), (2, 5)):
        assert model.step_s(w, p, 32.0) == pytest.approx(true_s(formula, w, p), rel=1e-6)


def test_few_or_useless_samples_give_no_model() -> None:
    garbage = [Speed(2, 1, 1, 1, nan), Speed(3, 1, 1, 1, inf), Speed(4, 1, 1, 1, 0.0), Speed(0, 1, 1, 1, 1.0)]
    for samples in (
        [],
        garbage,
        [Speed(1, 1, 1, 1, 1.0)] * 9,
        [Speed(1, 1, 1, 1, 1.0), Speed(2, 1, 1, 1, 0.6), *garbage],
    ):
        assert fit_speed(SYNC, samples) is None


def job(speeds: tuple[Speed, ...], **request: bool) -> Job:
    return known_job("j", Request(iterations=10, batch_size=32, **request), 0.0, Stage("s", "r"), speeds=speeds)


def test_a_job_that_was_hardly_measured_is_taken_as_linear() -> None:
    alone = speed_of(job(()), typical_s=2.0)
    assert alone.formula is ASSUMED
    assert alone.step_s(4, 1, 32.0) == pytest.approx(0.5)
    one = speed_of(job((Speed(2, 1, 0, 32, 1.0),)))
    assert one.step_s(4, 1, 32.0) == pytest.approx(0.5)
    served = speed_of(job((Speed(2, 1, 2, 32, 1.0),), servers=True))
    assert served.formula is ASSUMED_SERVERS
    assert served.step_s(2, 2, 32.0) == pytest.approx(1.0)
    assert served.step_s(4, 4, 32.0) == pytest.approx(0.5)
    assert 0.5 < served.step_s(4, 2, 32.0) < 1.0


def test_a_job_that_was_measured_has_the_form_of_its_synchronisation() -> None:
    speeds = tuple(Speed(n, 1, n, 32, 1.0 / n + 0.1) for n in (1, 2, 4))
    assert speed_of(job(speeds)).formula is ALL_REDUCE
    assert speed_of(job(speeds, servers=True)).formula is SYNC
    assert speed_of(job(speeds, servers=True, asynchronous=True)).formula is ASYNC
    assert typical_step_s([job(speeds[:1]), job(())]) == pytest.approx(1.1)
    assert typical_step_s([job(())]) == 1.0


def test_throughput_between_and_beyond_what_was_measured() -> None:
    measured = throughputs([Speed(2, 1, 0, 32, 1.0), Speed(2, 2, 0, 32, 2.0), Speed(4, 1, 0, 32, 1.0), Speed(4, 1, 0, 1, nan)])
    assert measured == {2: 24.0, 4: 32.0}
    assert interpolated_throughput(measured, 1) == 12.0
    assert interpolated_throughput(measured, 2) == 24.0
    assert interpolated_throughput(measured, 3) == 28.0
    assert interpolated_throughput(measured, 6) == 40.0
    assert interpolated_throughput({1: 10.0, 2: 2.0}, 9) == 0.0
    assert interpolated_throughput({}, 3) == 0.0


def test_reading_speeds_tells_the_line_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "speed.txt"
    line = "('m', 'dist_sync', 8, {0}, {1}, [{2}], [1.0], [1.0])\n"
    path.write_text(line.format(1, 2, "3.0, 1.0") + "\n" + line.format(1, 2, "0.0, 0.0"))
    (only,) = read_speeds(path)
    assert (only.servers, only.workers, only.speed) == (1, 2, 4.0)
    path.write_text(line.format(1, 1, "3.0") + "('m', 'dist_sync'\n")
    with pytest.raises(InputError, match=r"speed\.txt:2"):
        read_speeds(path)
    path.write_text(line.format(1, 1, "3.0").replace("sync", "other"))
    with pytest.raises(InputError, match="dist_other"):
        read_speeds(path)


def test_the_check_of_the_speed_model_holds_points_out(tmp_path: Path) -> None:
    path = tmp_path / "speed.txt"
    lines = [
        f"('m', 'dist_sync', 32, {p}, {w}, {[1.0 / true_s(SYNC, w, p) / w] * w}, [1.0], [1.0])"
        for w in (1, 2, 4, 8)
        for p in (1, 2, 4, 8)
    ]
    path.write_text("\n".join(lines))
    (exact,) = speed_model_errors(path, splits=5)
    assert (exact.points, exact.fitted, exact.splits) == (16, 10, 5)
    assert exact.median < 1e-6
    path.write_text("\n".join(line.replace("'m', 'dist_sync', 32, 8", "'m', 'dist_sync', 32, 1") for line in lines))
    (wrong,) = speed_model_errors(path, splits=5)
    assert wrong.median > exact.median
    with pytest.raises(InputError, match="fitted"):
        speed_model_errors(path, splits=5, fitted=16)
