"""A search of Tune under the GPU scheduler: what Tune reports becomes events, what is decided is in the journal first.

This module does not import Ray: `beamer.engines.ray_tune.scheduler` passes on what Tune calls it with.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf, isfinite

from beamer.engines.ray_tune.engine import RayTuneEngine, TuneTrials
from beamer.errors import InputError
from beamer.gpu.decider import Decider
from beamer.gpu.driver import SearchDriver
from beamer.gpu.events import GpusRequested, TrialReported
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Report, Request, check_request
from beamer.gpu.remote import OWN_RUN
from beamer.gpu.tuners import AsynchronousHalvingTuner, HalvingTuner, NoTuner, Tuner
from beamer.studies.asynchronous_halving import AsynchronousHalving
from beamer.studies.events import Event, StageSealed, StudyEnded, StudyRegistered, TrialEnded
from beamer.studies.model import Rung, TrialStatus, split_key, trial_key
from beamer.studies.tracker import Tracker


class TuneSearch:
    """The trials of a search.

    decider: as of `SearchDriver`. rungs: every one, whose losers are ended, or those of asynchronous halving; without, no trial
    is ended. stop_at_target: whether the search ends with the first trial that meets its request's target. past: the journal's
    events. write: makes an event durable, before it takes effect. run: tells the search from others of its name; another one
    than `OWN_RUN` of a search that shares its nodes. has_loss: whether any trial has reported a finite loss, ever.
    """

    def __init__(
        self,
        study: str,
        decider: Callable[[Tracker, GpuLedger], Decider],
        trials: TuneTrials,
        rungs: Sequence[Rung] | AsynchronousHalving = (),
        *,
        stop_at_target: bool = False,
        past: Iterable[Event] = (),
        write: Callable[[Event], None] = lambda event: None,
        run: str = OWN_RUN,
    ) -> None:
        self.study = study
        self.rungs = rungs.rungs if isinstance(rungs, AsynchronousHalving) else tuple(rungs)
        self.engine = RayTuneEngine(trials, self._launched, is_shared=run != OWN_RUN)
        self._run = run
        self._has_barriers = not isinstance(rungs, AsynchronousHalving)
        self._stop_at_target = stop_at_target
        self._requests: dict[str, Request] = {}
        self._reached = self._sealed = self.has_loss = False
        tuner: Tuner = NoTuner()
        if isinstance(rungs, AsynchronousHalving):
            tuner = AsynchronousHalvingTuner(study, rungs)
        elif rungs:
            tuner = HalvingTuner(study, rungs, early=True)
        noted = self._noted(past)
        self.driver = SearchDriver(decider, self.engine, tuner, noted, write, self._note, lambda: self._stops)
        self.tracker, self.ledger = self.driver.tracker, self.driver.ledger
        others = self.tracker.studies.keys() - {study}
        if others:
            raise InputError("journal", ", ".join(sorted(others)), f"a journal of study {study} alone")

    @property
    def is_over(self) -> bool:
        """Whether the search has reached its target, so that no trial is to run any more."""
        return self._stop_at_target and self._reached

    @property
    def rung_without_loss(self) -> str:
        """The rung that would be judged though no trial came to its end with a finite loss; "" for none.

        Then no trial is promoted or ended, and none is started any more.
        """
        return self.driver.tuner.rung_without_loss

    @property
    def _stops(self) -> bool:
        return self.is_over or bool(self.rung_without_loss)

    @property
    def trials(self) -> int | None:
        """How many trials the search has; None: more may be added."""
        return len(self._requests) if self._sealed else None

    def last_loss(self, trial: str) -> float:
        """Return the loss that a trial reported last, infinite where it has reported none."""
        job = self.ledger.job(trial_key(self.study, trial))
        return job.reports[-1].loss if job and job.reports else inf

    def has_job(self, trial: str) -> bool:
        """Say whether a trial has asked for GPUs."""
        return trial_key(self.study, trial) in self._requests

    def submit(self, trial: str, request: Request, now: float) -> None:
        """Have a trial ask for GPUs; with rungs its iterations are those of the last one."""
        if self.rungs:
            request = replace(request, iterations=self.rungs[-1].step)
        check_request(request, f"request of {trial}")
        self.driver.take(StudyRegistered(now, self.study, self._run, rungs=self.rungs, barriers=self._has_barriers))
        self.driver.submit(self.study, trial, request, now)

    def seal(self, now: float) -> None:
        """Take in that no further trial is added."""
        self._sealed = True
        if self.rungs and self.rungs[0].name in self.tracker.study(self.study).stages:
            self.driver.take(StageSealed(now, self.study, self.rungs[0].name))

    def step(self, now: float) -> None:
        """Take in what the engine observes, end and promote trials, decide, and make the calls that are due.

        Trials that Tune has ended before their targets count as killed.
        """
        self.driver.scheduler.watch(now)
        for key in list(self.ledger.live_jobs):
            if split_key(key)[1] not in self.engine.trials:
                self.driver.take(TrialEnded(now, key, TrialStatus.KILLED))
        self._react(now)
        self.driver.scheduler.step(now)
        self._react(now)

    def kill(self, now: float) -> None:
        """End a search that somebody else has ended: its trials are killed."""
        for key in list(self.ledger.live_jobs):
            self.driver.take(TrialEnded(now, key, TrialStatus.KILLED))
        self._sealed = True
        self._react(now)

    def revoke(self, now: float) -> None:
        """Take in that no process of the search runs."""
        self.driver.scheduler.revoke(now)

    def _react(self, now: float) -> None:
        """Let the tuner judge what has happened; end the trials that run no further, all of them at the target."""
        self.driver.react()
        if self.is_over:
            self._end_trials(now)
            self.driver.react()
        if self._sealed and not self.ledger.live_jobs:
            self.driver.take(StudyEnded(now, self.study))
            self.driver.react()
        for trial in [trial for trial in self.engine.trials if trial_key(self.study, trial) in self.ledger.ended]:
            self.engine.discard(trial)

    def _end_trials(self, now: float) -> None:
        """End all trials: those that meet the target have finished."""
        for key in list(self.ledger.live_jobs):
            job = self.ledger.job(key)
            met = job is not None and any(_meets(report, job.request) for report in job.reports)
            self.driver.take(TrialEnded(now, key, TrialStatus.FINISHED if met else TrialStatus.KILLED))

    def _noted(self, past: Iterable[Event]) -> Iterator[Event]:
        for event in past:
            self._note(event)
            yield event

    def _note(self, event: Event) -> None:
        match event:
            case GpusRequested(trial=key, request=request):
                self._requests[key] = request
            case TrialReported(trial=key, report=Report() as report):
                self._reached = self._reached or _meets(report, self._requests[key])
                self.has_loss = self.has_loss or isfinite(report.loss)

    def _launched(self, key: str) -> Request:
        """Return what a trial that is started asks for, until its present target."""
        job = self.ledger.job(key)
        return job.request if job else self._requests[key]


def _meets(report: Report, request: Request) -> bool:
    by_loss = request.target_loss is not None and isfinite(report.loss) and report.loss <= request.target_loss
    by_accuracy = request.target_accuracy is not None and (report.accuracy or 0.0) >= request.target_accuracy
    return by_loss or by_accuracy
