"""The scheduler that a Tuner is given: a GPU policy, or a controller, decides which trials run, where, and on how many GPUs.

It translates: Tune's calls become facts of the engine and events, and a step of the GPU scheduler; what the engine is asked for
becomes Tune's decisions. Tune starts whatever is pending, so a trial is kept paused until its job is granted GPUs.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ray.tune.experiment import Trial
from ray.tune.result import (
    AUTO_RESULT_KEYS,
    DEBUG_METRICS,
    DONE,
    RESULT_DUPLICATE,
    SHOULD_CHECKPOINT,
    TIME_THIS_ITER_S,
    TIME_TOTAL_S,
)
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, SearchGenerator
from ray.tune.trainable import FunctionTrainable, Trainable

from beamer.clock import SteadyClock
from beamer.engines.ray_tune.checked_results import check_results, is_strict
from beamer.engines.ray_tune.cluster import check_placeable, gpus_asked, granted_resource
from beamer.engines.ray_tune.engine import Result, TuneDecision
from beamer.engines.ray_tune.metrics import Mode, Reading, Readings, metrics_of
from beamer.engines.ray_tune.search import TuneSearch
from beamer.engines.ray_tune.settings import adjusted, check_samples, check_stop
from beamer.engines.ray_tune.shared import SharedSearch, call_at_end
from beamer.engines.ray_tune.trials import RayTrials, unwrapped
from beamer.errors import InputError
from beamer.gpu.decider import by_policy
from beamer.gpu.model import Request
from beamer.gpu.policies import GpuPolicy, gpu_policy
from beamer.gpu.remote import by_controller, run_of
from beamer.studies.asynchronous_halving import AsynchronousHalving
from beamer.studies.events import Event
from beamer.studies.halving import Halving
from beamer.studies.journal.location import Location, shown
from beamer.studies.journal.store import Journal
from beamer.studies.model import Rung

POLICY = "fifo"

log = logging.getLogger("beamer.gpu")


class _Opened(NamedTuple):
    """A search that is under way."""

    journal: Journal | None
    shared: SharedSearch | None
    trials: RayTrials
    search: TuneSearch
    readings: Readings


class BeamerScheduler(TrialScheduler):  # type: ignore[misc]  # Ray is untyped where it is not installed.
    """Let a GPU policy run the trials of a Tuner. Where neither nodes nor trials have GPUs, CPUs stand for them.

    policy: its name, or one with other parameters, "fifo" by default. request: what trials ask for, or a function of their
    configuration; by default the GPUs of the trial's resources and the iterations of the Tuner's stop criterion. iteration,
    loss, accuracy: the keys of results; iterations count as in `Request.iterations`. mode: "max" if more of `loss` is better,
    and of `target_loss`. loss, mode: None: `TuneConfig(metric, mode)`, or where that says nothing "loss" and "min".
    rungs: of successive halving, the first included, steps counted from a trial's beginning, or `AsynchronousHalving`, in which
    no trial waits for others: losers are ended; without rungs no trial is. stop_at_target: whether the search ends with the
    first trial that meets `target_loss` or `target_accuracy`. batch_size: the key of trials' configurations that a granted
    batch size is written to. study: the search's name in the journal. seed: of the policy's randomness. journal: URL of the
    database that every event is written to before it takes effect; None: nothing is kept. controller: URL of one that decides
    in the policy's place, for this search and for others on the same nodes, or several with commas; it needs a journal. hosts:
    the names that nodes have in its network, by their names or addresses in Ray; a node whose address or name is a host's needs
    none. clock: Unix time. poll_s: seconds after which Ray's nodes are listed anew.

    A token for the controller, and the certificates that sign its own, are those of the environment, as of
    `beamer.client.Client`. A trial loses no step if it is a class, or a function that reports a checkpoint: it is paused with
    those results only.
    """

    _supports_buffered_results = False

    def __init__(
        self,
        policy: GpuPolicy[Any] | str | None = None,
        request: Request | Callable[[Mapping[str, Any]], Request] | None = None,
        *,
        iteration: str = "training_iteration",
        loss: str | None = None,
        mode: Mode | None = None,
        accuracy: str | None = None,
        rungs: Sequence[Rung] | AsynchronousHalving = (),
        stop_at_target: bool = False,
        batch_size: str | None = None,
        study: str = "search",
        seed: int = 0,
        journal: Location | None = None,
        controller: str | None = None,
        hosts: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        poll_s: float = 0.5,
    ) -> None:
        super().__init__()
        if rungs and not isinstance(rungs, AsynchronousHalving):
            Halving(rungs)  # The constructor checks the rungs.
        _check_options(controller, journal, hosts, {"policy": policy, "seed": seed or None})
        policy = policy or POLICY
        self._policy = gpu_policy(policy) if isinstance(policy, str) else policy
        self._request = request
        self._iteration, self._loss, self._mode, self._accuracy = iteration, loss, mode, accuracy
        self._metrics = metrics_of(iteration, loss, mode, accuracy, None, None)
        self._samples: Any = 1
        self._rungs = rungs
        self._stop_at_target = stop_at_target
        self._batch_size = batch_size
        self._study = study
        self._seed = seed
        self._journal = journal
        self._controller, self._hosts = controller, dict(hosts or {})
        self._clock = clock
        self._steady = SteadyClock(clock)
        self._poll_s = poll_s
        self._opened_search: _Opened | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_opened_search": None}  # A restored search begins anew, from its journal.

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_sign" in state:  # The state is of version 0.1.0, which read nothing of TuneConfig.
            state = {"_mode": "min" if state["_sign"] > 0 else "max", "_samples": 1, **state}
        self.__dict__.update(state)
        if "_metrics" not in state:
            self._metrics = metrics_of(self._iteration, self._loss, self._mode, self._accuracy, None, None)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take in what a Tuner optimizes. Raises `InputError` for what contradicts the scheduler's options."""
        self._metrics = metrics_of(self._iteration, self._loss, self._mode, self._accuracy, metric, mode)
        self._metric = self._metrics.loss
        self._samples = spec.get("num_samples", 1)
        rungs = _rungs(self._rungs)
        if rungs:
            check_stop(spec.get("stop"), self._iteration, rungs[-1].step, "the last of the scheduler's rungs")
        if isinstance(self._request, Request):
            request = adjusted(self._request, self._metrics, self._batch_size, self._stop_at_target)
            if not rungs:
                check_stop(spec.get("stop"), self._iteration, request.iterations, "the scheduler's request")
        return True

    def check(self, controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Raise `InputError` where a trial is to fail of its result, or comes to its target while nothing can be judged."""
        _, search = self._opened(controller)
        if self._opened_search:
            readings = self._opened_search.readings
            reading = readings.check(trial.trial_id, result, is_strict=is_strict())
            if reading.loss is None and (reading.iteration or 0.0) >= search.engine.target(trial.trial_id):
                readings.arrive(trial.trial_id)
                self.failed(controller)

    def may_restart(self, trial: Trial, result: Mapping[str, Any]) -> bool:
        """Take in that a trial fails of its result, and say whether it may be started again: not twice at the same step."""
        return self._opened_search is None or self._opened_search.readings.may_restart(trial.trial_id, result)

    def failed(self, controller: Any) -> None:
        """Raise `InputError`, which ends the experiment, where trials have failed of a key that no result has had."""
        if self._opened_search and (error := self._opened_search.readings.nothing(self._opened_search.search.trials)):
            raise error

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Take in a trial, or take back one that failed, and keep it from starting by itself."""
        if trial.is_finished():  # The trial belongs to a restored experiment.
            return
        trials, search = self._opened(tune_controller)
        trials.add(trial)
        search.engine.add(trial.trial_id)
        if not search.has_job(trial.trial_id):
            search.submit(trial.trial_id, self._requested(trial, trials.resource), self._steady())

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Take in a result and return whether the trial continues, leaves its GPUs, or ends."""
        trials, search = self._opened(tune_controller)
        if trial.trial_id in search.engine.trials and RESULT_DUPLICATE not in result:
            self._step_with(tune_controller, trials, search, trial, result)
        decision = search.engine.decide(trial.trial_id)
        if decision in (TuneDecision.PAUSE, TuneDecision.STOP):
            search.engine.apply(self._steady())  # The next trial is to find this trial's process before Tune ends it.
        return decision.value

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Take in that a trial has ended."""
        trials, search = self._opened(tune_controller)
        if trial.trial_id in search.engine.trials:
            self._step_with(tune_controller, trials, search, trial, result)
            self.on_trial_remove(tune_controller, trial)
            search.engine.apply(self._steady())

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Take in that a trial has ended that did not run."""
        _, search = self._opened(tune_controller)
        if trial.trial_id in search.engine.trials:
            search.engine.forget(trial.trial_id)
            self._step(tune_controller, search)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Take in that a trial failed; Tune adds it again if it may continue."""
        trials, _ = self._opened(tune_controller)
        trials.refresh_nodes()  # A failure is often a node's.

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """Make a step of the GPU scheduler and start what it decided; None, as Tune starts all trials that are pending."""
        trials, search = self._opened(tune_controller)
        trials.refresh_processes()
        if search.engine.trials and tune_controller.search_alg.is_finished():
            search.seal(self._steady())
        self._step(tune_controller, search)
        search.engine.apply(self._steady())
        shared = self._opened_search.shared if self._opened_search else None
        if shared and shared.follow(trials) and search.ledger.live_jobs:
            log.warning("study %s was ended at the controller: its trials are killed", self._study)
            search.kill(self._steady())
            unwrapped(tune_controller).request_stop_experiment()

    def debug_string(self) -> str:
        """Return which policy decides, and for how many trials."""
        search = self._opened_search.search if self._opened_search else None
        jobs = search.ledger.submitted(search.tracker) if search else ()
        by = f"the controller at {self._controller}" if self._controller else self._policy.name
        return f"Beamer, {by}: {sum(job.grant is not None for job in jobs)} of {len(jobs)} jobs have GPUs."

    def _opened(self, tune_controller: Any) -> tuple[RayTrials, TuneSearch]:
        if self._opened_search is None:
            controller = unwrapped(tune_controller)
            rungs = () if isinstance(self._rungs, AsynchronousHalving) else _rungs(self._rungs)
            # The search is finished if the experiment is restored and has drawn all trials.
            if not controller.search_alg.is_finished():
                check_samples(self._samples, *_drawn(controller.search_alg), rungs)
            asked = [trial.placement_group_factory for trial in controller.get_trials() if not trial.is_finished()]
            self._opened_search = self._open(granted_resource(asked))
            check_results(controller)
            call_at_end(controller, self._close)
        opened = self._opened_search
        opened.trials.controller = unwrapped(tune_controller)
        return opened.trials, opened.search

    def _open(self, resource: str) -> "_Opened":
        """Open the journal, connect to the controller if there is one, and know what was known. Raises `InputError`."""
        journal = Journal(self._journal) if self._journal else None
        shared: SharedSearch | None = None
        try:
            past = journal.replay() if journal else ()
            run = run_of(past, self._controller or "", shown(self._journal) if self._journal else "")
            decider = by_policy(self._policy, self._seed)
            if self._controller and journal:
                shared = SharedSearch(self._controller, self._study, run, self._hosts, journal.replay(), resource)
                decider = by_controller(shared.link)
            trials = RayTrials(self._batch_size, self._poll_s, shared.sharing if shared else None, resource)

            def write(event: Event) -> None:
                if journal:
                    journal.append(event)
                if shared:
                    shared.link.offer(event)

            search = TuneSearch(
                self._study,
                decider,
                trials,
                self._rungs,
                stop_at_target=self._stop_at_target,
                past=journal.replay() if journal else (),
                write=write,
                run=run,
            )
            self._steady = SteadyClock(self._clock)
            self._steady.not_before(search.tracker.now_s)
            if shared:
                search.revoke(self._steady())  # Whatever ran before has ended with its experiment.
            hidden = (*AUTO_RESULT_KEYS, *DEBUG_METRICS, DONE, "config")
            return _Opened(journal, shared, trials, search, Readings(self._metrics, search.has_loss, hidden))
        except BaseException:
            if shared:
                shared.link.close()
            if journal:
                journal.close()
            raise

    def _close(self) -> None:
        """Free the search's GPUs at the controller, and close the journal: the experiment has ended."""
        opened, self._opened_search = self._opened_search, None
        try:
            if opened and opened.shared:
                opened.shared.end(opened.trials, lambda: opened.search.revoke(self._steady()))
        finally:
            if opened and opened.journal:
                opened.journal.close()

    def _step(self, tune_controller: Any, search: TuneSearch) -> None:
        search.step(self._steady())
        if rung := search.rung_without_loss:
            expected = f"a finite one of any trial at the end of {rung}: no rung is judged on nothing"
            raise InputError(repr(self._metrics.loss), math.nan, expected)
        if search.is_over:
            unwrapped(tune_controller).request_stop_experiment()

    def _step_with(
        self, tune_controller: Any, trials: RayTrials, search: TuneSearch, trial: Trial, result: Mapping[str, Any]
    ) -> None:
        reading = self._metrics.read(result)
        if reading.iteration is None:  # Tune was told to let such a result pass.
            return
        # One without a loss, which Tune was told to let pass, has the loss before it.
        loss = search.last_loss(trial.trial_id) if reading.loss is None else reading.loss
        taken = _result(result, reading, loss, _is_resumable(trials.trainable(trial), result))
        search.engine.record(trial.trial_id, taken, self._steady())
        self._step(tune_controller, search)

    def _requested(self, trial: Trial, resource: str) -> Request:
        check_placeable(trial.placement_group_factory)
        gpus = gpus_asked(trial.placement_group_factory, resource)
        stop = trial.stopping_criterion
        if self._request is None:
            rungs = _rungs(self._rungs)
            iterations = rungs[-1].step if rungs else stop.get(self._iteration)
            if iterations is None:
                raise InputError("request", None, f"a request, or a Tuner that stops trials by {self._iteration!r}")
            cpus = trial.placement_group_factory.required_resources.get("CPU", 0.0) / gpus
            request = Request(iterations=int(iterations), gpus=gpus, worker_cpus=cpus)
        else:
            request = self._request(trial.config) if callable(self._request) else self._request
        if not self._rungs:
            check_stop(stop, self._iteration, request.iterations, "the scheduler's request")
        return adjusted(request, self._metrics, self._batch_size, self._stop_at_target)


def _result(result: Mapping[str, Any], reading: Reading, loss: float, is_resumable: bool) -> Result:
    """Return a result as the engine takes it."""
    step_s, total_s = float(result[TIME_THIS_ITER_S]), float(result[TIME_TOTAL_S])
    return Result(reading.iteration or 0.0, loss, step_s, total_s, reading.accuracy, is_resumable)


def _rungs(rungs: Sequence[Rung] | AsynchronousHalving) -> tuple[Rung, ...]:
    return rungs.rungs if isinstance(rungs, AsynchronousHalving) else tuple(rungs)


def _drawn(search_alg: Any) -> tuple[int | None, bool]:
    """Return how many trials a search algorithm has live at most, None for any number, and whether it learns nothing.

    Of one that is not Tune's own neither is known, and Tune limits none.
    """
    if isinstance(search_alg, BasicVariantGenerator):
        return search_alg.max_concurrent or None, True
    searcher = getattr(search_alg, "searcher", None)
    while searcher is not None and not isinstance(searcher, ConcurrencyLimiter):
        searcher = getattr(searcher, "searcher", None)
    return (searcher.max_concurrent if searcher else None), not isinstance(search_alg, SearchGenerator)


def _is_resumable(trainable: Any, result: Mapping[str, Any]) -> bool:
    """Say whether pausing now loses no step.

    A function can be asked for a checkpoint only where it reports one, and a class only where it has `save_checkpoint`.
    """
    if isinstance(trainable, type) and issubclass(trainable, FunctionTrainable):
        return bool(result.get(SHOULD_CHECKPOINT))
    return getattr(trainable, "save_checkpoint", None) is not Trainable.save_checkpoint


def _check_options(
    controller: str | None, journal: Location | None, hosts: Mapping[str, str] | None, own: Mapping[str, object]
) -> None:
    """Check what goes together with a controller, and what only without. own: what it has of its own. Raises `InputError`."""
    if controller is None:
        if hosts:
            raise InputError("hosts", hosts, "none without a controller, whose network has them")
        return
    if journal is None:
        raise InputError("journal", None, "one beside a controller, from which the search goes on if it is restored")
    for name, value in own.items():
        if value is not None:
            raise InputError(name, value, "none beside a controller, which has its own")
