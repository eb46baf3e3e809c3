"""The goodput model: what it recovers, what it hopes for, what it survives."""

import numpy as np
import pytest

from beamer.gpu.model import Job, Report, Request, Speed, Stage
from beamer.gpu.predictors import goodput
from beamer.gpu.predictors.goodput import StepTimes, best_goodput, efficiency, fit_steps, noise_scale
from tests.support.jobs import known_job

SHAPES = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (8, 2), (16, 4)]
ROW = np.array([0])


def truth(gpus: int, nodes: int, local: float) -> float:
    sync = 0.0 if gpus == 1 else (0.02 + 0.002 * (gpus - 2)) if nodes == 1 else (0.08 + 0.004 * (gpus - 2))
    return float(((0.03 + 0.001 * local) ** 2 + sync**2) ** 0.5)


def measured(shapes: list[tuple[int, int]], locals_: tuple[int, ...] = (16, 64, 128)) -> tuple[Speed, ...]:
    return tuple(Speed(n, k, 0, n * local, truth(n, k, local)) for n, k in shapes for local in locals_)


def at(times: StepTimes, gpus: int, nodes: int, batch: float, row: int = 0) -> float:
    return float(times.at(np.array([row]), np.array([gpus]), np.array([nodes]), np.array([float(batch)]))[0])


def job(*gradients: tuple[float, float], batch_size: int = 100) -> Job:
    reports = tuple(Report(float(k), float(k), 1.0, 1.0, None, sqr, var) for k, (sqr, var) in enumerate(gradients))
    return known_job("study/0", Request(10, batch_size=batch_size), 0.0, Stage("study", "0"), reports)


def test_step_times_are_recovered_where_nothing_was_measured() -> None:
    times = fit_steps([measured(SHAPES)])
    for gpus, nodes, local in ((1, 1, 32), (3, 1, 96), (6, 2, 32), (12, 3, 100)):
        assert at(times, gpus, nodes, gpus * local) == pytest.approx(truth(gpus, nodes, local), rel=0.05)


def accumulated(shapes: list[tuple[int, int]], locals_: tuple[int, ...] = (16, 64, 128), most: int = 32) -> tuple[Speed, ...]:
    """Steps in sub-steps of at most so many samples per GPU."""
    found = []
    for gpus, nodes in shapes:
        for local in locals_:
            parts = -(-local // most)
            compute_s = truth(1, 1, local / parts)
            step_s = (parts - 1) * compute_s + truth(gpus, nodes, local / parts)
            found.append(Speed(gpus, nodes, 0, gpus * local, step_s, sub_steps=parts))
    return tuple(found)


def test_step_times_are_recovered_from_accumulated_steps() -> None:
    times = fit_steps([accumulated(SHAPES, (8, 16, 24, 64, 128))])
    for gpus, nodes, local in ((1, 1, 12), (3, 1, 30), (6, 2, 20), (12, 3, 32)):
        assert at(times, gpus, nodes, gpus * local) == pytest.approx(truth(gpus, nodes, local), rel=0.05)
        whole = (gpus, nodes, gpus * local * 4.0)
        expected = 3 * truth(1, 1, local) + truth(gpus, nodes, local)
        split = times.at(ROW, *map(np.array, ([gpus], [nodes], [whole[2]], [4.0])))
        assert split == pytest.approx([expected], rel=0.05)


def test_what_was_seen_to_synchronise_tells_computing_apart() -> None:
    few = [Speed(2, 1, 0, 2 * n, truth(2, 1, n), truth(2, 1, n) - truth(1, 1, n)) for n in (16, 128)]
    times = fit_steps([few])
    assert at(times, 1, 1, 64) == pytest.approx(truth(1, 1, 64), rel=0.05)
    half = Speed(2, 1, 0, 256, truth(1, 1, 64) + truth(2, 1, 64), truth(2, 1, 64) - truth(1, 1, 64), 2)
    assert at(fit_steps([[half, few[0]]]), 1, 1, 64) == pytest.approx(truth(1, 1, 64), rel=0.05)


def test_slopes_are_those_of_the_logarithm() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(-2.0, 1.0, 7)
    for gpus, nodes, parts in ((1, 1, 1.0), (4, 1, 1.0), (6, 2, 1.0), (1, 1, 3.0), (6, 2, 3.0)):
        shape = (np.array(gpus), np.array(nodes), np.array(3.0), np.array(parts))
        slopes = goodput._log_step(theta, *shape)[1]
        for number in range(7):
            step = np.eye(7)[number] * 1e-6
            difference = goodput._log_step(theta + step, *shape)[0] - goodput._log_step(theta - step, *shape)[0]
            assert float(slopes[number]) == pytest.approx(float(difference) / 2e-6, rel=1e-4, abs=1e-8)


def test_a_fit_does_not_depend_on_the_other_jobs() -> None:
    ours = measured(SHAPES[:3])
    alone = fit_steps([ours])
    among = fit_steps([measured(SHAPES), (), measured(SHAPES[:2]), ours, measured([(1, 1)])])
    assert (among.theta[3] == alone.theta[0]).all()


def test_what_was_not_measured_is_hoped_for() -> None:
    times = fit_steps([measured([(1, 1)]), measured([(1, 1), (2, 1)]), ()])
    assert at(times, 4, 1, 4 * 64) == pytest.approx(at(times, 1, 1, 64), rel=1e-6)  # no synchronisation was seen
    assert at(times, 4, 2, 4 * 64, row=1) == pytest.approx(at(times, 4, 1, 4 * 64, row=1), rel=1e-6)  # nor a slower one
    assert at(times, 4, 1, 100, row=2) == pytest.approx(25.0)


@pytest.mark.parametrize("step_s", [float("nan"), float("inf"), 0.0, -1.0])
def test_garbage_is_left_out(step_s: float) -> None:
    good = measured([(1, 1), (2, 1)])
    times = fit_steps([(Speed(1, 1, 0, 16, step_s), *good), (Speed(1, 1, 0, 16, step_s),)])
    assert at(times, 2, 1, 128) == at(fit_steps([good]), 2, 1, 128)
    assert (times.theta[1] == fit_steps([()]).theta[0]).all(), "nothing was measured of it"


def test_contradictions_and_single_points_give_numbers() -> None:
    odd = (Speed(1, 1, 0, 8, 1e-6), Speed(1, 1, 0, 8, 1e6), Speed(2, 1, 0, 16, 1.0), Speed(4, 2, 0, 16, 1e-3))
    times = fit_steps([odd, odd[:1], odd[2:3]])
    for row in range(3):
        assert 0 < at(times, 4, 2, 64, row=row) < float("inf")


def test_the_noise_scale_is_variance_over_square() -> None:
    assert noise_scale(job((2.0, 4.0))) == pytest.approx(200.0)
    assert noise_scale(job((2.0, 4.0), batch_size=10)) == pytest.approx(20.0)
    assert noise_scale(job((9.0, 3.0), (1.0, 3.0))) == pytest.approx(300.0)


@pytest.mark.parametrize("bad", [(0.0, 0.0), (float("nan"), 1.0), (1.0, float("inf")), (-1.0, 1.0), (1.0, -1.0)])
def test_without_gradients_large_batches_gain_nothing(bad: tuple[float, float]) -> None:
    assert noise_scale(job(bad)) == 0.0
    assert noise_scale(job(bad, (2.0, 4.0))) == pytest.approx(200.0)
    low, high = np.array([64.0]), np.array([1024.0])
    times = fit_steps([measured(SHAPES)])
    _, batch = best_goodput(times, ROW, np.array([4]), np.array([1]), np.zeros(1), low, low, high)
    assert batch.tolist() == [64]


def test_efficiency_is_one_at_the_batch_requested_and_falls() -> None:
    batch = np.array([100.0, 200.0, 400.0])
    assert efficiency(np.array(300.0), np.array(100.0), batch) == pytest.approx([1.0, 0.8, 4 / 7])


def test_the_best_batch_is_that_of_a_fine_search() -> None:
    times = fit_steps([measured(SHAPES)])
    for noise in (100.0, 1000.0, 10000.0):
        grid = np.arange(64.0, 4097.0)
        rate = grid / times.at(np.zeros(len(grid), np.int64), np.array(8), np.array(2), grid)
        best = (rate * efficiency(np.array(noise), np.array(64.0), grid)).max()
        value, _ = best_goodput(
            times, ROW, np.array([8]), np.array([2]), np.array([noise]), np.array([64.0]), np.array([64.0]), np.array([4096.0])
        )
        assert 0.99 * best <= value[0] <= best * (1 + 1e-9)


def test_noisier_gradients_bear_larger_batches() -> None:
    times = fit_steps([measured(SHAPES)])
    rows, gpus, nodes = np.zeros(3, np.int64), np.full(3, 8), np.full(3, 2)
    low, high = np.full(3, 64.0), np.full(3, 4096.0)
    _, batch = best_goodput(times, rows, gpus, nodes, np.array([50.0, 500.0, 50000.0]), low, low, high)
    assert batch[0] < batch[1] < batch[2] <= 4096
