"""The processes of a search's trials on nodes that it shares: the GPUs that each computes on until it is gone, and which it is.

A process is told its GPUs before the trial is set up, and says which process it is: Ray's own record of it has neither its
start nor its process namespace, without which a host's agent takes no process for a worker. What a trial starts elsewhere as
Ray actors it sees to itself.

Uses parts of Ray that are not documented: of Tune's controller `_trial_to_actor`, `_class_cache` and `_actor_manager` with its
`_pending_actors_to_attrs` and `_live_actors_to_ray_actors_resources`; an actor's `_actor_id`; Ray's table of actors, as the
documented one needs the dashboard; its key-value store; how it has GPUs made visible.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ray import get_runtime_context
from ray._private.accelerators import get_accelerator_manager_for_resource
from ray._private.state import state
from ray._private.worker import global_worker
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put
from ray.tune.experiment import Trial

from beamer.client.lease import describe_process
from beamer.engines.ray_tune.cluster import GPU
from beamer.gpu.devices import Devices
from beamer.studies.model import Process

NAMESPACE = "beamer"  # namespace of the key-value store
DEAD = "DEAD"


@dataclass
class _TrialProcess:
    """A process that was asked for. devices: its GPUs. actor: Ray's id of it, "" as long as it has not been started."""

    devices: Devices
    actor: str = ""
    process: Process | None = None


class TrialProcesses:
    """Know the processes of a search's trials. environment: variables that each is told. resource: that is granted."""

    def __init__(self, environment: Mapping[str, str], resource: str = GPU) -> None:
        self._resource = resource
        self._environment = dict(environment)
        self._classes: dict[tuple[type, tuple[int, ...]], type] = {}
        self._known: dict[Any, _TrialProcess] = {}

    @property
    def used(self) -> Devices:
        """The GPUs that processes compute on, or are about to."""
        return tuple(sorted({device for one in self._known.values() for device in one.devices}))

    def place(self, controller: Any, trial: Trial, devices: Devices, node: str) -> None:
        """Have the process that is asked for for a trial compute on GPUs. node: where it runs; of GPUs elsewhere it uses none.

        One that another trial has left computes on these GPUs already.
        """
        actor, waiting = controller._trial_to_actor.get(trial), controller._actor_manager._pending_actors_to_attrs
        if actor not in waiting:
            return
        trainable = trial.get_trainable_cls()
        # Nothing says which CPUs a process computes on.
        key = trainable, tuple(index for name, index in devices if name == node and self._resource == GPU)
        if key not in self._classes:
            self._classes[key] = placed(*key, self._environment)
        _, options, resources = waiting[actor]
        waiting[actor] = controller._class_cache.get(self._classes[key]), options, resources
        self._known[actor] = _TrialProcess(devices)

    def of(self, controller: Any, trial: Trial) -> Mapping[str, Process]:
        """Return the process of a trial by its node, nothing where it has none or workers on other nodes, too."""
        one = self._known.get(controller._trial_to_actor.get(trial))
        nodes = {node for node, _ in one.devices} if one else set()
        return dict.fromkeys(nodes, one.process) if one and one.process and len(nodes) == 1 else {}

    def refresh(self, controller: Any) -> None:
        """Take in which processes have been started, which they are, and which are gone."""
        manager = controller._actor_manager
        for actor, one in list(self._known.items()):
            if live := manager._live_actors_to_ray_actors_resources.get(actor):
                one.actor = live[0]._actor_id.hex()
                one.process = one.process or _announced(one.actor)
            elif actor not in manager._pending_actors_to_attrs and _is_gone(one.actor):
                del self._known[actor]
                if one.actor:
                    _internal_kv_del(one.actor, namespace=NAMESPACE)


def placed(trainable: type, indices: tuple[int, ...], environment: Mapping[str, str]) -> type:
    """Return a trainable that is the same but for the GPUs that its process computes on, and what its environment says."""

    class Placed(trainable):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            announce(indices, environment)
            super().__init__(*arguments, **options)

    Placed.__name__, Placed.__qualname__ = trainable.__name__, trainable.__qualname__
    return Placed


def announce(indices: tuple[int, ...], environment: Mapping[str, str]) -> None:
    """Make GPUs of a node the ones that are visible to this actor's process, by their indices, and say which process it is."""
    of_node = global_worker.original_visible_accelerator_ids.get("GPU") or ()
    visible = [str(of_node[index]) if index < len(of_node) else str(index) for index in indices]
    get_accelerator_manager_for_resource("GPU").set_current_process_visible_accelerator_ids(visible)
    os.environ.update(environment)
    _internal_kv_put(get_runtime_context().get_actor_id(), json.dumps(asdict(describe_process())), namespace=NAMESPACE)


def _announced(actor: str) -> Process | None:
    found = _internal_kv_get(actor, namespace=NAMESPACE)
    return Process(**json.loads(found)) if found else None


def _is_gone(actor: str) -> bool:
    return not actor or state.actor_table(actor).get("State", DEAD) == DEAD
