"""A search of Tune as one among several at a controller: its link, the nodes that it shares, how it ends.

Tune's schedulers are not told of an experiment's end, but callbacks are: one is added to the undocumented list of them.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ray.tune import Callback

from beamer.client.urls import RUN_VARIABLE, URL_VARIABLE
from beamer.engines.ray_tune.cluster import GPU, alive
from beamer.engines.ray_tune.hosts import NodeHosts, SharedNodes
from beamer.engines.ray_tune.processes import TrialProcesses
from beamer.engines.ray_tune.trials import RayTrials, Sharing
from beamer.errors import InputError
from beamer.gpu.link import EngineLink, hosts_of
from beamer.gpu.remote import begin, leave
from beamer.studies.events import Event

ANSWER_S = 30.0  # The controller has so long to name the hosts, before the first trial.
GONE_S = 15.0  # After the experiment, processes have so long to end.
IDLE_S = 0.1  # longest pause between two turns of Tune's loop while no trial runs
POLL_S = 0.05  # interval of checks on processes that are to end

log = logging.getLogger("beamer.gpu")


class SharedSearch:
    """A search's connection to a controller.

    urls, study, run: as of `EngineLink`, with the environment of this process. hosts: as of `NodeHosts`. past: the journal's
    events. resource: that is granted. Raises `InputError` for Ray nodes that are no hosts of the controller's network, and
    where it refuses the search; `PlatformError` where no controller says which hosts there are.
    """

    def __init__(
        self, urls: str, study: str, run: str, hosts: Mapping[str, str], past: Iterable[Event], resource: str = GPU
    ) -> None:
        self._urls = urls
        nodes = SharedNodes(NodeHosts(hosts_of(urls, study, os.environ, ANSWER_S), hosts), alive(resource))
        self.sharing = Sharing(nodes, TrialProcesses({URL_VARIABLE: urls, RUN_VARIABLE: run}, resource))
        self.link = EngineLink(urls, study, run, nodes.declared, os.environ)
        try:
            begin(self.link, past, urls)
        except InputError:
            self.link.close()
            raise

    def follow(self, trials: RayTrials) -> bool:
        """Tell the controller what is used, wait if nothing runs, and return whether it says that the search is over.

        Raises `InputError` where it does not serve the search any more.
        """
        self.link.use(trials.used)
        if trials.is_idle:
            self.link.wait(IDLE_S)
        if self.link.refusal:
            raise InputError("controller", self._urls, f"one that serves the search; this one refuses: {self.link.refusal}")
        held = self.link.held
        return held is not None and held.assignment.ended

    def end(self, trials: RayTrials, revoke: Callable[[], None]) -> None:
        """Wait until no process of the search is left, and have its GPUs freed. revoke: takes them from its trials here."""
        until = time.monotonic() + GONE_S
        trials.refresh_processes()
        while trials.used and time.monotonic() < until:
            time.sleep(POLL_S)
            trials.refresh_processes()
        if trials.used:
            log.warning("the controller keeps GPUs back, as processes of trials are left: %s", trials.used)
        else:
            revoke()
            self.link.use(())
            if not (self.link.refusal or leave(self.link)):
                log.warning("the controller has not confirmed that the search's GPUs are free: restoring it tells it again")
        self.link.close()


def call_at_end(controller: Any, function: Callable[[], None]) -> None:
    """Have a function called when a controller of Tune has ended an experiment's processes, however that came."""
    controller._callbacks._callbacks.append(_AtEnd(function))


class _AtEnd(Callback):  # type: ignore[misc]
    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        """Call it."""
        self._function()
