"""The metrics of a search of Tune: from which options they come, what is a number, and when there is nothing to judge by."""

from typing import Any

import numpy as np
import pytest

from beamer.engines.ray_tune.metrics import (
    MAX_FAILED_TRIALS,
    MAX_TRIALS_WITHOUT_LOSS,
    Metrics,
    Mode,
    Reading,
    Readings,
    metrics_of,
)
from beamer.errors import InputError

ITERATION = "training_iteration"


def of(
    loss: str | None = None, mode: Mode | None = None, metric: Any = None, tuned: Any = None, accuracy: str | None = None
) -> Metrics:
    return metrics_of(ITERATION, loss, mode, accuracy, metric, tuned)


@pytest.mark.parametrize(
    ("metrics", "key", "mode"),
    [
        (of(), "loss", "min"),
        (of(metric="accuracy", tuned="max"), "accuracy", "max"),
        (of(loss="accuracy", metric="accuracy", tuned="max"), "accuracy", "max"),
        (of(loss="accuracy", mode="max"), "accuracy", "max"),
        (of(mode="max", metric="accuracy"), "accuracy", "max"),
        (of(mode="max", metric="accuracy", tuned="max"), "accuracy", "max"),
        (of(loss="error", tuned="min"), "error", "min"),
        (of(loss="error", metric="error"), "error", "min"),
    ],
)
def test_both_the_scheduler_and_the_tuner_say_what_is_optimized(metrics: Metrics, key: str, mode: str) -> None:
    assert (metrics.loss, metrics.mode) == (key, mode)
    assert metrics.read({ITERATION: 2, key: 0.75}).loss == (0.75 if mode == "min" else -0.75)


def test_options_that_contradict_each_other_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"TuneConfig\(metric\): got 'b', expected 'a', as BeamerScheduler\(loss\) says"):
        of(loss="a", metric="b", tuned="min")
    with pytest.raises(InputError, match=r"TuneConfig\(mode\): got 'max', expected 'min', as BeamerScheduler\(mode\) says"):
        of(loss="a", mode="min", tuned="max")
    with pytest.raises(InputError, match=r"""TuneConfig\(mode\): got None, expected "min" or "max", beside the metric 'a'"""):
        of(metric="a")
    with pytest.raises(InputError, match="mode: got 'best'"):
        of(tuned="best")


class OfPyTorch:
    """A tensor, as far as a result's value is read. It has as many elements as `values`."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def item(self) -> Any:
        if len(self.values) > 1:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self.values[0]


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), np.array([0.5]), OfPyTorch(0.5)])
def test_numbers_of_libraries_are_numbers(value: Any) -> None:
    assert of().read({ITERATION: np.int64(3), "loss": value}) == Reading(3.0, 0.5, None)


@pytest.mark.parametrize(
    "value",
    [None, "0.3", "n/a", b"1", [], [0.5], {}, np.array([1.0, 2.0]), np.array("0.3"), OfPyTorch(1.0, 2.0), 1j, 10**400],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_no_number_fails_its_trial_by_key_and_value(value: Any) -> None:
    readings = Readings(of())
    with pytest.raises(InputError, match=r"'loss' in a result of trial t7: got .*, expected a number") as raised:
        readings.check("t7", {ITERATION: 1, "loss": value}, is_strict=False)
    assert raised.value.value is value
    assert readings.nothing(1) is None, "results have the key"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, None])
def test_an_iteration_counts(value: Any) -> None:
    with pytest.raises(InputError, match=f"'{ITERATION}' in a result of trial t: got {value}"):
        Readings(of()).check("t", {ITERATION: value, "loss": 0.5}, is_strict=True)


def test_a_result_without_a_metric_fails_its_trial_or_is_let_pass_as_tune_says() -> None:
    readings = Readings(of(loss="los", accuracy="acc"), hidden=[ITERATION])
    with pytest.raises(
        InputError, match=r"keys in a result of trial t: got \['loss'\], expected the key 'los' \(did you mean 'loss'"
    ):
        readings.check("t", {ITERATION: 1, "loss": 0.5}, is_strict=True)
    assert readings.check("t", {ITERATION: 1, "loss": 0.5}, is_strict=False) == Reading(1.0, None, None)
    with pytest.raises(InputError, match=r"the key 'acc' that BeamerScheduler\(accuracy=...\) names"):
        readings.check("t", {ITERATION: 1, "los": 0.5}, is_strict=True)


def test_a_trial_that_fails_of_its_results_is_started_again_only_if_it_comes_farther() -> None:
    readings = Readings(of())
    failures: list[tuple[dict[str, Any], bool]] = [({ITERATION: 3}, True), ({ITERATION: 5}, True), ({ITERATION: 5}, False)]
    assert [readings.may_restart("t", result) for result, _ in failures] == [expected for _, expected in failures]
    assert readings.may_restart("other", {})
    assert not readings.may_restart("other", {ITERATION: "n/a"})


def failed(readings: Readings, trials: int) -> None:
    for number in range(trials):
        with pytest.raises(InputError):
            readings.check(f"t{number}", {ITERATION: 1, "loss": 0.5, "accuracy": 0.1}, is_strict=True)


def test_a_search_whose_results_never_had_the_metric_stops_and_names_what_they_had() -> None:
    readings = Readings(of(metric="acuracy", tuned="max"), hidden=[ITERATION])
    failed(readings, MAX_FAILED_TRIALS - 1)
    failed(readings, 1)  # the same one again, after a restart
    assert readings.nothing(None) is None
    assert readings.nothing(MAX_FAILED_TRIALS) is None
    failed(readings, MAX_FAILED_TRIALS)
    error = readings.nothing(None)
    assert error
    assert error.value == ["accuracy", "loss"]
    expected = "the key 'acuracy' (did you mean 'accuracy'?) that TuneConfig(metric=...) or BeamerScheduler(loss=...) names"
    assert error.expected.startswith(expected)


def test_a_small_search_stops_with_its_last_trial() -> None:
    readings = Readings(of(loss="error"))
    failed(readings, 2)
    assert readings.nothing(3) is None
    assert readings.nothing(2)


def test_one_result_with_the_metric_suffices() -> None:
    readings = Readings(of(loss="error"))
    failed(readings, MAX_FAILED_TRIALS)
    readings.check("other", {ITERATION: 1, "error": 0.5}, is_strict=True)
    assert readings.nothing(None) is None
    before = Readings(of(loss="error"), has_loss=True)
    failed(before, MAX_FAILED_TRIALS)
    assert before.nothing(None) is None, "by the journal"


def test_a_rung_is_not_judged_on_nothing_though_results_may_lack_the_metric() -> None:
    readings = Readings(of())
    for number in range(MAX_TRIALS_WITHOUT_LOSS):
        assert readings.nothing(None) is None
        readings.check(f"t{number}", {ITERATION: 4}, is_strict=False)
        readings.arrive(f"t{number}")
    assert readings.nothing(None)
    readings.check("other", {ITERATION: 1, "loss": 0.5}, is_strict=False)
    assert readings.nothing(None) is None
