"""Where a trial's process is: the process itself is asked before it trains, so that nobody waits for an answer.

A result says the address and the process id, but no sooner than after the first iteration, and not when the process started,
by which an agent tells it from a later one of the same id.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray
from ray.tune.result import HOSTNAME, NODE_IP

from beamer.studies.model import Process


@dataclass(frozen=True)
class Location:
    """nodes: address and name of the node of each worker, by rank. process: that of rank 0, None where it is not known."""

    nodes: tuple[tuple[str, str], ...]
    process: Process | None = None


class Locator:
    """Ask the processes of trials that start, and keep their answers until somebody takes them."""

    def __init__(self) -> None:
        self._function: Any = None
        self._answers: dict[Any, Future[Any]] = {}

    def ask(self, trial: Any) -> None:
        """Ask the process of a trial where it is, and where the bundles of the trial's resources are."""
        if self._function is None:
            self._function = ray.put(_locate)  # Pickling it for every trial would take twice as long.
        actor, bundles = trial.temporary_state.ray_actor, len(trial.placement_group_factory.bundles)
        self._answers[trial] = actor.__ray_call__.remote(self._function, bundles).future()

    def take(self, trial: Any) -> Location | None:
        """Return where a trial's workers are, None where its process has not answered yet, or could not."""
        answer = self._answers.get(trial)
        if answer is None or not answer.done():
            return None
        del self._answers[trial]
        return None if answer.exception() is not None else _location(answer.result(), trial.placement_group_factory)

    def answered(self) -> list[Any]:
        """Return the trials whose answers can be taken."""
        return [trial for trial, answer in self._answers.items() if answer.done()]


def _location(found: Mapping[str, Any], resources: Any) -> Location:
    ranks = worker_bundles(resources.bundles)
    nodes = tuple(found["bundles"][i] for i in ranks) if found["bundles"] else ((found["address"], found["name"]),)
    # The process of the trial is in the first bundle. Where that is no worker's, its workers are other processes.
    is_worker = 0 in ranks and not resources.head_bundle_is_empty
    return Location(nodes, Process(found["pid"], found["start"], found["namespace"]) if is_worker else None)


def of_result(result: Mapping[str, Any]) -> Location | None:
    """Return where a result says that it came from."""
    address = result.get(NODE_IP)
    return Location(((str(address), str(result.get(HOSTNAME, ""))),)) if address else None


def worker_bundles(bundles: Sequence[Mapping[str, float]]) -> list[int]:
    """Return which bundles hold workers: those with GPUs, or all where none has any."""
    with_gpus = [i for i, bundle in enumerate(bundles) if bundle.get("GPU")]
    return with_gpus or list(range(max(len(bundles), 1)))


def _locate(_: Any, bundles: int) -> dict[str, Any]:
    """Describe this process, and where the bundles of its placement group are. Runs where Beamer may not be installed."""
    import os
    import socket

    import ray

    found: dict[str, Any] = {
        "address": ray.util.get_node_ip_address(),
        "name": socket.gethostname(),
        "pid": os.getpid(),
        "start": 0,
        "namespace": 0,
        "bundles": [],
    }
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            found["start"] = int(file.read().rpartition(")")[2].split()[19])
        found["namespace"] = os.stat("/proc/self/ns/pid").st_ino
    except (OSError, ValueError, LookupError):
        pass
    group = ray.util.get_current_placement_group()
    if bundles > 1 and group is not None:
        nodes = {node["NodeID"]: (node["NodeManagerAddress"], node["NodeManagerHostname"]) for node in ray.nodes()}
        placed = ray.util.placement_group_table(group)["bundles_to_node_id"]
        found["bundles"] = [nodes[placed[i]] for i in range(bundles)]
    return found


# A function of `__main__` is sent by its code instead of its name.
_locate.__module__ = "__main__"
