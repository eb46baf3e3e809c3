"""What a search of Tune cannot honour, or contradicts itself, is refused by name before the first trial."""

from dataclasses import replace
from typing import Any

import pytest

from beamer.engines.ray_tune.metrics import Metrics
from beamer.engines.ray_tune.settings import ENDLESS, adjusted, check_samples, check_stop
from beamer.errors import InputError
from beamer.gpu.model import Request
from beamer.studies.model import Rung

METRICS = Metrics("training_iteration", accuracy="accuracy")
RUNGS = (Rung("r0", 6, 2), Rung("r1", 3, 4))


def test_a_target_is_reached_from_the_side_that_the_mode_says() -> None:
    request = Request(9, target_loss=0.9, target_accuracy=0.8)
    assert adjusted(request, METRICS, None, True) == request
    assert adjusted(request, replace(METRICS, mode="max"), None, True) == replace(request, target_loss=-0.9)
    assert adjusted(Request(9), METRICS, None, False) == Request(9)


@pytest.mark.parametrize(
    ("field", "request_", "metrics", "stop_at_target"),
    [
        ("request.servers", Request(9, servers=True), METRICS, False),
        ("request.target_accuracy", Request(9, target_accuracy=0.9), replace(METRICS, accuracy=None), False),
        ("request.max_batch_size", Request(9, batch_size=8, max_batch_size=16), METRICS, False),
        ("stop_at_target", Request(9), METRICS, True),
    ],
)
def test_a_request_that_would_not_be_read_is_refused(
    field: str, request_: Request, metrics: Metrics, stop_at_target: bool
) -> None:
    with pytest.raises(InputError) as raised:
        adjusted(request_, metrics, None, stop_at_target)
    assert raised.value.field == field


def test_batch_sizes_need_a_key_of_the_configuration() -> None:
    request = Request(9, batch_size=8, max_batch_size=16)
    assert adjusted(request, METRICS, "batch_size", False) == request
    assert adjusted(Request(9, batch_size=8, max_batch_size=8), METRICS, None, False).max_batch_size == 8


def test_a_stop_criterion_ends_no_trial_before_its_iterations() -> None:
    with pytest.raises(
        InputError, match=r"RunConfig\(stop\)\['step'\]: got 8, expected at least 16, the iterations of the rungs"
    ):
        check_stop({"step": 8}, "step", 16, "the rungs")
    stops: list[Any] = [{"step": 16}, {"training_iteration": 8}, {}, None, lambda trial, result: False]
    for stop in stops:
        check_stop(stop, "step", 16, "the rungs")


def test_trials_are_drawn_as_the_search_needs_them() -> None:
    with pytest.raises(InputError, match=r"TuneConfig\(num_samples\): got -1"):
        check_samples(ENDLESS, None, True, ())
    with pytest.raises(InputError, match=r"TuneConfig\(max_concurrent_trials\): got None, .* search_alg that learns"):
        check_samples(20, None, False, ())
    with pytest.raises(InputError, match=r"TuneConfig\(max_concurrent_trials\): got 5, expected none, or at least 6: .* of r0"):
        check_samples(20, 5, True, RUNGS)
    check_samples(ENDLESS, 4, True, ())
    check_samples(20, 4, False, ())
    check_samples(20, 6, True, RUNGS)
    check_samples(20, None, True, RUNGS)
