"""What results say on a real cluster: what is optimized, a trial's own failures, and a search that has nothing to judge by."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, ResultGrid, RunConfig, TuneConfig, Tuner

from beamer.engines.ray_tune.checked_results import LENIENT_VARIABLE
from beamer.engines.ray_tune.scheduler import BeamerScheduler
from beamer.gpu.events import TrialReported
from beamer.gpu.policies import gpu_policy
from beamer.studies.asynchronous_halving import AsynchronousHalving
from beamer.studies.events import StageSealed, TrialEnded
from beamer.studies.model import Rung, TrialStatus
from eval.ray_cluster import LocalRayCluster
from tests.ray.test_scheduler import events, journal_of

# Tune does not close its trials' result files when a search ends before they do.
pytestmark = [pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"), pytest.mark.timeout(300)]

STEPS = 4


def reported(kind: str, step: int, once: Path) -> dict[str, Any]:
    """Return the result of a step. kind: what is the matter with it. once: a file that says that it has happened."""
    loss: Any = 1.0 / step
    match kind:
        case "missing" if step % 2:
            return {"accuracy": 1.0 - loss}
        case "none":
            loss = None
        case "none once" if step == 2 and not once.exists():
            once.touch()
            loss = None
        case "text":
            loss = "0.3"
        case "nan" if step > 1:
            loss = math.nan
        case "numpy":
            loss = np.float32(loss)
    return {"loss": loss, "accuracy": 1.0 - (0.0 if loss is None else 0.5)}


class OfKind(tune.Trainable):  # type: ignore[misc]
    """A trial that reports as its kind says."""

    def step(self) -> dict[str, Any]:
        time.sleep(0.02)
        return reported(self.config["kind"], self.iteration + 1, Path(self.config["once"]))

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
        return {"step": self.iteration}

    def load_checkpoint(self, checkpoint: dict[str, int] | None) -> None:
        pass

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True


class Unsaved(tune.Trainable):  # type: ignore[misc]
    """A trial that cannot be saved."""

    def step(self) -> dict[str, Any]:
        time.sleep(0.4)
        return reported(self.config["kind"], self.iteration + 1, Path(self.config["once"]))


def of_kind(config: dict[str, Any]) -> None:
    """Report as a function does."""
    for step in range(1, STEPS + 1):
        tune.report(reported(config["kind"], step, Path(config["once"])))


def run(
    folder: Path, scheduler: BeamerScheduler, kinds: Sequence[str], trainable: Any = OfKind, failures: int = 0, **options: Any
) -> ResultGrid:
    is_class = isinstance(trainable, type)
    return Tuner(
        tune.with_resources(trainable, {"cpu": 1, "gpu": 1}),
        param_space={"kind": tune.grid_search(list(kinds)), "once": str(folder / "once")},
        tune_config=TuneConfig(scheduler=scheduler, reuse_actors=is_class and trainable is OfKind, **options),
        run_config=RunConfig(
            name="search",
            storage_path=str(folder / "results"),
            stop={"training_iteration": STEPS},
            verbose=0,
            failure_config=FailureConfig(max_failures=failures),
            checkpoint_config=CheckpointConfig(
                checkpoint_frequency=1 if trainable is OfKind else 0, checkpoint_at_end=trainable is OfKind
            ),
        ),
    ).fit()


def by_kind(results: ResultGrid) -> dict[str, tuple[int, str]]:
    """Return how far each kind came, and what it failed of."""
    found = {}
    for one in results:
        assert one.config
        found[one.config["kind"]] = (one.metrics or {}).get("training_iteration", 0), str(one.error or "")
    return found


def of_quality(config: dict[str, Any]) -> None:
    """Train to an accuracy."""
    for step in range(1, 17):
        time.sleep(0.02)
        tune.report({"accuracy": config["quality"] * step / 16})


@pytest.mark.long
def test_the_best_accuracy_wins_where_the_tuner_says_max(cluster: LocalRayCluster, tmp_path: Path) -> None:
    results = Tuner(
        tune.with_resources(of_quality, {"cpu": 1, "gpu": 1}),
        param_space={"quality": tune.grid_search([0.9, 0.7, 0.5, 0.3, 0.1, 0.2])},
        tune_config=TuneConfig(metric="accuracy", mode="max", scheduler=BeamerScheduler("fifo", rungs=AsynchronousHalving(16))),
        run_config=RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert not results.errors
    reached = {one.config["quality"]: one.metrics["training_iteration"] for one in results if one.config and one.metrics}
    assert reached[0.9] == 16
    assert reached[0.1] < 16
    best = results.get_best_result()
    assert best.config
    assert best.config["quality"] == 0.9


@pytest.mark.long
@pytest.mark.parametrize("trainable", [OfKind, of_kind], ids=["class", "function"])
def test_a_trial_whose_loss_is_no_number_fails_alone(cluster: LocalRayCluster, tmp_path: Path, trainable: Any) -> None:
    scheduler = BeamerScheduler("fifo", journal=journal_of(tmp_path))
    found = by_kind(run(tmp_path, scheduler, ["missing", "none", "text", "nan", "numpy", "ok"], trainable))
    assert {kind: steps for kind, (steps, error) in found.items() if not error} == {"nan": STEPS, "numpy": STEPS, "ok": STEPS}
    assert "['accuracy'], expected the key 'loss'" in found["missing"][1]
    assert "'loss' in a result of trial" in found["none"][1]
    assert "got None, expected a number" in found["none"][1]
    assert "got '0.3', expected a number" in found["text"][1]
    ends = [event.status for event in events(tmp_path, TrialEnded)]
    assert ends.count(TrialStatus.FINISHED) == 3


@pytest.mark.long
def test_a_trial_that_fails_of_a_result_is_started_again_as_after_other_failures(
    cluster: LocalRayCluster, tmp_path: Path
) -> None:
    found = by_kind(run(tmp_path, BeamerScheduler("fifo"), ["none once", "ok"], failures=1))
    assert {kind: steps for kind, (steps, _) in found.items()} == {"none once": STEPS, "ok": STEPS}
    assert (tmp_path / "once").exists()


@pytest.mark.long
@pytest.mark.parametrize("is_lenient", [False, True])
def test_a_search_whose_results_never_have_the_metric_stops_without_a_winner(
    cluster: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lenient: bool
) -> None:
    monkeypatch.setenv(LENIENT_VARIABLE, str(int(is_lenient)))
    rungs = (Rung("r0", 7, 2), Rung("r1", 2, STEPS))
    scheduler = BeamerScheduler("fifo", rungs=rungs, journal=journal_of(tmp_path))
    kinds = [f"ok {number}" for number in range(7)]
    with pytest.raises(Exception, match=r"\['accuracy', 'loss'\], expected the key 'acuracy' \(did you mean 'accuracy'\?\)"):
        run(tmp_path, scheduler, kinds, failures=-1, metric="acuracy", mode="max")
    assert {event.stage for event in events(tmp_path, StageSealed)} <= {"r0"}, "no trial comes after it"
    assert {event.status for event in events(tmp_path, TrialEnded)} <= {TrialStatus.FAILED}, "none has won, and none has lost"


@pytest.mark.long
def test_a_rung_at_whose_end_no_loss_is_finite_judges_nobody(cluster: LocalRayCluster, tmp_path: Path) -> None:
    scheduler = BeamerScheduler("fifo", rungs=(Rung("r0", 3, 2), Rung("r1", 1, STEPS)), journal=journal_of(tmp_path))
    with pytest.raises(Exception, match="'loss': got nan, expected a finite one of any trial at the end of r0"):
        run(tmp_path, scheduler, ["nan", "nan", "nan"])
    assert events(tmp_path, TrialEnded) == []
    assert {event.stage for event in events(tmp_path, StageSealed)} <= {"r0"}


@pytest.mark.long
def test_a_result_may_lack_the_loss_where_tune_is_told_so(
    cluster: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LENIENT_VARIABLE, "1")
    results = run(tmp_path, BeamerScheduler("fifo", journal=journal_of(tmp_path)), ["missing", "ok"], metric="loss", mode="min")
    assert not results.errors
    assert {kind: steps for kind, (steps, _) in by_kind(results).items()} == {"missing": STEPS, "ok": STEPS}
    losses: dict[str, list[float]] = {}
    for event in events(tmp_path, TrialReported):
        if event.report:
            losses.setdefault(event.trial, []).append(event.report.loss)
    assert sorted(losses.values()) == [[1.0, 0.5, 1 / 3, 0.25], [math.inf, 0.5, 0.5, 0.25]]


@pytest.mark.long
def test_a_class_that_cannot_be_saved_is_not_paused(cluster: LocalRayCluster, tmp_path: Path) -> None:
    scheduler = BeamerScheduler(gpu_policy("round-robin", quantum_s=0.5), journal=journal_of(tmp_path))
    results = run(tmp_path, scheduler, [f"ok {number}" for number in range(6)], Unsaved)
    assert not results.errors
    assert [event.status for event in events(tmp_path, TrialEnded)] == [TrialStatus.FINISHED] * 6
