"""The scheduler that a Tuner is given: any GPU policy decides which trials run, where, and on how many GPUs.

Tune starts whatever is pending, so a trial is kept paused until its job is granted GPUs. What runs is taken off its GPUs at
its next result, with a checkpoint, and goes on from there, on the same GPUs or others. The policy sees its own last decision as
what jobs hold; every step of Tune's loop brings the trials closer to it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from typing import Any, Literal

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.result import RESULT_DUPLICATE, SHOULD_CHECKPOINT, TIME_THIS_ITER_S, TIME_TOTAL_S
from ray.tune.schedulers import TrialScheduler
from ray.tune.trainable import FunctionTrainable

from beamer.engines.ray_tune.cluster import alive, gpus_asked, pinned
from beamer.engines.ray_tune.rungs import Rungs, Verdict
from beamer.errors import InputError
from beamer.gpu.events import JobReported
from beamer.gpu.ledger import Ledger, StageKey
from beamer.gpu.model import Allocation, Costs, Grant, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.policies import GpuPolicy, gpu_policy
from beamer.workloads.searches import Bracket

STARTS = 20  # measured starts of which the median counts as the cost of one

OnDecision = Callable[[float, str, dict[str, Any]], None]


@dataclass
class _Run:
    """What a trial does now. key: of its job. held: what it was started with, None while paused. steps: results since then."""

    trial: Trial
    key: str
    asked: PlacementGroupFactory
    held: Grant | None = None
    asked_at_s: float = 0.0
    steps: int = 0


class BeamerScheduler(TrialScheduler):  # type: ignore[misc]  # Ray is untyped where it is not installed
    """Let a GPU policy run the trials of a Tuner.

    policy: its name, or one with other parameters. request: what trials ask for, or a function of their configuration; by
    default the GPUs of the trial's resources and the iterations of the Tuner's stop criterion. iteration, loss, accuracy: the
    keys of results; iterations count as in `Request.iterations`. mode: "max" if more of `loss` is better. rungs: of a search
    with `resume`, whose losers are stopped; without them no trial is. stop_at_target: whether the search ends with the first
    trial that meets `target_loss` or `target_accuracy`. batch_size: the key of trials' configurations that a granted batch size
    is written to. on_decision: is called with the time, what is done, and its details; it is not kept by `Tuner.restore`.
    clock: seconds. poll_s: how often nodes are looked for.

    A trial loses no step if it is a class, or a function that reports a checkpoint: it is paused with those results only.
    """

    _supports_buffered_results = False

    def __init__(
        self,
        policy: GpuPolicy[Any] | str = "fifo",
        request: Request | Callable[[Mapping[str, Any]], Request] | None = None,
        *,
        iteration: str = "training_iteration",
        loss: str = "loss",
        mode: Literal["min", "max"] = "min",
        accuracy: str | None = None,
        rungs: Bracket | None = None,
        stop_at_target: bool = False,
        batch_size: str | None = None,
        study: str = "search",
        seed: int = 0,
        on_decision: OnDecision | None = None,
        clock: Callable[[], float] = time.time,
        poll_s: float = 0.5,
    ) -> None:
        super().__init__()
        if mode not in ("min", "max"):
            raise InputError("mode", mode, '"min" or "max"')
        self._policy = gpu_policy(policy) if isinstance(policy, str) else policy
        self._request = request
        self._iteration, self._loss, self._accuracy = iteration, loss, accuracy
        self._sign = 1.0 if mode == "min" else -1.0
        self._rungs = Rungs(rungs) if rungs else None
        self._stop_at_target = stop_at_target
        self._batch_size = batch_size
        self._study = study
        self._rng = Random(seed)
        self._on_decision = on_decision
        self._clock = clock
        self._poll_s = poll_s
        self._state = self._policy.initial()
        self._ledger = Ledger()
        self._runs: dict[str, _Run] = {}
        self._allocation: Allocation = {}
        self._starts: list[float] = []
        self._all_joined = False
        self._stale = True
        self._wake_at: float | None = None
        self._poll_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_on_decision": None}  # a journal is open for one process

    # --- what Tune tells ---

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Take in a trial, or take back one that failed, and keep it from starting by itself."""
        if trial.is_finished():  # of an experiment that is restored
            return
        self._poll_at = 0.0  # a failure is often a node's
        self._stale = True
        if run := self._runs.get(trial.trial_id):
            run.held = None
            tune_controller._set_trial_status(trial, Trial.PAUSED)
            return
        asked = trial.placement_group_factory
        run = self._runs[trial.trial_id] = _Run(trial, "", asked)
        trial.set_status(Trial.PAUSED)  # Tune reads it after this call
        if self._rungs:
            self._rungs.join(trial.trial_id)
        self._submit(run)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Take in a report and say whether the trial goes on, leaves its GPUs, or ends."""
        run, now = self._runs[trial.trial_id], self._clock()
        self._read(run, result, now)
        job = self._ledger.job(run.key)
        if job is None:  # it waits at its rung until it can be paused
            return self._pause(run, now, "rung") if _can_pause(trial, result) else str(TrialScheduler.CONTINUE)
        report = job.reports[-1]
        if self._stop_at_target and _meets(report, job.request):
            self._tell(now, "target", trial=trial.trial_id, iteration=report.iteration, loss=report.loss)
            _unwrapped(tune_controller).request_stop_experiment()
            return self._stop(run, now, "target")
        if report.iteration >= job.request.iterations:
            last = self._rungs is None or self._rungs.is_last(trial.trial_id)
            self._end(run, now)
            verdicts = self._rungs.arrive(trial.trial_id, report.loss) if self._rungs else []
            self._carry_out(tune_controller, verdicts, now, run)
            if trial.trial_id not in self._runs:
                return self._stop(run, now, "rung")
            if last:
                return self._stop(run, now, "done")
        self._decide(now)
        wanted = self._wanted(run)
        if wanted == run.held or not _can_pause(trial, result):
            return str(TrialScheduler.CONTINUE)
        return self._pause(run, now, "policy" if self._ledger.job(run.key) else "rung")

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Take in that a trial has ended."""
        run, now = self._runs.get(trial.trial_id), self._clock()
        if run and self._ledger.job(run.key) and self._iteration in result:
            self._read(run, result, now)
        self._forget(tune_controller, trial, now)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Take in that a trial has ended that did not run."""
        self._forget(tune_controller, trial, self._clock())

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Take in that a trial failed; Tune adds it again if it may go on."""
        self._stale = True

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """Bring trials closer to what was decided; None, as Tune starts all those that are pending."""
        now = self._clock()
        self._all_joined = tune_controller.search_alg.is_finished()
        if now >= self._poll_at:
            self._poll_at = now + self._poll_s
            cluster = alive()
            if cluster != self._ledger.cluster:
                self._ledger.see(cluster.nodes)
                self._tell(now, "nodes", nodes={node.name: node.gpus for node in cluster.nodes})
                self._stale = True
        for run in [run for run in self._runs.values() if run.trial.is_finished()]:  # failed for good
            self._forget(tune_controller, run.trial, now)
        if self._stale or (self._wake_at is not None and now >= self._wake_at):
            self._decide(now)
        raw = _unwrapped(tune_controller)
        for run in list(self._runs.values()):
            wanted = self._wanted(run)
            if run.trial.status == Trial.PENDING and wanted != run.held and not _has_begun(raw, run.trial):
                self._withdraw(tune_controller, run, now)
            if run.trial.status == Trial.PAUSED and wanted:
                self._start(tune_controller, run, wanted, now)

    def debug_string(self) -> str:
        """Say which policy decides, and for how many trials."""
        return f"Beamer, {self._policy.name}: {len(self._allocation)} of {len(self._ledger.live_jobs)} jobs have GPUs."

    # --- what is known ---

    def _submit(self, run: _Run) -> None:
        trial, rung = run.trial, self._rungs.rung(run.trial.trial_id) if self._rungs else 0
        before = self._ledger.ended.get(run.key)
        run.key = f"{self._study}/{_stage(rung)}/{trial.trial_id}"
        self._ledger.submit(run.key, (self._study, _stage(rung)), self._requested(run), self._clock())
        if before:  # it has come from the rung before
            self._ledger.change(run.key, reports=before.reports, speeds=before.speeds, last=before.last)
        self._stale = True

    def _requested(self, run: _Run) -> Request:
        config, until = run.trial.config, self._rungs.until(run.trial.trial_id) if self._rungs else None
        if self._request is None:
            stop = until or run.trial.stopping_criterion.get(self._iteration)
            if stop is None:
                raise InputError("request", None, f"a request, or a Tuner that stops trials by {self._iteration!r}")
            gpus = gpus_asked(run.asked)
            return Request(iterations=int(stop), gpus=gpus, worker_cpus=run.asked.required_resources.get("CPU", 0.0) / gpus)
        request = self._request(config) if callable(self._request) else self._request
        return replace(request, iterations=until) if until else request

    def _read(self, run: _Run, result: Mapping[str, Any], now: float) -> None:
        if RESULT_DUPLICATE in result:  # Tune repeats the last one when a function returns
            return
        for key in (self._iteration, self._loss, *([self._accuracy] if self._accuracy else [])):
            if key not in result:
                raise InputError(f"result of {run.trial.trial_id}", sorted(result), f"the key {key!r}")
        job = self._ledger.job(run.key)
        if job is None:
            return
        iteration = float(result[self._iteration])
        if kept := [report for report in job.reports if report.iteration < iteration]:
            done, known = kept[-1].iteration, len(kept) == len(job.reports)
        else:
            done, known = 0.0, not job.reports
        if not known:  # it went back to a checkpoint
            self._ledger.change(run.key, reports=tuple(kept))
        accuracy = float(result[self._accuracy]) if self._accuracy else None
        spent = float(result[TIME_THIS_ITER_S])
        report = Report(now, iteration, self._sign * float(result[self._loss]), float(result[TIME_TOTAL_S]), accuracy)
        speeds = self._speeds(run, job.request, iteration - done if known else 0.0, spent)
        self._ledger.report(JobReported(now, run.key, report, speeds))
        if run.steps == 0 and run.held:
            self._starts = [*self._starts, max(now - run.asked_at_s - spent, 0.0)][-STARTS:]
            start_s = median(self._starts)
            self._ledger.change(run.key, costs=Costs(resume_s=start_s, restart_s=start_s))
        run.steps += 1

    def _speeds(self, run: _Run, request: Request, iterations: float, spent_s: float) -> tuple[Speed, ...]:
        """Return what a result tells of the speed: the first after a start only of a shape that nothing is known of."""
        job = self._ledger.job(run.key)
        if run.held is None or job is None or iterations <= 0:
            return ()
        batch = run.held.batch_size or request.batch_size
        speed = Speed(run.held.size, run.held.nodes, 0, batch, spent_s / iterations * batch / request.batch_size)
        shapes = [(known.gpus, known.nodes, known.batch_size) for known in job.speeds]
        return () if run.steps == 0 and (speed.gpus, speed.nodes, batch) in shapes else (speed,)

    def _stage_facts(self, stage: StageKey) -> Stage:
        losses = self._ledger.losses(stage)
        if self._rungs is None:
            return Stage(*stage, len(self._ledger.members(stage)), None, losses, self._all_joined)
        rung = int(stage[1].removeprefix(_stage("")))
        return Stage(*stage, self._rungs.size(rung), self._rungs.keeps(rung), losses, self._rungs.is_sealed(rung))

    # --- what is decided ---

    def _decide(self, now: float) -> None:
        for run in self._runs.values():
            if run.trial.status != Trial.RUNNING and (job := self._ledger.job(run.key)) and job.grant:
                self._ledger.change(run.key, since_s=now)  # its time on GPUs has not begun
        for rung in range(len(self._rungs) if self._rungs else 1):
            self._ledger.touch((self._study, _stage(rung)))
        jobs = self._ledger.jobs(self._stage_facts)
        cluster = self._ledger.cluster
        self._state, allocation, self._wake_at = self._policy.allocate(self._state, cluster, jobs, now, self._rng)
        check_allocation(cluster, jobs, allocation)
        self._stale = False
        self._ledger.allocate(allocation, now)
        if allocation != self._allocation:
            self._tell(now, "allocate", grants={key: dict(grant.gpus) for key, grant in allocation.items()})
        self._allocation = allocation

    def _wanted(self, run: _Run) -> Grant | None:
        job = self._ledger.job(run.key)
        return job.grant if job else None

    def _carry_out(self, controller: Any, verdicts: list[Verdict], now: float, here: _Run | None = None) -> None:
        for verdict in verdicts:
            run = self._runs.get(verdict.trial)
            if run is None:  # it ended while it waited at its rung
                if verdict.goes_on:
                    self._carry_out(controller, self._rungs.leave(verdict.trial) if self._rungs else [], now, here)
            elif verdict.goes_on:
                self._submit(run)
            elif run is here:
                del self._runs[verdict.trial]
            else:
                self._stop(run, now, "rung")
                controller.stop_trial(run.trial)

    def _start(self, controller: Any, run: _Run, grant: Grant, now: float) -> None:
        trial = run.trial
        trial.update_resources(pinned(grant, run.asked))
        if self._batch_size and grant.batch_size:
            trial.set_config({**trial.config, self._batch_size: grant.batch_size})
        run.held, run.asked_at_s, run.steps = grant, now, 0
        controller._set_trial_status(trial, Trial.PENDING)
        self._tell(now, "start", trial=trial.trial_id, gpus=dict(grant.gpus))

    def _withdraw(self, controller: Any, run: _Run, now: float) -> None:
        """Take back the start of a trial that has not begun."""
        raw = _unwrapped(controller)
        if run.trial in raw._staged_trials:
            raw._unstage_trial_with_resources(run.trial)
        if run.trial in raw._trial_to_actor:
            raw.pause_trial(run.trial, should_checkpoint=False)
        else:
            raw._set_trial_status(run.trial, Trial.PAUSED)
        run.held = None
        self._tell(now, "withdraw", trial=run.trial.trial_id)

    def _pause(self, run: _Run, now: float, why: str) -> str:
        run.held = None
        self._tell(now, "pause", trial=run.trial.trial_id, why=why)
        return str(TrialScheduler.PAUSE)

    def _stop(self, run: _Run, now: float, why: str) -> str:
        self._tell(now, "stop", trial=run.trial.trial_id, why=why)
        return str(TrialScheduler.STOP)

    def _end(self, run: _Run, now: float) -> None:
        if self._ledger.job(run.key):
            self._ledger.end(run.key, now)
            self._stale = True

    def _forget(self, controller: Any, trial: Trial, now: float) -> None:
        if run := self._runs.pop(trial.trial_id, None):
            self._end(run, now)
            if self._rungs:
                self._carry_out(controller, self._rungs.leave(trial.trial_id), now)

    def _tell(self, now: float, what: str, **details: Any) -> None:
        if self._on_decision is not None:
            self._on_decision(now, what, details)


def _stage(rung: int | str) -> str:
    return f"rung-{rung}"


def _unwrapped(controller: Any) -> Any:
    """Return Tune's controller itself: some calls bring it, others a wrapper."""
    return vars(controller).get("_tune_controller", controller)


def _has_begun(controller: Any, trial: Trial) -> bool:
    """Say whether a pending trial has its GPUs: it then runs for a step, so that each start is worth something."""
    actor = controller._trial_to_actor.get(trial)
    return trial in controller._resetting_trials or (actor is not None and controller._actor_manager.is_actor_started(actor))


def _meets(report: Report, request: Request) -> bool:
    by_loss = request.target_loss is not None and report.loss <= request.target_loss
    by_accuracy = request.target_accuracy is not None and (report.accuracy or 0.0) >= request.target_accuracy
    return by_loss or by_accuracy


def _can_pause(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Say whether pausing now loses no step: a function can be asked for a checkpoint only where it reports one."""
    trainable = trial.get_trainable_cls()
    is_function = isinstance(trainable, type) and issubclass(trainable, FunctionTrainable)
    return not is_function or bool(result.get(SHOULD_CHECKPOINT))
