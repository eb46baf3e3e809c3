"""Searches of Ray Tune that have a `BeamerCallback` beside what they had before: what the controller knows of them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import plain_http

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule, PopulationBasedTraining

from beamer.integrations.ray_tune import BeamerCallback
from beamer.studies.events import AttemptStarted
from beamer.studies.journal.store import Journal
from beamer.studies.model import split_key
from eval.ray_cluster import LocalRayCluster
from tests.ray.stock import Descent, descend, network
from tests.support.checkout import ROOT
from tests.support.served_controller import Served, served

# Tune does not close its trials' result files when a search ends before they do.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore:Consider boosting PBT:UserWarning")

PATIENCE_S = 60.0
TRIES, HANGS_S = 3, 80.0  # Ray 2.60 may hang under HyperBand, also without Beamer: such a search is tried again.


@pytest.fixture
def controller(tmp_path: Path, cluster: LocalRayCluster) -> Iterator[Served]:
    addresses = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
    with served(network(addresses), tmp_path / "controller.db", "beamer") as one:
        yield one


def run(
    folder: Path,
    controller: Served,
    scheduler: Any,
    rates: Sequence[float],
    stop: Any = None,
    reuse: bool = False,
    config: dict[str, Any] | None = None,
    trainable: Any = Descent,
    **options: Any,
) -> Any:
    """Run a search."""
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1, "gpu": 1}),
        param_space={"rate": tune.grid_search(list(rates)), **(config or {})},
        tune_config=tune.TuneConfig(
            **{"metric": "loss", "mode": "min", "scheduler": scheduler, "reuse_actors": reuse, **options.pop("tune_config", {})}
        ),
        run_config=tune.RunConfig(
            **{"name": "search", **options},
            storage_path=str(folder / "results"),
            stop=stop,
            verbose=0,
            callbacks=[BeamerCallback(url=controller.url)],
        ),
    ).fit()


def known(controller: Served, study: str = "search", finished_at: int | None = None) -> dict[str, Any]:
    """Return what the controller knows of a search once it is over: nothing is left of it that runs or is waited for.

    finished_at: the step at which trials finish by themselves, which nobody knew as they had milestones beyond it.
    """
    deadline = time.monotonic() + PATIENCE_S
    one: dict[str, Any] = {}
    while one.get("status") != "ended" and time.monotonic() < deadline:
        time.sleep(0.05)
        one = studies(controller).get(study, {})
    assert one["status"] == "ended", one
    assert {trial["status"] for trial in one["trials"]} <= {"finished", "killed", "failed"}
    assert all(attempt["ended_s"] for trial in one["trials"] for attempt in trial["attempts"])
    others = [trial for trial in one["trials"] if (trial["status"], trial["done"]) != ("finished", finished_at)]
    unreached = [target for trial in others for target in trial["targets"] if target["reached_s"] is None]
    assert unreached == [], "phantom milestones"
    assert [stage["name"] for stage in one["stages"] if stage["status"] != "done" or stage["missing"]] == []
    return one


def studies(controller: Served) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in plain_http.get(f"{controller.url}/v1/studies").json()["studies"]}


def iterations(results: Any) -> dict[str, int]:
    return {one.metrics["trial_id"]: one.metrics["training_iteration"] for one in results}


def by_name(study: dict[str, Any], key: str) -> dict[str, Any]:
    return {trial["name"]: trial[key] for trial in study["trials"]}


def targets(trial: dict[str, Any], stage: bool) -> list[Any]:
    """Return the steps that were waited for, with their stages if stages have them."""
    return [(one["stage"], one["step"]) if stage else one["step"] for one in trial["targets"] if bool(one["stage"]) == stage]


def test_asha(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    config = {"first": (0.4, str(tmp_path / "first"))}
    results = run(tmp_path, controller, ASHAScheduler(max_t=8, reduction_factor=2), (0.4, 0.3, 0.02, 0.01), config=config)
    study = known(controller)
    assert (study["barriers"], [rung["step"] for rung in study["rungs"]]) == (False, [1, 2, 4, 8])
    assert by_name(study, "done") == iterations(results)
    for trial in study["trials"]:
        assert trial["status"] == ("finished" if trial["done"] == 8 else "killed")
        assert targets(trial, stage=False) == [step for step in (1, 2, 4, 8) if step <= trial["done"]]
        assert trial["loss"] == pytest.approx(min(one.metrics["loss"] for one in results if named(one) == trial["name"]))
    assert set(by_name(study, "status").values()) == {"finished", "killed"}
    hosts = [attempt["workers"][0]["host"] for trial in study["trials"] for attempt in trial["attempts"]]
    ips = {named(one): one.metrics["node_ip"] for one in results}
    assert hosts == [f"h{int(ips[trial['name']].rpartition('.')[2]) - 1}" for trial in study["trials"]]
    assert set(hosts) == {"h2", "h3"}


@pytest.mark.long
def test_asha_with_a_function_whose_last_result_comes_twice(
    cluster: LocalRayCluster, controller: Served, tmp_path: Path
) -> None:
    scheduler = ASHAScheduler(max_t=8, reduction_factor=2)
    config = {"steps": 6, "first": (0.4, str(tmp_path / "first"))}
    results = run(tmp_path, controller, scheduler, (0.4, 0.3, 0.01), config=config, trainable=descend)
    study = known(controller, finished_at=6)
    assert by_name(study, "done") == iterations(results)
    for trial in study["trials"]:
        assert trial["status"] == ("finished" if trial["done"] == 6 else "killed"), "the function ends before max_t"
        assert {step for step in (1, 2, 4) if step <= trial["done"]} <= set(targets(trial, stage=False)) <= {1, 2, 4, 8}
        assert trial["loss"] == pytest.approx(min(one.metrics["loss"] for one in results if named(one) == trial["name"]))
        assert len(trial["attempts"]) == 1
    assert set(by_name(study, "status").values()) == {"finished", "killed"}


def named(result: Any) -> str:
    return str(result.metrics["trial_id"])


@pytest.mark.long
def test_hyperband(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    rates = (0.05, 0.1, 0.15, 0.02, 0.3, 0.4)
    for number in range(TRIES):
        began = time.monotonic()
        scheduler, limit = HyperBandScheduler(max_t=4, reduction_factor=2), {"time_budget_s": HANGS_S}
        results = run(tmp_path / str(number), controller, scheduler, rates, reuse=True, tune_config=limit)
        if time.monotonic() - began < HANGS_S:
            break
        print("Ray's HyperBand hangs: see `Descent`")
    study = known(controller)
    assert study["barriers"]
    assert by_name(study, "done") == iterations(results)
    expected = {
        "band0-bracket0-rung0": (4, 3),  # a step, and how many trials come to it
        "band0-bracket1-rung0": (2, 3),
        "band0-bracket1-rung1": (4, 2),
    }
    found = {stage["name"]: (set(stage["targets"].values()), len(stage["targets"])) for stage in study["stages"]}
    assert found == {name: ({step}, trials) for name, (step, trials) in expected.items()}
    assert sum(targets(trial, stage=False) != [] for trial in study["trials"]) == 0
    assert sorted((trial["status"], trial["done"]) for trial in study["trials"]) == [("finished", 4)] * 5 + [("killed", 2)]
    # A trial that waits for others does not run.
    assert "paused" in {attempt["reason"] for trial in study["trials"] for attempt in trial["attempts"]}


@pytest.mark.long
@pytest.mark.parametrize("reuse", [True, False])
def test_population_based_training(cluster: LocalRayCluster, controller: Served, tmp_path: Path, reuse: bool) -> None:
    stop = {"training_iteration": 12}
    for number in range(TRIES):
        folder = tmp_path / str(number)
        results = run(folder, controller, population(synch=False), (0.01, 0.05, 0.2, 0.4), stop, reuse=reuse)
        if (folder / "results" / "search" / "pbt_global.txt").exists():  # Tune's own record of what was copied.
            break
        print("nothing was copied, as it happens where trials come to their intervals at other times than usual")
    else:
        pytest.fail("nothing was copied: the test shows nothing")
    study = known(controller)
    assert not study["barriers"]
    assert study["stages"] == []
    assert by_name(study, "done") == iterations(results)
    for trial in study["trials"]:
        assert set(begun(tmp_path, trial["name"])) <= {0, 4, 8}
        assert (trial["status"], trial["budget"], targets(trial, stage=False)[0]) == ("finished", 12, 4)
        assert set(targets(trial, stage=False)) == {4, 8, 12}


@pytest.mark.long
def test_generations_of_synchronous_population_based_training(
    cluster: LocalRayCluster, controller: Served, tmp_path: Path
) -> None:
    run(tmp_path, controller, population(synch=True), (0.01, 0.05, 0.2, 0.4), {"training_iteration": 10}, reuse=True)
    study = known(controller)
    assert study["barriers"]
    found = [(stage["name"], set(stage["targets"].values()), len(stage["targets"])) for stage in study["stages"]]
    assert found == [("generation0", {4}, 4), ("generation1", {8}, 4), ("generation2", {10}, 4)]
    assert {(trial["status"], trial["done"]) for trial in study["trials"]} == {("finished", 10)}


def population(synch: bool) -> PopulationBasedTraining:
    return PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=4,
        hyperparam_mutations={"rate": [0.01, 0.1, 0.4]},
        synch=synch,
    )


@pytest.mark.long
def test_plain_search_with_a_metric_to_maximise(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    stop = {"training_iteration": 5}
    results = run(tmp_path, controller, None, (0.1, 0.2), stop, tune_config={"metric": "score", "mode": "max"}, name="a b=1,c")
    study = known(controller, "a b=1,c")
    assert (study["barriers"], study["rungs"], study["stages"]) == (False, [], [])
    assert {(trial["status"], trial["done"], trial["budget"]) for trial in study["trials"]} == {("finished", 5, 5)}
    assert by_name(study, "loss") == {named(one): pytest.approx(-one.metrics["score"]) for one in results}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of hpbandster, which is old
def test_bohb(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    pytest.importorskip("hpbandster", reason="hpbandster, which Ray's TuneBOHB imports, is not installed")
    from ray.tune.schedulers import HyperBandForBOHB
    from ray.tune.search import ConcurrencyLimiter
    from ray.tune.search.bohb import TuneBOHB

    results = tune.Tuner(
        tune.with_resources(Descent, {"cpu": 1, "gpu": 1}),
        param_space={"rate": tune.uniform(0.01, 0.4)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=6,
            scheduler=HyperBandForBOHB(max_t=4, reduction_factor=2),
            search_alg=ConcurrencyLimiter(TuneBOHB(), max_concurrent=4),
        ),
        run_config=tune.RunConfig(
            name="search", storage_path=str(tmp_path / "results"), verbose=0, callbacks=[BeamerCallback(url=controller.url)]
        ),
    ).fit()
    study = known(controller)
    assert by_name(study, "done") == iterations(results)
    assert {"band0-bracket0-rung0", "band0-bracket0-rung1"} <= {stage["name"] for stage in study["stages"]}
    assert {trial["status"] for trial in study["trials"]} == {"finished", "killed"}


@pytest.mark.long
def test_median_stopping(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    scheduler = MedianStoppingRule(time_attr="training_iteration", grace_period=3)
    stop = {"training_iteration": 8}
    results = run(tmp_path, controller, scheduler, (0.4, 0.3, 0.2, 0.1, 0.01, 0.02), stop, reuse=True)
    study = known(controller)
    assert by_name(study, "done") == iterations(results)
    assert {(trial["status"], trial["done"] == 8) for trial in study["trials"]} == {("finished", True), ("killed", False)}


@pytest.mark.long
def test_a_trial_that_fails_is_started_again_at_its_checkpoint_or_has_failed(
    cluster: LocalRayCluster, controller: Served, tmp_path: Path
) -> None:
    config = {"fails_at": 6, "marker": str(tmp_path / "failed")}
    options = {
        "failure_config": tune.FailureConfig(max_failures=1),
        "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=2),
    }
    run(tmp_path, controller, None, (0.1,), {"training_iteration": 8}, config=config, **options)
    [trial] = known(controller)["trials"]
    assert (trial["status"], trial["done"], len(trial["attempts"])) == ("finished", 8, 2)
    assert begun(tmp_path, trial["name"]) == [0, 4]
    (tmp_path / "failed").unlink()
    run(tmp_path / "again", controller, None, (0.1,), {"training_iteration": 8}, config=config)
    [trial] = known(controller)["trials"]
    assert (trial["status"], trial["done"]) == ("failed", 5)


def begun(folder: Path, trial: str) -> list[int | None]:
    """Return at which step each attempt of a trial began."""
    journal = Journal(f"sqlite:///{folder / 'controller.db'}", writes=False)
    try:
        events = [event for event in journal.replay() if isinstance(event, AttemptStarted)]
    finally:
        journal.close()
    return [event.step for event in events if split_key(event.trial)[1] == trial]


def test_an_interrupted_search_leaves_nothing(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    processes: list[Any] = []

    def interrupt() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            trials = studies(controller).get("search", {}).get("trials", [])
            running = [trial for trial in trials if trial["status"] == "running" and trial["done"] > 1]
            if len(running) == 2:
                processes.extend(trial["attempts"][-1]["workers"][0]["process"] for trial in running)
                break
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    results = run(tmp_path, controller, ASHAScheduler(max_t=1000, grace_period=500), (0.1, 0.2))
    thread.join()
    study = studies_when_ended(controller)
    assert {trial["status"] for trial in study["trials"]} == {"killed"}
    assert {process["pid"] for process in processes} == {one.metrics["pid"] for one in results}
    assert all(process["start"] and process["namespace"] for process in processes)


def studies_when_ended(controller: Served) -> dict[str, Any]:
    """Return what is known of a search that was interrupted: its milestones were not reached."""
    assert controller.until(lambda runtime: all(study.status.value == "ended" for study in runtime.tracker.studies.values()))
    return studies(controller)["search"]


def test_the_workers_of_a_trial_are_the_bundles_with_gpus(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    bundles = [{"CPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}]
    tune.Tuner(
        tune.with_resources(Descent, tune.PlacementGroupFactory(bundles, strategy="STRICT_SPREAD")),
        param_space={"rate": 0.1},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            name="search",
            storage_path=str(tmp_path / "results"),
            stop={"training_iteration": 3},
            verbose=0,
            callbacks=[BeamerCallback(url=controller.url)],
        ),
    ).fit()
    [trial] = known(controller)["trials"]
    assert sorted(worker["host"] for worker in trial["attempts"][0]["workers"]) == ["h2", "h3"]


def test_a_search_at_no_controller_goes_on(cluster: LocalRayCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    results = run(tmp_path, Nowhere(), ASHAScheduler(max_t=4), (0.1,))  # type: ignore[arg-type]
    assert iterations(results).popitem()[1] == 4
    assert [record for record in caplog.records if record.name == "beamer.integrations"] == []


class Nowhere:
    """A controller that is not there."""

    url = "http://127.0.0.1:9"


@pytest.mark.long
def test_a_driver_that_is_killed_is_missed_and_its_search_begins_anew(
    cluster: LocalRayCluster, controller: Served, tmp_path: Path
) -> None:
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "tests.ray.callback_program", address, controller.url, str(tmp_path / "killed")]
    driver = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        deadline = time.monotonic() + PATIENCE_S
        before: dict[str, Any] = {"trials": []}
        while {trial["status"] for trial in before["trials"]} != {"running"} and time.monotonic() < deadline:
            time.sleep(0.1)
            before = studies(controller).get("search", before)
        assert {trial["status"] for trial in before["trials"]} == {"running"}
    finally:
        driver.kill()
        driver.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S  # twice a member's lease
    while studies(controller)["search"]["status"] == "active" and time.monotonic() < deadline:
        time.sleep(0.5)
    lost = studies(controller)["search"]
    assert (lost["status"], {trial["status"] for trial in lost["trials"]}) == ("silent", {"silent"})
    run(tmp_path, controller, ASHAScheduler(max_t=4), (0.1,))
    study = known(controller)
    assert (study["past_runs"], len(study["trials"])) == ([before["run"]], 1)
    assert controller.until(lambda runtime: all(t.status.value != "running" for t in runtime.tracker.trials.values()))
