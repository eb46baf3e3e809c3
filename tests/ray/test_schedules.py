"""What is read of Tune's schedulers and of its controller, and what happens where another version of Ray has it otherwise."""

import logging
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from ray.tune import Callback
from ray.tune.execution.tune_controller import TuneController
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from beamer.integrations.ray_tune import BeamerCallback
from beamer.integrations.ray_tune import controller as controllers
from beamer.integrations.ray_tune.controller import HeardScheduler, calling
from beamer.integrations.ray_tune.location import worker_bundles
from beamer.integrations.ray_tune.schedules import PRIVATE, HalvingSchedule, ReadSchedule, ray_version, schedule_of

NEW = {"metric": "loss", "mode": "min"}
MUTATIONS = {"hyperparam_mutations": {"rate": [0.1, 0.2]}, "time_attr": "training_iteration"}


def made(kind: type) -> Any:
    if kind is ResourceChangingScheduler:
        return kind(HyperBandScheduler(**NEW))
    return kind(**NEW, **(MUTATIONS if kind is PopulationBasedTraining else {}))


class Trial:
    status = "RUNNING"

    def __init__(self, name: str) -> None:
        self.trial_id = name

    def is_finished(self) -> bool:
        return False


def trial(name: str) -> Any:
    return Trial(name)


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TuneController]:
    """Makes controllers without a cluster, whose cores they would count."""
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", "1")
    return TuneController


@pytest.mark.parametrize("kind", PRIVATE)
def test_the_installed_ray_has_what_is_read_of_a_scheduler(kind: type) -> None:
    missing = [name for name in PRIVATE[kind] if not hasattr(made(kind), name)]
    assert missing == [], f"{kind.__name__} of Ray {ray_version()}: rungs can no longer be read"


def test_the_installed_ray_has_what_is_read_of_brackets() -> None:
    halving, hyperband = ASHAScheduler(**NEW), HyperBandScheduler(**NEW)
    assert halving._brackets[0]._rungs, "a bracket of ASHA"
    hyperband.on_trial_add(None, trial("a"))
    bracket = hyperband._hyperbands[0][0]
    missing = [name for name in ("_live_trials", "_all_trials", "_cumul_r", "_halves") if not hasattr(bracket, name)]
    assert missing == [], f"brackets of HyperBand of Ray {ray_version()}"
    assert hyperband._state["bracket"] is bracket


def test_the_installed_ray_has_what_is_read_of_its_controller(controller: Callable[..., TuneController]) -> None:
    found = controller()
    missing = [name for name in controllers.PRIVATE if not hasattr(found, name)]
    assert missing == [], f"TuneController of Ray {ray_version()}"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PRIVATE for name in PRIVATE[kind]])
def test_what_another_ray_lacks_is_named_once_and_the_search_has_no_rungs(
    kind: type, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = made(kind)
    delattr(scheduler, name)
    schedule = ReadSchedule(scheduler)
    for step in range(3):
        assert schedule.next_step(trial("a"), step) is None
        assert list(schedule.barriers(False)) == []
    assert (schedule.rungs(), schedule.has_barriers, schedule.max_step) == ((), False, None)
    [record] = caplog.records
    assert name in record.getMessage()
    assert ray_version() in record.getMessage()


def test_what_breaks_while_a_search_runs_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = ASHAScheduler(**NEW)
    scheduler.on_trial_add(None, trial("a"))
    schedule = ReadSchedule(scheduler)
    assert schedule.next_step(trial("a"), 1) == 4
    del scheduler._trial_info
    assert [schedule.next_step(trial("a"), 1) for _ in range(3)] == [None] * 3
    [record] = caplog.records
    assert "_trial_info" in record.getMessage()


def test_a_scheduler_that_counts_seconds_has_no_rungs(caplog: pytest.LogCaptureFixture) -> None:
    schedule = ReadSchedule(PopulationBasedTraining(**NEW, hyperparam_mutations={"rate": [0.1, 0.2]}))
    assert schedule.next_step(trial("a"), 1) is None
    [record] = caplog.records
    assert "time_total_s" in record.getMessage()


def test_asha_with_several_brackets() -> None:
    scheduler = ASHAScheduler(**NEW, max_t=20, grace_period=2, reduction_factor=2.5, brackets=2)
    scheduler._trial_info = {"a": scheduler._brackets[0], "b": scheduler._brackets[1]}
    schedule = HalvingSchedule(scheduler)
    assert [schedule.next_step(trial("a"), step) for step in (0, 1, 2, 5, 13, 20)] == [2, 2, 5, 13, 20, None]
    assert [schedule.next_step(trial("b"), step) for step in (0, 5, 13)] == [5, 13, 20]
    assert schedule.rungs() == ()
    assert (schedule.is_complete(trial("a"), 19), schedule.is_complete(trial("a"), 20)) == (False, True)


def test_asha_that_lets_the_last_trials_go_on() -> None:
    schedule = HalvingSchedule(ASHAScheduler(**NEW, max_t=16, stop_last_trials=False))
    assert [rung.step for rung in schedule.rungs()] == [1, 4, 16]


@pytest.mark.parametrize("kind", [HyperBandScheduler, HyperBandForBOHB])
def test_the_barriers_of_hyperband_are_those_of_its_brackets(kind: type) -> None:
    scheduler, schedule = kind(**NEW, max_t=9, reduction_factor=3), None
    schedule = ReadSchedule(scheduler)
    trials = [trial(f"t{i}") for i in range(9)]
    for one in trials:
        scheduler.on_trial_add(None, one)
    barriers = list(schedule.barriers(False))
    expected = [(9, 3, True), (3, 5, True), (1, 1, False)] if kind is HyperBandScheduler else [(1, 9, False)]
    assert [(one.step, len(one.trials), one.is_closed) for one in barriers] == expected
    assert [one.is_closed for one in schedule.barriers(True)] == [True] * len(expected)
    scheduler._hyperbands[0][0]._cumul_r = 9
    names = [one.name for one in schedule.barriers(False)]
    assert names[0] == ("band0-bracket0-rung0" if kind is HyperBandScheduler else "band0-bracket0-rung1")


def test_population_based_training_waits_for_its_burn_in() -> None:
    scheduler = PopulationBasedTraining(**NEW, **MUTATIONS, perturbation_interval=4, burn_in_period=10)
    one = trial("a")
    scheduler._trial_state[one] = SimpleNamespace(last_perturbation_time=0)
    schedule = schedule_of(scheduler)
    assert [schedule.next_step(one, step) for step in (0, 9)] == [10, 10]
    scheduler._trial_state[one].last_perturbation_time = 10
    assert schedule.next_step(one, 10) == 14


@pytest.mark.parametrize("scheduler", [FIFOScheduler(), MedianStoppingRule(**NEW), TrialScheduler()])
def test_others_have_no_rungs(scheduler: TrialScheduler, caplog: pytest.LogCaptureFixture) -> None:
    schedule = ReadSchedule(scheduler)
    assert (schedule.next_step(trial("a"), 1), schedule.has_barriers, caplog.records) == (None, False, [])


def test_a_schedulers_decisions_are_heard_and_it_is_left_as_it_was() -> None:
    scheduler = FIFOScheduler()
    heard = HeardScheduler(scheduler)
    assert scheduler.on_trial_result(None, trial("a"), {}) == "CONTINUE"
    assert [heard.take("a"), heard.take("a")] == ["CONTINUE", None]
    heard.close()
    assert vars(scheduler) == vars(FIFOScheduler())


def test_the_controller_is_found_from_a_callback_and_nowhere_else(controller: Callable[..., TuneController]) -> None:
    found: list[Any] = []

    class Finding(Callback):  # type: ignore[misc]
        def setup(self, **info: Any) -> None:
            found.append(calling()[0])

    calls = controller(callbacks=[Finding()])
    calls.setup_experiments([SimpleNamespace(public_spec={})], 1)
    assert found == [calls]
    assert calling() == (None, None, None)


def test_a_callback_is_pickled_without_what_it_holds() -> None:
    callback = BeamerCallback("s", "http://127.0.0.1:9", {"gpu-7": "h1"})
    callback._search = object()  # type: ignore[assignment]
    restored = pickle.loads(pickle.dumps(callback))
    assert restored.__getstate__() == {"study": "s", "url": "http://127.0.0.1:9", "hosts": {"gpu-7": "h1"}}
    assert restored._search is None


def test_what_breaks_in_a_callback_is_logged_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    callback = BeamerCallback()
    callback.setup()
    callback.on_step_end(0, [])
    callback._search = SimpleNamespace()  # type: ignore[assignment]
    for _ in range(3):
        callback.on_trial_complete(0, [], trial("a"))
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["setup" in messages[0], "on_trial_complete" in messages[1], len(messages)] == [True, True, 2]


def test_workers_are_the_bundles_with_gpus_or_all() -> None:
    assert worker_bundles([{"CPU": 1}, {"CPU": 1, "GPU": 1}, {"GPU": 1}]) == [1, 2]
    assert worker_bundles([{"CPU": 1}, {"CPU": 1}]) == [0, 1]
    assert worker_bundles([]) == [0]
