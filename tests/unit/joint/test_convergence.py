"""Where trials stop improving, by their losses."""

from math import log2
from random import Random

import pytest

from beamer.joint.convergence import CONVERGED, MIN_POINTS, converged_step
from beamer.network.forecasts import LossHistory, Point


def losses(steps: int, noise: float = 0.0, falls: bool = True) -> tuple[Point, ...]:
    """Return the history of a loss that halves every 100 steps, from 2 towards 0.5."""
    rng = Random(0)
    history = LossHistory()
    for step in range(1, steps + 1):
        history.add(step, 0.5 + 1.5 * 2 ** (-step / 100 if falls else 0) + noise * rng.gauss(0, 1))
    return history.points


END = -100 * log2(CONVERGED)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_curve_that_falls_exponentially_ends_near_its_floor(noise: float) -> None:
    assert converged_step(losses(250, noise)) == pytest.approx(END, rel=0.2)


def test_one_that_has_converged_has_nothing_left() -> None:
    found = converged_step(losses(2000))
    assert found is not None
    assert found <= 2000


@pytest.mark.parametrize("points", [(), losses(MIN_POINTS - 1), losses(200, falls=False), losses(200, noise=0.1, falls=False)])
def test_losses_that_do_not_tell_give_no_forecast(points: tuple[Point, ...]) -> None:
    assert converged_step(points) is None
