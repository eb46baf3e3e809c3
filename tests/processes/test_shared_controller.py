"""Searches that share a controller: real engines and trainers, GPUs that no two use at once, kills of every part."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamer.studies.model import split_key
from tests.processes.shared_cluster import NODES, TIMEOUT_S, SharedCluster
from tests.processes.site import of_directory, until
from tests.support import plain_http
from tests.support.tiers import long


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path)
    yield made
    made.close()


def outcome(figures: Mapping[str, Any]) -> dict[str, tuple[str, str, float, float]]:
    rows = figures["configurations"]
    return {row["name"]: (row["status"], row["rung"], row["iterations"], row["best_loss"]) for row in rows}


def alone(root: Path, shared: SharedCluster) -> dict[str, tuple[str, str, float, float]]:
    """Return how the search ends by itself, without a controller."""
    shared.write_search("alone")
    content = yaml.safe_load((root / "alone.yaml").read_text())
    content["job"]["env"] |= {"BEAMER_URL": "none", "BEAMER_RUN": "none"}
    (root / "alone.yaml").write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "beamer.cli", "schedule", root / "alone.yaml", "--dir", root / "alone", "--quiet"]
    subprocess.run([*map(str, command), "--policy", "fifo", "--json", str(root / "alone.json")], check=True, timeout=TIMEOUT_S)
    return outcome(json.loads((root / "alone.json").read_text()))


@pytest.mark.parametrize("policy", ["hermes", *long("tiresias")])
def test_searches_share_gpus_under_one_policy(shared: SharedCluster, policy: str) -> None:
    expected = alone(shared.root, shared)
    shared.start_controller(policy)
    for name in ("s1", "s2"):
        shared.write_search(name)
        shared.start_search(name)

    def both() -> Any:
        found = shared.get("gpus")
        return {split_key(key)[0] for key in found["trials"]} == {"s1", "s2"} and found

    seen = until(both, "both searches to have GPUs at once")
    assert set(seen["engines"]) == {"s1", "s2"}
    assert seen["policy"] == policy
    assert [node["name"] for node in seen["nodes"]] == ["h1", "h2"]
    for name in ("s1", "s2"):
        figures = shared.ended(name)
        assert (outcome(figures), figures["best"], figures["policy"]) == (expected, "d", policy)
    assert not shared.violations
    assert shared.get("gpus")["trials"] == {}
    studies = shared.get("studies")["studies"]
    assert {study["name"]: study["status"] for study in studies} == {"s1": "ended", "s2": "ended"}
    assert {trial["name"]: trial["status"] for trial in studies[0]["trials"]} == {
        name: status for name, (status, *_) in expected.items()
    }


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_anywhere_both_searches_end_as_if_undisturbed(shared: SharedCluster) -> None:
    expected = alone(shared.root, shared)
    shared.start_controller("fifo")
    for name in ("s1", "s2"):
        shared.write_search(name)
        shared.start_search(name)
    shared.get("gpus")
    rng = random.Random(15)
    kills = 0
    while kills < 12:
        time.sleep(rng.uniform(0.3, 1.2))
        victim = rng.choice(["controller", "s1", "s2", "trainer"])
        if victim == "trainer":
            ranks = [pid for pid in of_directory(shared.root / "locks") if pid not in _pids(shared)]
            if not ranks:
                continue
            os.kill(rng.choice(ranks), signal.SIGKILL)
        elif shared.processes[victim].poll() is None:
            shared.kill(victim)
            if victim == "controller":
                shared.start_controller("fifo")
            else:
                shared.start_search(victim)
        else:
            break
        kills += 1
    assert kills >= 6, "the searches took long enough to be disturbed"
    for name in ("s1", "s2"):
        figures = shared.ended(name)
        assert (outcome(figures), figures["best"]) == (expected, "d")
    assert not shared.violations
    assert shared.get("gpus")["trials"] == {}
    assert {study["status"] for study in shared.get("studies")["studies"]} == {"ended"}


def _pids(shared: SharedCluster) -> set[int]:
    return {process.pid for process in shared.processes.values()}


@pytest.mark.long
def test_an_interrupted_search_frees_its_gpus_and_goes_on_later(shared: SharedCluster) -> None:
    shared.start_controller("fifo")
    shared.write_search("s1", silent_s=60)
    first = shared.start_search("s1")
    until(lambda: shared.get("gpus")["trials"], "trials of s1")
    shared.write_search("s2")
    shared.start_search("s2")
    time.sleep(0.5)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=TIMEOUT_S)
    assert first.returncode == 128 + signal.SIGINT
    assert not [key for key in shared.get("gpus")["trials"] if key.startswith("s1/")]
    assert shared.ended("s2")["best"] == "d"
    shared.start_search("s1")
    assert shared.ended("s1")["best"] == "d"
    assert not shared.violations


def test_a_study_that_is_ended_at_the_controller_ends_here(shared: SharedCluster) -> None:
    shared.start_controller("fifo")
    shared.write_search("s1")
    shared.start_search("s1")
    until(lambda: shared.get("gpus")["trials"], "trials of s1")
    plain_http.put(f"{shared.url}/v1/studies/s1/end").raise_for_status()
    figures = shared.ended("s1")
    assert {row["status"] for row in figures["configurations"]} == {"killed"}
    until(lambda: not [pid for pid in of_directory(shared.root / "locks") if pid not in _pids(shared)], "trainers to end")


@pytest.mark.long
def test_what_cannot_be_shared_is_refused(shared: SharedCluster) -> None:
    shared.start_controller("fifo")
    shared.get("gpus")
    shared.write_search("s1", nodes=[{"name": "h3", "gpus": 1}])
    refused = shared.start_search("s1")
    output = refused.communicate(timeout=TIMEOUT_S)[0]
    assert "refuses: nodes[0].name: got 'h3', expected a host of the network: one of" in output.replace("\n", " "), output
    assert refused.returncode == 2
    assert not (shared.root / "s1").exists(), "nothing has run there"
    shared.write_search("s2")
    shared.start_search("s2")
    until(lambda: shared.get("gpus")["engines"], "the engine of s2")
    shared.write_search("s3", nodes=NODES[:1])
    refused = shared.start_search("s3")
    output = refused.communicate(timeout=TIMEOUT_S)[0]
    assert "expected the nodes of the engine of s2, which are shared: h2 (2 GPUs, 0 cores)" in output.replace("\n", " "), output
    assert shared.ended("s2")["best"] == "d"
