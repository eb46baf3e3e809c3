"""What results and stop criteria of Tune say, as Beamer's client is told it. Does not import Ray."""

import math
from collections.abc import Mapping
from typing import Any

ITERATION = "training_iteration"


def step_of(result: Mapping[str, Any]) -> int | None:
    """Return how many iterations of a trial are complete, None where the result does not say."""
    step = result.get(ITERATION)
    return None if step is None else int(step)


def loss_of(result: Mapping[str, Any], metric: str | None, mode: str | None) -> float | None:
    """Return the metric as a loss, of which less is better; None where no direction is known, or it is no number.

    metric: a key, or keys joined by slashes.
    """
    if metric is None or mode not in ("min", "max"):
        return None
    value: Any = result.get(metric)
    if value is None:
        value = result
        for key in metric.split("/"):
            value = value.get(key) if isinstance(value, Mapping) else None
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return -number if mode == "max" else number


def stop_step(trial: Any, stopper: Any) -> int | None:
    """Return the iteration at which a trial is stopped by criterion, None where none is about iterations.

    stopper: of the Tuner; of Ray's own, `MaximumIterationStopper` has a number of iterations, `CombinedStopper` others.
    """
    found = [trial.stopping_criterion.get(ITERATION), *_limits(stopper)]
    steps = [math.ceil(step) for step in found if isinstance(step, int | float) and math.isfinite(step)]
    return max(min(steps), 1) if steps else None


def _limits(stopper: Any) -> list[Any]:
    limits = [getattr(stopper, "_max_iter", None)]
    for one in getattr(stopper, "_stoppers", None) or ():
        limits += _limits(one)
    return limits
