"""The trials of a Tune controller, for the engine.

Starts are made and withdrawn, held trials released, and restored decisions dropped, through parts of Tune that are not
documented: `TuneController._staged_trials`, `_actor_cache`, `_schedule_trial_actor`, `_trial_to_actor`,
`_unstage_trial_with_resources`, `_actor_manager` and its `_resource_manager`, `_schedule_trial_train`, `_schedule_trial_pause`,
`_cached_trial_decisions`, and on shared nodes `_insufficient_resources_manager`; see also `processes`, `shared` and
`placement_groups`.

On nodes that are shared, a trial that is pending is not started before its GPUs are free of the search's own processes: Ray
counts GPUs, and would take any of the node's. Ray does not know those of other searches: a controller sees to them.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import ref

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from beamer.engines.ray_tune.cluster import GPU, alive, pinned
from beamer.engines.ray_tune.engine import TuneTrials, gpus_by_node
from beamer.engines.ray_tune.hosts import SharedNodes
from beamer.engines.ray_tune.placement_groups import SettledPlacementGroups
from beamer.engines.ray_tune.processes import TrialProcesses
from beamer.gpu.devices import Devices
from beamer.gpu.engine import Placement
from beamer.gpu.model import Node
from beamer.studies.model import Process


class Sharing(NamedTuple):
    """What a search needs that shares its nodes with others."""

    nodes: SharedNodes
    processes: TrialProcesses


class RayTrials(TuneTrials):
    """The trials that were added.

    batch_size: the key of configurations that a granted batch size is written to. poll_s: for how long a list of nodes is used.
    sharing: of nodes with other searches, None where there are none. resource: that is granted.
    """

    def __init__(self, batch_size: str | None, poll_s: float, sharing: Sharing | None = None, resource: str = GPU) -> None:
        self.resource = resource
        self._controller: Callable[[], Any] = lambda: None
        self._batch_size = batch_size
        self._poll_s = poll_s
        self._polled_at = -poll_s
        self._sharing = sharing
        self._nodes: tuple[Node, ...] = ()
        self._ids: dict[str, str] = {}  # identifiers of Ray's nodes, by the nodes' names in Beamer
        self._waiting: dict[str, Devices] = {}  # GPUs that are not free yet, by pending trial
        self._trials: dict[str, Trial] = {}
        self._asked: dict[str, PlacementGroupFactory] = {}
        self._trainables: dict[str, Any] = {}

    @property
    def controller(self) -> Any:
        """Tune's controller, as last set."""
        return self._controller()

    @controller.setter
    def controller(self, controller: Any) -> None:
        self._controller = ref(controller)  # The controller owns the scheduler, and is to end with its search.
        if not isinstance(controller._actor_manager._resource_manager, SettledPlacementGroups):
            controller._actor_manager._resource_manager = SettledPlacementGroups()
        if self._sharing:
            controller._actor_cache._may_keep_one = False  # Tune would keep a process for which no trial is staged.
            controller._insufficient_resources_manager.on_no_available_trials = _ignore

    def add(self, trial: Trial) -> None:
        """Take in a pending trial and pause it; one that is known has failed.

        Tune restores with a search the decision that it had kept for a trial while a checkpoint was written, and carries that
        out in place of the one on the trial's next result. A trial that was held would wait for ever, so it is dropped.
        """
        self.controller._cached_trial_decisions.pop(trial.trial_id, None)
        if trial.trial_id in self._trials:
            self.controller._set_trial_status(trial, Trial.PAUSED)
        else:
            self._trials[trial.trial_id], self._asked[trial.trial_id] = trial, trial.placement_group_factory
            trial.set_status(Trial.PAUSED)  # Tune lists the trial by its status after this call.
            # Tune creates the path when a trial becomes due, and cannot read the results of a trial that never was.
            trial.init_local_path()

    def refresh_nodes(self) -> None:
        """Have the nodes listed anew when they are next asked for."""
        self._polled_at = time.monotonic() - self._poll_s

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up and declare GPUs."""
        now = time.monotonic()
        if now >= self._polled_at + self._poll_s:
            found = alive(self.resource)
            if self._sharing:
                up = self._sharing.nodes.up(found)
            else:
                up = {Node(node.node_id, node.gpus, node.cpus): node for node in found}
            self._nodes, self._polled_at = tuple(up), now
            self._ids |= {node.name: known.node_id for node, known in up.items()}
        return self._nodes

    def processes(self, trial: str) -> Mapping[str, Process] | None:
        """Return a trial's process, None where nodes are not shared."""
        return self._sharing.processes.of(self.controller, self._trials[trial]) if self._sharing else None

    @property
    def used(self) -> Devices:
        """The GPUs of shared nodes that the search's processes compute on, or are about to."""
        return self._sharing.processes.used if self._sharing else ()

    def trainable(self, trial: Trial) -> Any:
        """Return what a trial runs: Ray asks its head node for it at every call, which takes two milliseconds."""
        name = trial.trainable_name
        if name not in self._trainables:
            self._trainables[name] = trial.get_trainable_cls()
        return self._trainables[name]

    def status(self, trial: str) -> str:
        """Return Tune's status of a trial."""
        return str(self._trials[trial].status)

    def error(self, trial: str) -> str:
        """Return what a trial failed of."""
        return str(self._trials[trial].get_error() or "")

    def has_gpus(self, trial: str) -> bool:
        """Say whether a pending trial has been given its GPUs."""
        one = self._trials[trial]
        actor = self.controller._trial_to_actor.get(one)
        resets = one in self.controller._resetting_trials
        return resets or (actor is not None and self.controller._actor_manager.is_actor_started(actor))

    def launch(self, trial: str, placement: Placement) -> None:
        """Let a paused trial wait for GPUs on these nodes.

        It is staged at once, and not at Tune's next step: once no trial is to be added, Tune keeps the process of a trial that
        leaves its GPUs for another (`reuse_actors`) only if one is staged then.
        """
        one, exact = self._trials[trial], placement.devices if self._sharing else ()
        gpus = {self._ids[node]: count for node, count in gpus_by_node(placement).items()}
        one.update_resources(pinned(gpus, self._asked[trial], exact, self.resource))
        if self._batch_size and placement.batch_size:
            one.set_config({**one.config, self._batch_size: placement.batch_size})
        self.controller._set_trial_status(one, Trial.PENDING)
        self.controller._staged_trials.add(one)
        self.controller._actor_cache.increase_max(one.placement_group_factory)
        self._waiting[trial] = exact
        self._start_waiting()

    @property
    def is_idle(self) -> bool:
        """Whether Tune waits for nothing, so that its loop turns without a pause."""
        return bool(self.controller._actor_manager.num_total_actors == 0)

    def refresh_processes(self) -> None:
        """Take in what has become of processes, and start trials whose GPUs are free by now."""
        if self._sharing:
            self._sharing.processes.refresh(self.controller)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start pending trials whose GPUs are free, or are those of a process that another trial has left."""
        for trial, devices in list(self._waiting.items()):
            one = self._trials[trial]
            if one.status != Trial.PENDING or one in self.controller._trial_to_actor:
                del self._waiting[trial]
            elif self.controller._actor_cache.has_cached_object(one.placement_group_factory) or not {*devices} & {*self.used}:
                del self._waiting[trial]
                self.controller._schedule_trial_actor(one)
                if self._sharing:
                    nodes = gpus_by_node(Placement(devices))
                    self._sharing.processes.place(self.controller, one, devices, max(nodes, key=nodes.__getitem__))

    def proceed(self, trial: str) -> None:
        """Have a trial that is held make its next step."""
        one = self._trials[trial]
        if one.is_saving:
            self.controller._cached_trial_decisions[trial] = TrialScheduler.CONTINUE
        else:
            self.controller._schedule_trial_train(one)

    def pause(self, trial: str) -> None:
        """Pause a trial that is held; a checkpoint that is being written is the one that it continues from."""
        one = self._trials[trial]
        if one.is_saving:
            self.controller._cached_trial_decisions[trial] = TrialScheduler.PAUSE
        else:
            self.controller._schedule_trial_pause(one, should_checkpoint=True)

    def withdraw(self, trial: str) -> None:
        """Pause a trial that waits for GPUs."""
        one = self._trials[trial]
        self._waiting.pop(trial, None)
        if one in self.controller._staged_trials:
            self.controller._unstage_trial_with_resources(one)
        if one in self.controller._trial_to_actor:
            self.controller.pause_trial(one, should_checkpoint=False)
        else:
            self.controller._set_trial_status(one, Trial.PAUSED)

    def stop(self, trial: str) -> None:
        """End a trial."""
        self.controller.stop_trial(self._trials[trial])


def unwrapped(controller: Any) -> Any:
    """Return Tune's controller itself: some calls bring it, others a wrapper."""
    return vars(controller).get("_tune_controller", controller)


def _ignore(trials: Any) -> None:
    """Say nothing of a search that runs no trial: others may have the GPUs."""
