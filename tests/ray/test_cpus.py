"""`BeamerScheduler` where there are no GPUs: CPUs are granted in their place."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

import ray
from ray.tune import PlacementGroupFactory

from beamer.engines.ray_tune.cluster import alive, gpus_asked, granted_resource, pinned
from beamer.errors import InputError
from beamer.gpu.events import NodesSeen
from beamer.studies.journal.store import Journal
from tests.support.checkout import ROOT

CPUS, GPUS = PlacementGroupFactory([{"CPU": 2}]), PlacementGroupFactory([{"CPU": 2, "GPU": 1}])


def node(address: str, **resources: float) -> dict[str, Any]:
    return {
        "NodeID": address,
        "Alive": True,
        "NodeManagerAddress": address,
        "NodeName": address,
        "NodeManagerHostname": "m",
        "Resources": resources,
    }


def test_cpus_are_granted_where_neither_nodes_nor_trials_have_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("10.0.0.1", CPU=4.0), node("10.0.0.2", CPU=2.5)]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert (granted_resource([CPUS]), granted_resource([]), granted_resource([CPUS, GPUS])) == ("CPU", "CPU", "GPU")
    assert [(one.address, one.gpus) for one in alive("CPU")] == [("10.0.0.1", 4), ("10.0.0.2", 2)]
    assert alive() == ()
    nodes.append(node("10.0.0.3", CPU=4.0, GPU=1.0))
    assert granted_resource([CPUS]) == "GPU"


def test_a_trial_of_two_cpus_is_granted_two() -> None:
    assert gpus_asked(CPUS, "CPU") == 2
    made = pinned({"n0": 1, "n1": 1}, CPUS, resource="CPU")
    assert made.bundles == [{"CPU": 1.0}, {"CPU": 1.0}]
    with pytest.raises(InputError, match="whole CPUs"):
        gpus_asked(PlacementGroupFactory([{"CPU": 0.5}]), "CPU")


@pytest.mark.long
def test_a_search_on_a_cluster_without_gpus(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.ray.cpu_program", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    outcome = dict(json.loads((tmp_path / "outcome").read_text()))
    assert {(last["cpus"], last["gpus"]) for last in outcome.values()} == {(2.0, 0)}
    # More of the metric is better: `TuneConfig` says so.
    assert outcome[0.9]["training_iteration"] == 16
    assert outcome[0.1]["training_iteration"] < 16
    journal = Journal(f"sqlite:///{tmp_path / 'j.db'}", writes=False)
    try:
        seen = [event for event in journal.replay() if isinstance(event, NodesSeen)]
    finally:
        journal.close()
    assert sorted(one.gpus for one in seen[-1].nodes) == [2, 2, 2]  # the head's CPUs, too
