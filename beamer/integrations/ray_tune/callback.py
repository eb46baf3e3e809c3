"""The callback that a Tuner is given: it tells Beamer's controller what the search runs, and never makes the search fail."""

import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ray.tune import Callback
from ray.tune.execution.tune_controller import TuneController

from beamer.client import Client
from beamer.client.urls import URL, URL_VARIABLE
from beamer.errors import BeamerError
from beamer.gpu.link import hosts_of
from beamer.integrations.ray_tune.controller import HeardScheduler, calling
from beamer.integrations.ray_tune.location import Location, Locator, of_result
from beamer.integrations.ray_tune.schedules import ReadSchedule, ray_version
from beamer.integrations.ray_tune.search import ReportedSearch
from beamer.integrations.ray_tune.values import step_of

HOSTS_S = 60.0  # The controller has so long to name the hosts of its network.

log = logging.getLogger("beamer.integrations")

_Hook = TypeVar("_Hook", bound=Callable[..., None])


def _guarded(hook: _Hook) -> _Hook:
    """Let nothing that a hook raises come to Tune; each kind of error is logged once."""

    @functools.wraps(hook)
    def guarded(self: "BeamerCallback", *arguments: Any, **options: Any) -> None:
        try:
            hook(self, *arguments, **options)
        except Exception as error:  # noqa: BLE001  The search goes on whatever breaks.
            self._log(hook.__name__, error)

    return guarded  # type: ignore[return-value]


class BeamerCallback(Callback):  # type: ignore[misc]  # Ray is untyped where it is not installed.
    """Tell Beamer's controller of a Tuner's search: `RunConfig(callbacks=[BeamerCallback()])`.

    study: its name; None: that of the experiment. url: of the controller, as of `beamer.client.Client`. hosts: the names that
    nodes have in the controller's network, by their names or addresses in Ray; a node whose address or name is a host's needs
    none. Raises nothing: of each hook, each kind of error is logged once in a
    search, and that goes on.
    """

    def __init__(self, study: str | None = None, url: str | None = None, hosts: Mapping[str, str] | None = None) -> None:
        self._study, self._url, self._given = study, url, dict(hosts or {})
        self._reset()

    def _reset(self) -> None:
        self._logged: set[tuple[str, str]] = set()
        self._client: Client | None = None
        self._controller: TuneController | None = None
        self._search: ReportedSearch | None = None
        self._heard: HeardScheduler | None = None
        self._locator = Locator()
        self._hosts: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"study": self._study, "url": self._url, "hosts": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._study, self._url, self._given = state["study"], state["url"], state["hosts"]
        self._reset()

    @_guarded
    def setup(self, stop: Any = None, num_samples: Any = None, total_num_samples: Any = None, **info: Any) -> None:
        """Register the search."""
        self._close()
        self._logged.clear()
        controller, metric, mode = calling()
        if controller is None:
            raise RuntimeError(f"Ray {ray_version()} has no TuneController among the callers of Callback.setup")
        scheduler = controller.scheduler_alg
        study = self._study or controller._storage.experiment_dir_name
        self._client = self._client or Client(self._url)
        search = ReportedSearch(
            self._client,
            study,
            ReadSchedule(scheduler),
            getattr(scheduler, "_metric", None) or metric,
            getattr(scheduler, "_mode", None) or mode,
            getattr(controller, "_stopper", None),
            self._host,
        )
        self._controller, self._heard, self._search = controller, HeardScheduler(scheduler), search
        threading.Thread(target=self._ask_hosts, args=(study,), name="beamer-hosts", daemon=True).start()

    @_guarded
    def on_trial_start(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Report that a trial begins an attempt at the step of the checkpoint that it is about to restore."""
        if self._search is not None:
            checkpoint = trial.latest_checkpoint_result
            self._search.begin(trial, step_of(checkpoint.metrics or {}) if checkpoint else 0)
            self._locator.ask(trial)

    @_guarded
    def on_trial_result(self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Report a trial's progress and loss."""
        if self._search is not None and self._heard is not None:
            if self._search.is_starting(trial):
                self._start(trial, self._locator.take(trial) or of_result(result))
            self._search.report(trial, result, self._heard.take(trial.trial_id))

    @_guarded
    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Report that a trial has finished, or was stopped."""
        if self._search is not None:
            self._search.end(trial)

    @_guarded
    def on_trial_recover(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Report that a trial has failed, and will be started again."""
        if self._search is not None:
            self._search.pause(trial)

    @_guarded
    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Report that a trial has failed for good."""
        if self._search is not None:
            self._search.end(trial, has_failed=True)

    @_guarded
    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        """Report what Tune has no other callback for."""
        if self._search is not None and self._controller is not None:
            self._search.add_new(trials)
            for trial in self._locator.answered():
                self._start(trial, self._locator.take(trial))
            self._search.compare()
            self._search.update_stages(self._controller.search_alg.is_finished())

    @_guarded
    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """Report the end of the search."""
        self._close()

    def _start(self, trial: Any, location: Location | None) -> None:
        """Report where a trial runs, if that is known."""
        if self._search is not None and location is not None:
            self._search.start(trial, location.nodes, location.process)

    def _host(self, node: tuple[str, str]) -> str:
        """Return the host of a node, given by its address and its name; its address where it is not known to be one."""
        address, name = node
        for key in (address, name, name.partition(".")[0]):
            if key in self._given:
                return self._given[key]
        for key in (address, name, name.partition(".")[0]):
            if key in self._hosts:
                return self._hosts[key]
        return address

    def _ask_hosts(self, study: str) -> None:
        """Take in what the hosts of the controller's network are named. Runs in a thread of its own."""
        try:
            urls = self._url or os.environ.get(URL_VARIABLE) or URL
            addresses = hosts_of(urls, study, os.environ, HOSTS_S)
        except (BeamerError, OSError, ValueError) as error:
            log.debug("the hosts of the controller's network are not known: %s", error)
            return
        self._hosts = {name: name for name in addresses} | {address: name for name, address in addresses.items()}

    def _close(self) -> None:
        search, heard = self._search, self._heard
        self._search = self._heard = self._controller = None
        self._locator = Locator()
        if heard is not None:
            heard.close()
        if search is not None:
            search.close()

    def _log(self, hook: str, error: Exception) -> None:
        kind = hook, type(error).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            what = "BeamerCallback.%s with Ray %s: %s; the search goes on, and Beamer knows less of it"
            log.warning(what, hook, ray_version(), str(error) or repr(error), exc_info=True)
