"""Searches of Ray Tune at a controller, among others: the same outcome as alone, GPUs that no two use at once, kills."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import plain_http

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

import ray

from beamer.engines.ray_tune.cluster import alive
from beamer.engines.ray_tune.scheduler import BeamerScheduler
from beamer.errors import InputError
from eval.ray_cluster import LocalRayCluster
from tests.processes.shared_cluster import SharedCluster
from tests.processes.site import until
from tests.ray.conftest import ROOT
from tests.ray.program import RATES, RUNGS, search
from tests.ray.searches import overlaps, steps, undisturbed
from tests.support.served_controller import Served, served
from topologies.single import build

# Tune does not close its trials' result files when a search ends before they do.
pytestmark = [pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"), pytest.mark.timeout(600)]


def expected() -> dict[str, int]:
    """Return how far each rate comes: what is lost by a rate at a rung's end decides."""
    left, until_step = list(RATES), {}
    for rung in RUNGS:
        until_step |= {str(rate): rung.step for rate in sorted(left, key=lambda rate: undisturbed(rate, rung.step)[-1])}
        later = next((one for one in RUNGS if one.step > rung.step), rung)
        left = sorted(left, key=lambda rate: undisturbed(rate, rung.step)[-1])[: later.trials]
    return until_step


def host_names() -> dict[str, str]:
    """Return the hosts of the controller's network by the addresses of Ray's nodes."""
    return {node.address: f"h{i}" for i, node in enumerate(alive(), 1)}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(build(hosts=2), tmp_path / "controller.db", "beamer", gpus="fifo") as one:
        yield one


@pytest.fixture
def shared(tmp_path: Path, cluster: LocalRayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedCluster]:
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0.5")  # for what is killed
    made = SharedCluster(tmp_path)
    yield made
    made.close()


def start(shared: SharedCluster, study: str, **options: Any) -> None:
    """Start a search of Ray as a program of its own."""
    options = {
        "address": ray.get_runtime_context().gcs_address,
        "root": str(ROOT),
        "folder": str(shared.root / study),
        "locks": str(shared.root / "locks"),
        "url": shared.url,
        "study": study,
        "hosts": host_names(),
        "pause_s": 0.1,
        **options,
    }
    shared.start_program(study, "tests.ray.program", json.dumps(options))


def outcome(shared: SharedCluster, study: str) -> Any:
    """Wait for a program's end and return how far each rate has come."""
    output = shared.processes[study].communicate(timeout=240)[0]
    assert shared.processes[study].returncode == 0, output
    return json.loads((shared.root / study / "outcome").read_text())


def iterations(results: ray.tune.ResultGrid) -> dict[str, int]:
    return {str(result.config["rate"]): result.metrics["training_iteration"] for result in results}


@pytest.mark.long
def test_an_experiment_ends_at_a_controller_as_it_does_alone(
    cluster: LocalRayCluster, controller: Served, tmp_path: Path
) -> None:
    (tmp_path / "locks").mkdir()
    alone = search(tmp_path / "alone", None, "alone", host_names(), tmp_path / "locks", 0.0)
    assert iterations(alone) == expected()
    results = search(tmp_path / "s", controller.url, "s", host_names(), tmp_path / "locks", 0.0)
    assert not results.errors
    assert iterations(results) == expected()
    assert overlaps(line for lines in steps(tmp_path / "s").values() for line in lines) == []
    assert not (tmp_path / "locks" / "violations").exists()
    [study] = plain_http.get(f"{controller.url}/v1/studies").json()["studies"]
    assert (study["name"], study["status"]) == ("s", "ended")
    assert {stage["name"]: stage["ended_s"] is not None for stage in study["stages"]} == {rung.name: True for rung in RUNGS}
    attempts = [attempt for trial in study["trials"] for attempt in trial["attempts"]]
    workers = [worker for attempt in attempts for worker in attempt["workers"]]
    assert {worker["host"] for worker in workers} == {"h1", "h2"}
    assert sorted(trial["done"] for trial in study["trials"]) == sorted(expected().values())
    gpus = plain_http.get(f"{controller.url}/v1/gpus").json()
    assert (gpus["engines"], gpus["trials"]) == ([], {})
    assert [(node["name"], node["gpus"]) for node in gpus["nodes"]] == [("h1", 2), ("h2", 2)]


@pytest.mark.long
def test_the_process_of_a_trial_is_known_before_it_has_trained(cluster: LocalRayCluster, shared: SharedCluster) -> None:
    shared.start_controller("fifo")
    start(shared, "s", pause_s=1.0)

    def first() -> Any:
        time.sleep(0.2)  # the controller is to have time for others
        for study in shared.get("studies")["studies"]:
            for trial in study["trials"]:
                for attempt in trial["attempts"]:
                    if attempt["workers"][0]["process"]:
                        return trial, attempt["workers"][0]["process"]
        return None

    trial, process = until(first, "a worker's process")
    assert trial["done"] <= 1
    assert process["namespace"] == int(os.readlink("/proc/self/ns/pid").partition("[")[2].rstrip("]"))
    assert process["start"] == int(Path(f"/proc/{process['pid']}/stat").read_text().rpartition(")")[2].split()[19])
    plain_http.put(f"{shared.url}/v1/studies/s/end").raise_for_status()
    reached = outcome(shared, "s")
    assert max(reached.values(), default=0) < RUNGS[-1].step, "ended here, too"
    until(lambda: not shared.get("gpus")["engines"], "the engine to leave")


@pytest.mark.long
def test_two_experiments_end_as_if_alone_though_the_controller_is_killed(
    cluster: LocalRayCluster, shared: SharedCluster
) -> None:
    shared.start_controller("fifo")
    for study in ("s1", "s2"):
        start(shared, study)
    until(lambda: len(shared.get("gpus")["engines"]) == 2, "both engines")
    for _ in range(2):
        until(lambda: len(shared.get("gpus")["trials"]) == 4, "GPUs to be in use")
        time.sleep(3.0)
        shared.kill("controller")
        time.sleep(1.0)
        shared.start_controller("fifo")
    for study in ("s1", "s2"):
        assert outcome(shared, study) == expected()
    assert not shared.violations
    assert shared.get("gpus")["trials"] == {}
    assert {study["name"]: study["status"] for study in shared.get("studies")["studies"]} == {"s1": "ended", "s2": "ended"}


@pytest.mark.long
def test_an_experiment_that_is_killed_goes_on_beside_a_search_of_programs(
    cluster: LocalRayCluster, shared: SharedCluster
) -> None:
    shared.start_controller("fifo")
    nodes = [{"name": name, "gpus": 2, "cpus": 8, "devices": [f"{name}-{i}" for i in range(2)]} for name in ("h1", "h2")]
    shared.write_search("programs", {"d": 0.2}, nodes=nodes, rungs=[{"iterations": 1500}])
    shared.start_search("programs")
    # so that Ray, which knows nothing of it, would give this GPU to a trial
    until(lambda: shared.get("gpus")["trials"] == {"programs/d": [["h1", 0]]}, "a GPU of programs")
    start(shared, "s", pause_s=0.4)
    until(lambda: (shared.root / "s" / "lines").exists() and len(steps(shared.root / "s")) >= 3, "steps on all other GPUs")
    time.sleep(1.0)  # in which Tune keeps what there is
    shared.kill("s")
    # After a kill at a rung's end Tune may know a step less than the journal. A trial that has lost does not repeat that step.
    assert max(map(len, steps(shared.root / "s").values())) < RUNGS[0].step
    assert [key for key in shared.get("gpus")["trials"] if key.startswith("s/")], "kept for it"
    start(shared, "s", restore=True)
    assert outcome(shared, "s") == expected()
    assert shared.ended("programs")["best"] == "d"
    assert not shared.violations
    assert shared.get("gpus")["trials"] == {}


def test_a_node_that_is_no_host_is_refused_by_name(cluster: LocalRayCluster, controller: Served, tmp_path: Path) -> None:
    hosts = dict(list(host_names().items())[:1])
    missing = next(node for node in alive() if node.address not in hosts)
    with pytest.raises(Exception, match=f"at {missing.address}'.*a host of the controller's network.*h1 at 10"):
        search(tmp_path / "s", controller.url, "s", hosts, tmp_path, 0.0)
    assert plain_http.get(f"{controller.url}/v1/studies").json()["studies"] == []


def test_what_does_not_go_with_a_controller_is_refused(tmp_path: Path) -> None:
    journal = f"sqlite:///{tmp_path / 'journal.db'}"
    with pytest.raises(InputError, match="journal: got None"):
        BeamerScheduler(controller="http://127.0.0.1:1")
    with pytest.raises(InputError, match="policy: got 'fifo'"):
        BeamerScheduler("fifo", controller="http://127.0.0.1:1", journal=journal)
    with pytest.raises(InputError, match="seed: got 3"):
        BeamerScheduler(seed=3, controller="http://127.0.0.1:1", journal=journal)
    with pytest.raises(InputError, match=r"hosts: .* none without a controller"):
        BeamerScheduler(hosts={"a": "h1"})
