"""Searches of Ray Tune that have a `BeamerCallback` beside what they had before: what the controller knows of them."""

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
from eval.ray_cluster import LocalRayCluster
from tests.ray.stock import Descent, network
from tests.support.served_controller import Served, served

# Tune does not close its trials' result files when a search ends before they do.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore:.*Tune.*:FutureWarning")

RATES = (0.01, 0.03, 0.05, 0.08, 0.1, 0.2, 0.3, 0.4)


@pytest.fixture
def controller(tmp_path: Path, cluster: LocalRayCluster) -> Iterator[Served]:
    addresses = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
    with served(network(addresses), tmp_path / "controller.db", "beamer") as one:
        yield one


def run(
    folder: Path,
    controller: Served,
    scheduler: Any,
    rates: Sequence[float] = RATES,
    stop: Any = None,
    reuse: bool = False,
    config: dict[str, Any] | None = None,
    trainable: Any = Descent,
    **options: Any,
) -> Any:
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1, "gpu": 1}),
        param_space={"rate": tune.grid_search(list(rates)), **(config or {})},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=scheduler, reuse_actors=reuse, **options.pop("tune_config", {})
        ),
        run_config=tune.RunConfig(
            name="search",
            storage_path=str(folder / "results"),
            stop=stop,
            verbose=0,
            callbacks=[BeamerCallback(url=controller.url)],
            **options,
        ),
    ).fit()


def known(controller: Served, study: str = "search") -> dict[str, Any]:
    """Return what the controller knows of a search, once it is over there."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = {one["name"]: one for one in plain_http.get(f"{controller.url}/v1/studies").json()["studies"]}
        if study in found and found[study]["status"] == "ended":
            break
        time.sleep(0.05)
    one: dict[str, Any] = found[study]
    assert one["status"] == "ended"
    for trial in one["trials"]:
        assert trial["status"] in ("finished", "killed", "failed")
        assert [t for t in trial["targets"] if t["reached_s"] is None] == [] or trial["status"] != "finished", trial
    assert all(stage["ended_s"] is not None for stage in one["stages"])
    return one


def iterations(results: Any) -> dict[str, int]:
    return {one.metrics["trial_id"]: one.metrics["training_iteration"] for one in results}


def done(study: dict[str, Any]) -> dict[str, int]:
    return {trial["name"]: trial["done"] for trial in study["trials"]}


def test_asha(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    results = run(tmp_path, controller, ASHAScheduler(max_t=16, grace_period=1, reduction_factor=4))
    study = known(controller)
    print(study)
    assert done(study) == iterations(results)
