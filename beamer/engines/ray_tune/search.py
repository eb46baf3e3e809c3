"""A search of Tune under the GPU scheduler: what Tune reports becomes events, what is decided is in the journal first.

This module does not import Ray: `beamer.engines.ray_tune.scheduler` passes on what Tune calls it with.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from beamer.engines.ray_tune.engine import RayTuneEngine, TuneTrials
from beamer.errors import InputError
from beamer.gpu.events import JobReported, JobSubmitted
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Report, Request
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.scheduler import Scheduler
from beamer.gpu.tuners import HalvingTuner
from beamer.studies.events import Event, JobEnded, StageRegistered, StageSealed, StudyRegistered
from beamer.studies.model import JobStatus, Rung, job_key
from beamer.studies.tracker import Tracker

ONLY_STAGE = "trials"
"""The stage of a search without rungs."""


class TuneSearch:
    """The trials of a search, a job for each, or one in each rung.

    rungs: every one, whose losers are ended; without, no trial is. stop_at_target: whether the search ends with the first trial
    that meets its request's target. past: the journal's events. write: makes an event durable, before it takes effect.
    """

    def __init__(
        self,
        study: str,
        policy: GpuPolicy[Any],
        trials: TuneTrials,
        rungs: Sequence[Rung] = (),
        *,
        stop_at_target: bool = False,
        past: Iterable[Event] = (),
        write: Callable[[Event], None] = lambda event: None,
        seed: int = 0,
    ) -> None:
        self.study = study
        self.rungs = tuple(rungs)
        self.ledger = GpuLedger()
        self.tracker = Tracker(self.ledger)
        self.engine = RayTuneEngine(trials, self._request)
        self._first = self.rungs[0].name if self.rungs else ONLY_STAGE
        self._stop_at_target = stop_at_target
        self._write_event = write
        self._tuner = HalvingTuner(study, self.rungs, self._next_job, early=True) if self.rungs else None
        self._jobs: dict[str, str] = {}  # each trial's job that has not ended
        self._unjudged: deque[Event] = deque()
        self._reached = False
        due: list[Event] = []
        for event in past:
            self.tracker.apply(event)
            self._note(event)
            due += self._judge(event)
        others = self.tracker.studies.keys() - {study}
        if others:
            raise InputError("journal", ", ".join(sorted(others)), f"a journal of study {study} alone")
        self.scheduler = Scheduler(self.tracker, self.ledger, policy, self.engine, self._write, seed)
        self._submit_all(due)

    @property
    def is_over(self) -> bool:
        """Whether the search has reached its target, so that no trial is to run any more."""
        return self._stop_at_target and self._reached

    def has_job(self, trial: str) -> bool:
        """Say whether a trial has had a job."""
        key = job_key(self.study, self._first, trial)
        return key in self.ledger.live_jobs or key in self.ledger.ended

    def submit(self, trial: str, request: Request, now: float) -> None:
        """Submit the first job of a trial; with rungs its iterations are those of the first one."""
        if self.rungs:
            request = replace(request, iterations=self.rungs[0].iterations)
        self.scheduler.take(StudyRegistered(now, self.study, rungs=self.rungs))
        self._submit(JobSubmitted(now, self.study, self._first, trial, request))

    def seal(self, now: float) -> None:
        """Take in that no further trial is added."""
        if self._first in self.tracker.studies[self.study].stages:
            self.scheduler.take(StageSealed(now, self.study, self._first))

    def step(self, now: float) -> None:
        """Take in what the engine observes, end and promote trials, decide, and make the calls that are due.

        Jobs whose trials Tune has ended before their iterations were done count as killed.
        """
        self.scheduler.watch(now)
        for trial in [trial for trial in self._jobs if trial not in self.engine.trials]:
            self.scheduler.take(JobEnded(now, self._jobs[trial], JobStatus.KILLED))
        self._react(now)
        self.scheduler.step(now)
        self._react(now)

    def _write(self, event: Event) -> None:
        self._write_event(event)
        self._unjudged.append(event)
        self._note(event)

    def _note(self, event: Event) -> None:
        match event:
            case JobSubmitted(stage=stage, job=trial):
                self._jobs[trial] = job_key(self.study, stage, trial)
            case JobEnded(job=key):
                self._jobs.pop(key.rpartition("/")[2], None)
            case JobReported(job=key, report=Report() as report):
                self._reached = self._reached or _meets(report, self._request(key))

    def _judge(self, event: Event) -> Iterable[Event]:
        return self._tuner.judge(event) if self._tuner else ()

    def _react(self, now: float) -> None:
        """Let the tuner judge what has happened; end the trials that run no further job, all of them at the target."""
        while self._unjudged:
            event = self._unjudged.popleft()
            if self.is_over:
                self._end_jobs(now)
            self._submit_all(self._judge(event))
        for trial in list(self.engine.trials):
            if trial not in self._jobs and (self.is_over or self._tuner is None or trial not in self._tuner.halving):
                self.engine.discard(trial)

    def _end_jobs(self, now: float) -> None:
        """End all jobs: those that meet the target have finished."""
        for key in list(self._jobs.values()):
            job = self.ledger.job(key)
            met = job is not None and any(_meets(report, job.request) for report in job.reports)
            self.scheduler.take(JobEnded(now, key, JobStatus.FINISHED if met else JobStatus.KILLED))

    def _submit_all(self, reactions: Iterable[Event]) -> None:
        for event in reactions:
            if not isinstance(event, JobSubmitted):
                self.scheduler.take(event)
            elif not self.is_over:
                self._submit(event)

    def _submit(self, event: JobSubmitted) -> None:
        """Submit a job; what was reported of the trial's job before counts as reported of this one."""
        self.scheduler.take(StageRegistered(event.at_s, event.study, event.stage))
        self.scheduler.take(event)
        key = job_key(event.study, event.stage, event.job)
        job = self.ledger.job(key)
        if job and event.stage != self._first:  # also if a predecessor came to submit it and no further: repeats are no events
            before = self.ledger.ended[self._key(event.job, self._number(event.stage) - 1)]
            for report in before.reports:
                self.scheduler.take(JobReported(event.at_s, key, report))
            if before.speeds and not job.speeds:
                self.scheduler.take(JobReported(event.at_s, key, None, before.speeds, before.costs))

    def _next_job(self, trial: str, rung: int, at_s: float) -> JobSubmitted:
        before = self.ledger.ended[self._key(trial, rung - 1)].request
        request = replace(before, iterations=self.rungs[rung].iterations)
        return JobSubmitted(at_s, self.study, self.rungs[rung].name, trial, request)

    def _request(self, key: str) -> Request:
        job = self.ledger.job(key) or self.ledger.ended[key]
        return job.request

    def _key(self, trial: str, rung: int) -> str:
        return job_key(self.study, self.rungs[rung].name, trial)

    def _number(self, stage: str) -> int:
        return [rung.name for rung in self.rungs].index(stage)


def _meets(report: Report, request: Request) -> bool:
    by_loss = request.target_loss is not None and report.loss <= request.target_loss
    by_accuracy = request.target_accuracy is not None and (report.accuracy or 0.0) >= request.target_accuracy
    return by_loss or by_accuracy
