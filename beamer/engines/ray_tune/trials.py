"""The trials of a Tune controller, for the engine.

Starts are made and withdrawn, and held trials released, through parts of Tune that are not documented:
`TuneController._staged_trials`, `_actor_cache`, `_schedule_trial_actor`, `_trial_to_actor`, `_unstage_trial_with_resources`,
`_actor_manager`, `_schedule_trial_train`, `_schedule_trial_pause`, `_cached_trial_decisions`.
"""

import time
from collections.abc import Callable
from typing import Any
from weakref import ref

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from beamer.engines.ray_tune.cluster import alive, pinned
from beamer.engines.ray_tune.engine import TuneTrials, gpus_by_node
from beamer.gpu.engine import Placement
from beamer.gpu.model import Node


class RayTrials(TuneTrials):
    """The trials that were added.

    batch_size: the key of configurations that a granted batch size is written to. poll_s: for how long a list of nodes is used.
    """

    def __init__(self, batch_size: str | None, poll_s: float) -> None:
        self._controller: Callable[[], Any] = lambda: None
        self._batch_size = batch_size
        self._poll_s = poll_s
        self._polled_at = -poll_s
        self._nodes: tuple[Node, ...] = ()
        self._trials: dict[str, Trial] = {}
        self._asked: dict[str, PlacementGroupFactory] = {}

    @property
    def controller(self) -> Any:
        """Tune's controller, as last set."""
        return self._controller()

    @controller.setter
    def controller(self, controller: Any) -> None:
        self._controller = ref(controller)  # it owns the scheduler, and is to end with its search

    def add(self, trial: Trial) -> None:
        """Take in a pending trial and pause it; one that is known has failed."""
        if trial.trial_id in self._trials:
            self.controller._set_trial_status(trial, Trial.PAUSED)
        else:
            self._trials[trial.trial_id], self._asked[trial.trial_id] = trial, trial.placement_group_factory
            trial.set_status(Trial.PAUSED)  # Tune lists it by its status after this call
            trial.init_local_path()  # Tune does it when a trial becomes due, and cannot read the results of one that never was

    def refresh_nodes(self) -> None:
        """Have the nodes listed anew when they are next asked for."""
        self._polled_at = time.monotonic() - self._poll_s

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up and declare GPUs."""
        now = time.monotonic()
        if now >= self._polled_at + self._poll_s:
            self._nodes, self._polled_at = alive(), now
        return self._nodes

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
        one = self._trials[trial]
        one.update_resources(pinned(gpus_by_node(placement), self._asked[trial]))
        if self._batch_size and placement.batch_size:
            one.set_config({**one.config, self._batch_size: placement.batch_size})
        self.controller._set_trial_status(one, Trial.PENDING)
        self.controller._staged_trials.add(one)
        self.controller._actor_cache.increase_max(one.placement_group_factory)
        self.controller._schedule_trial_actor(one)

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
