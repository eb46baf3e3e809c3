"""Settings of a Tuner, a scheduler and a request that contradict each other, or that a search of Tune cannot honour.

All of them are refused by name before the first trial: a setting that is not read would be a wrong answer. This module does
not import Ray.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from beamer.engines.ray_tune.metrics import Metrics
from beamer.errors import InputError
from beamer.gpu.model import Request
from beamer.studies.model import Rung

ENDLESS = sys.maxsize  # Tune draws so many samples for num_samples=-1.


def adjusted(request: Request, metrics: Metrics, batch_size: str | None, stop_at_target: bool) -> Request:
    """Return a request with its target loss as `Metrics.read` reads losses: less is better.

    batch_size, stop_at_target: as of `BeamerScheduler`. Raises `InputError` for what the search would not honour.
    """
    if request.servers:
        raise InputError("request.servers", True, "False: parameter servers are not placed on Ray")
    if request.target_accuracy is not None and metrics.accuracy is None:
        raise InputError(
            "request.target_accuracy",
            request.target_accuracy,
            "none without BeamerScheduler(accuracy=...), the key of the results that it is compared with",
        )
    if request.max_batch_size > request.batch_size and batch_size is None:
        raise InputError(
            "request.max_batch_size",
            request.max_batch_size,
            f"at most {request.batch_size}, the batch size, without BeamerScheduler(batch_size=...), the key of configurations "
            "that a granted batch size is written to",
        )
    if stop_at_target and request.target_loss is None and request.target_accuracy is None:
        raise InputError("stop_at_target", True, "a request with target_loss or target_accuracy beside it")
    return request if request.target_loss is None else replace(request, target_loss=metrics.sign * request.target_loss)


def check_stop(stop: Any, iteration: str, iterations: float, field: str) -> None:
    """Check that a Tuner's stop criterion does not end a trial before its iterations. field: whose they are.

    Raises `InputError`. A criterion that is a function or a `Stopper` cannot be compared.
    """
    least = stop.get(iteration, inf) if isinstance(stop, Mapping) else inf
    if least < iterations:
        raise InputError(
            f"RunConfig(stop)[{iteration!r}]",
            least,
            f"at least {iterations:g}, the iterations of {field}, or none at all",
        )


def check_samples(samples: Any, most_live: int | None, is_random: bool, rungs: Sequence[Rung]) -> None:
    """Check that Tune can add trials as the search needs them. Raises `InputError`.

    samples: of the Tuner. most_live: trials that have not ended, at most, as `TuneConfig(max_concurrent_trials)` says; None:
    any number. is_random: whether the search algorithm learns nothing from results. rungs: of successive halving with a
    barrier, none otherwise. All trials of a search are paused until they are granted GPUs, so that nothing but `most_live`
    limits how many are drawn.
    """
    if most_live is None and samples == ENDLESS:
        raise InputError(
            "TuneConfig(num_samples)", -1, "a number, or max_concurrent_trials beside it: trials are drawn at once"
        )
    if most_live is None and not is_random:
        raise InputError(
            "TuneConfig(max_concurrent_trials)",
            None,
            "a number beside a search_alg that learns from results: all of its trials would be drawn before the first result",
        )
    if rungs and most_live is not None and most_live < rungs[0].trials:
        raise InputError(
            "TuneConfig(max_concurrent_trials)",
            most_live,
            f"none, or at least {rungs[0].trials}: so many trials wait for each other at the end of {rungs[0].name}",
        )
