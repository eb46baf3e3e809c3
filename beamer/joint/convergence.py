"""Where a trial stops improving: the loss curves of the GPU level, for the network level to know how much is left."""

from functools import lru_cache
from math import isfinite

from beamer.gpu.predictors.loss_curve import fit_weighted
from beamer.network.forecasts import Point

MIN_POINTS = 6  # With fewer points, a curve of three or four parameters fits everything.
CONVERGED = 0.05  # At convergence, this share of the fall from the first loss to the curve's floor may be missing.
MIN_FALL = 3.0  # A curve has to fall by so many standard deviations of the losses around it: less may be noise.
FLOOR_AT = 1e9  # No curve falls any more at so many times the steps so far.
MAX_REMEMBERED = 1 << 12  # The number of forecasts is several times the trials that run at once.


@lru_cache(maxsize=MAX_REMEMBERED)
def converged_step(losses: tuple[Point, ...]) -> float | None:
    """Return the step at which a trial will have come near the floor of its loss curve, as SLAQ fits it.

    None with too few losses, where they do not fall, and where the step's standard deviation is larger than what is left.
    """
    if len(losses) < MIN_POINTS:
        return None
    steps, values = zip(*losses, strict=True)
    curve = fit_weighted(steps, values)
    floor = curve.at(FLOOR_AT * steps[-1])
    fall = values[0] - floor
    if not (isfinite(fall) and fall > MIN_FALL * curve.noise * curve.unit_loss):
        return None
    left = curve.until_loss(floor + CONVERGED * fall, steps[-1])
    is_certain = left.value == 0 or left.deviation <= left.value
    return float(steps[-1] + left.value) if isfinite(left.value) and is_certain else None
