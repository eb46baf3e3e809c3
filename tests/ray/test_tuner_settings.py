"""What a Tuner, its scheduler and its trials say, without a cluster: it is read, or refused by name."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from ray import tune
from ray.air.config import ScalingConfig
from ray.tune import PlacementGroupFactory
from ray.tune.execution.tune_controller import TuneController
from ray.tune.result import RESULT_DUPLICATE
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher, SearchGenerator
from ray.tune.trainable import wrap_function

from beamer.engines.ray_tune.checked_results import CheckedResults, check_results
from beamer.engines.ray_tune.cluster import check_placeable, gpus_asked, pinned
from beamer.engines.ray_tune.scheduler import BeamerScheduler, _drawn, _is_resumable
from beamer.errors import InputError
from beamer.gpu.model import Request
from beamer.studies.asynchronous_halving import AsynchronousHalving

RUNGS = AsynchronousHalving(16)


def test_the_metric_and_mode_of_the_tuner_are_read() -> None:
    scheduler = BeamerScheduler(rungs=RUNGS)
    assert scheduler.set_search_properties("accuracy", "max", stop={}, num_samples=1)
    assert scheduler.metric == "accuracy"
    assert scheduler._metrics.read({"training_iteration": 3, "accuracy": 0.75}).loss == -0.75
    assert scheduler.set_search_properties("error", "min"), "of another Tuner"
    assert scheduler._metrics.read({"error": 0.25}).loss == 0.25


def test_what_contradicts_the_scheduler_is_an_error_before_the_first_trial() -> None:
    with pytest.raises(InputError, match=r"TuneConfig\(metric\): got 'accuracy'"):
        BeamerScheduler(loss="loss").set_search_properties("accuracy", "max")
    with pytest.raises(InputError, match=r"TuneConfig\(mode\): got 'max'"):
        BeamerScheduler(mode="min").set_search_properties("accuracy", "max")
    with pytest.raises(InputError, match=r"RunConfig\(stop\)\['training_iteration'\]: got 8, expected at least 16"):
        BeamerScheduler(rungs=RUNGS).set_search_properties("loss", "min", stop={"training_iteration": 8})
    with pytest.raises(InputError, match=r"RunConfig\(stop\)\['training_iteration'\]: got 8, expected at least 20"):
        BeamerScheduler(request=Request(20)).set_search_properties("loss", "min", stop={"training_iteration": 8})
    with pytest.raises(InputError, match=r"request.target_accuracy: got 0.9"):
        BeamerScheduler(request=Request(20, target_accuracy=0.9)).set_search_properties("loss", "min")
    with pytest.raises(InputError, match="mode: got 'best'"):
        BeamerScheduler(mode="best")  # type: ignore[arg-type]


def test_a_scheduler_of_0_1_0_is_restored_with_what_it_optimized() -> None:
    old = {"_iteration": "step", "_loss": "accuracy", "_sign": -1.0, "_accuracy": None, "_rungs": RUNGS, "_request": None}
    scheduler = BeamerScheduler.__new__(BeamerScheduler)
    scheduler.__setstate__(old)
    assert scheduler._metrics.read({"step": 3, "accuracy": 0.75}).loss == -0.75
    with pytest.raises(InputError, match=r"TuneConfig\(mode\): got 'min', expected 'max'"):
        scheduler.set_search_properties("accuracy", "min")


def test_where_a_trial_is_to_be_placed_is_refused() -> None:
    gpu = {"CPU": 1, "GPU": 1}
    check_placeable(PlacementGroupFactory([{"CPU": 2, "GPU": 2}]))
    made = pinned({"n0": 1, "n1": 1}, PlacementGroupFactory([{"CPU": 2, "GPU": 2}]))
    check_placeable(made)
    assert gpus_asked(made) == 2, "as an experiment that is restored asks"
    refused: list[tuple[str, PlacementGroupFactory]] = [
        ("bundles", PlacementGroupFactory([gpu, gpu])),
        ("bundles", ScalingConfig(num_workers=1, use_gpu=True).as_placement_group_factory()),
        ("strategy", PlacementGroupFactory([gpu], strategy="STRICT_SPREAD")),
        ("options", PlacementGroupFactory([gpu], bundle_label_selector=[{"zone": "a"}])),
    ]
    for what, asked in refused:
        with pytest.raises(InputError, match=f"resources per trial: {what}"):
            check_placeable(asked)


class Learning(Searcher):  # type: ignore[misc]
    """A search algorithm that suggests nothing."""

    def suggest(self, trial_id: str) -> None:
        return None

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        pass


def test_how_many_trials_a_search_algorithm_draws_is_known() -> None:
    assert _drawn(BasicVariantGenerator()) == (None, True)
    assert _drawn(BasicVariantGenerator(max_concurrent=3)) == (3, True)
    assert _drawn(SearchGenerator(Learning("loss", "min"))) == (None, False)
    assert _drawn(SearchGenerator(ConcurrencyLimiter(Learning("loss", "min"), 4))) == (4, False)
    assert _drawn(object()) == (None, True)


class WithCheckpoint(tune.Trainable):  # type: ignore[misc]
    def save_checkpoint(self, checkpoint_dir: str) -> None:
        pass


@pytest.mark.parametrize(
    ("trainable", "result", "resumable"),
    [
        (WithCheckpoint, {}, True),
        (tune.Trainable, {}, False),
        (wrap_function(lambda config: None), {}, False),
        (wrap_function(lambda config: None), {"should_checkpoint": True}, True),
    ],
    ids=["class", "class without checkpoints", "function", "function's checkpoint"],
)
def test_a_trial_is_paused_only_where_it_can_be_saved(trainable: type, result: dict[str, Any], resumable: bool) -> None:
    assert _is_resumable(trainable, result) is resumable


class Refusing(TrialScheduler):  # type: ignore[misc]
    """Lets a trial fail whose result has a loss that is no number, and ends the experiment at the second of them."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[dict[str, Any]] = []
        self.failures = 0

    def check(self, controller: Any, trial: Any, result: Any) -> None:
        self.checked.append(dict(result))
        if result.get("train/loss") is None:
            raise InputError("'train/loss'", None, "a number")

    def may_restart(self, trial: Any, result: Any) -> bool:
        return self.failures > 0

    def failed(self, controller: Any) -> None:
        self.failures += 1
        if self.failures == 2:
            raise InputError("keys", [], "others")


class Ended(CheckedResults):
    """A controller that notes which trials fail, and of what, and takes no notice of other results."""

    def __init__(self) -> None:
        self._scheduler_alg = Refusing()
        self.failures: list[tuple[Any, Exception]] = []
        self.restarts: list[int] = []
        self.is_missing = False

    def _trial_task_failure(self, trial: Any, exception: Exception) -> None:
        self.failures.append((trial, exception))
        self.restarts.append(trial.max_failures)

    def _validate_result_metrics(self, result: Any) -> None:
        if self.is_missing:
            raise ValueError("Trial returned a result which did not include the specified metric(s)")


def test_a_controller_of_tune_checks_results_and_stores_nothing_of_it() -> None:
    controller = TuneController.__new__(TuneController)
    for _ in range(2):
        check_results(controller)
        assert type(controller) is CheckedResults
    assert vars(controller) == {}


def test_a_result_is_checked_before_tune_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        "ray.tune.execution.tune_controller.TuneController._process_trial_result",
        lambda self, trial, result: seen.append(result) or TrialScheduler.CONTINUE,
    )
    controller, trial = Ended(), SimpleNamespace(last_result={}, max_failures=-1)
    assert controller._process_trial_result(trial, {"train": {"loss": 0.5}}) == TrialScheduler.CONTINUE
    assert controller._scheduler_alg.checked == [{"train/loss": 0.5}]
    assert controller._process_trial_result(trial, {"train": {"loss": None}}) is None
    assert [(one, str(error)) for one, error in controller.failures] == [(trial, "'train/loss': got None, expected a number")]
    assert seen == [{"train": {"loss": 0.5}}]
    with pytest.raises(InputError, match="keys"):
        controller._process_trial_result(trial, {RESULT_DUPLICATE: True})
    assert controller._scheduler_alg.checked[-1] == {}, "a function that has reported nothing"
    trial.last_result = {"train": {"loss": 0.5}}
    assert controller._process_trial_result(trial, {RESULT_DUPLICATE: True}) == TrialScheduler.CONTINUE
    controller.is_missing = True
    assert controller._process_trial_result(trial, {"train": {"loss": 0.5}}) is None, "what a search algorithm misses"
    assert len(controller.failures) == 3
    assert controller.restarts == [0, -1, -1]
    assert trial.max_failures == -1
