"""A running search: its journal, the scheduler on an engine, the tuner that judges its jobs."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

from beamer.errors import EngineError, InputError
from beamer.gpu.decider import Decider
from beamer.gpu.devices import Devices
from beamer.gpu.driver import SearchDriver
from beamer.gpu.engine import Engine, Observed
from beamer.gpu.events import RunFailed, TrialSampled
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.remote import OWN_RUN
from beamer.gpu.tuners import AsynchronousHalvingTuner, HalvingTuner, NoTuner, Tuner
from beamer.schedule.file import Search
from beamer.schedule.programs import missing_program
from beamer.schedule.sampling import DrawnTrials
from beamer.schedule.statistics import SearchStatistics
from beamer.schedule.template import Trial
from beamer.studies.events import Event, StudyEnded, StudyRegistered, TrialEnded
from beamer.studies.model import StudyStatus, TrialStatus
from beamer.studies.tracker import Tracker

ENOUGH_UNREAD = 2
"""Configurations that have come to the end of a rung without a line that was read: one may be an accident of its own."""
CHECK_INTERVAL_S = 0.01  # time between two observations of jobs that are waited for
RETRY_INTERVAL_S = 1.0  # An engine is asked again after this time, as a call may have failed.

log = logging.getLogger("beamer.gpu")


def _moving(seen: Mapping[str, Observed]) -> set[str]:
    return {key for key, one in seen.items() if one.state.has_processes}


def _tuner(search: Search) -> Tuner:
    if search.asynchronous is not None:
        return AsynchronousHalvingTuner(search.name, search.asynchronous)
    return HalvingTuner(search.name, search.rungs) if search.rungs else NoTuner()


class SearchSession:
    """Run a search from where its journal ends.

    decider: as of `SearchDriver`. past: the journal's events. write: makes an event durable, before it takes effect. on_event:
    called with every event that has been applied, and with the GPUs that jobs had before it. timeout_s: the longest wait for
    jobs to be parked or forgotten. run: tells the search from others of its name.
    """

    def __init__(
        self,
        search: Search,
        decider: Callable[[Tracker, GpuLedger], Decider],
        engine: Engine,
        past: Iterable[Event],
        write: Callable[[Event], None],
        on_event: Callable[[Event, Mapping[str, Devices]], None] = lambda event, before: None,
        timeout_s: float = 60.0,
        clock: Callable[[], float] = time.time,
        run: str = OWN_RUN,
    ) -> None:
        self.search = search  # with all configurations that have been drawn
        self.draws = DrawnTrials(search.name, search.sampling) if search.sampling else None
        self.engine = engine
        self.statistics = SearchStatistics(search.target_loss)
        self._listener = on_event
        self._timeout_s = timeout_s
        self._clock = clock
        self._run = run
        self._next_request_s = 0.0
        self._end_deadline_s: float | None = None
        self.missing_program = ""  # why a run of this session has failed for which there is no program
        self._tuner = _tuner(search)
        counted = self._counted(past)
        self.driver = SearchDriver(
            decider, engine, self._tuner, counted, write, self._on_event, self._is_over, limits=search.limits
        )  # fmt: skip
        self.tracker, self.ledger, self.scheduler = self.driver.tracker, self.driver.ledger, self.driver.scheduler
        others = self.tracker.studies.keys() - {search.name}
        if others:
            raise InputError("--journal", ", ".join(sorted(others)), f"a journal of search {search.name} alone")

    @property
    def started(self) -> bool:
        """Whether the journal holds anything."""
        return bool(self.tracker.studies)

    @property
    def done(self) -> bool:
        """Whether all trials have ended."""
        if not self.started:
            return False
        study = self.tracker.studies[self.search.name]
        is_complete = len(study.trials) == self.search.trial_count
        if self.draws is not None:  # A search that is over draws no more.
            is_complete = is_complete or study.status is StudyStatus.ENDED or (self._reached and bool(study.trials))
        return is_complete and all(trial.status.is_finished for trial in study.trials.values())

    def target(self, key: str) -> int:
        """Return the step that a trial is to run to. Raises `LookupError` for one that does not want GPUs."""
        job = self.ledger.job(key)
        if job is None:
            raise LookupError(f"{key} has not asked for GPUs, or has ended")
        return job.request.iterations

    @property
    def _is_unread(self) -> bool:
        """Whether configurations have come to the end of a rung that not all survive, and no line of any was read."""
        statistics = self.statistics
        judges = any(later.trials < rung.trials for rung, later in pairwise(self.search.rungs))
        if not judges or not statistics.unread or statistics.reports:
            return False
        left = statistics.counts.keys() - statistics.unread - statistics.ends.keys()
        return not left or len(statistics.unread) >= ENOUGH_UNREAD

    @property
    def judges_nothing(self) -> bool:
        """Whether a rung would be judged on nothing: no line was read, or no configuration came to its end with a finite loss.

        Then nobody is promoted or killed, and nothing is started any more.
        """
        return self._is_unread or bool(self.rung_without_loss)

    @property
    def rung_without_loss(self) -> str:
        """The rung at whose end no configuration has a finite loss, and that not all survive; "" for none."""
        return self._tuner.rung_without_loss

    def _is_over(self) -> bool:
        return self._reached or self.judges_nothing or bool(self.missing_program)

    @property
    def _ended(self) -> bool:
        return self.tracker.studies[self.search.name].status is StudyStatus.ENDED

    @property
    def _reached(self) -> bool:
        return self.search.stop_at_target and bool(self.statistics.reached)

    def start(self, now: float) -> None:
        """Have every trial ask for GPUs that has not, and take the tuner's events that a killed predecessor had not taken."""
        if not self.started:
            has_barriers = self.search.asynchronous is None
            self.driver.take(StudyRegistered(now, self.search.name, self._run, rungs=self.search.rungs, barriers=has_barriers))
        for name, job in self.search.jobs.items():
            self.driver.submit(self.search.name, name, job.request, now)
        self._draw(now)
        self._end_study(now)

    def _draw(self, now: float) -> bool:
        """Draw the trials that are due and have them ask for GPUs; return whether there were any."""
        drew = False
        while self.draws is not None and self.draws.is_due and not self._is_over() and not self._ended:
            drawn = self.draws.draw(now)
            self.driver.take(drawn)
            self.driver.submit(self.search.name, drawn.trial, self.search.jobs[drawn.trial].request, now)
            drew = True
        return drew

    def step(self, now: float) -> float | None:
        """Let scheduler and tuner act, and return when to step again at the latest; None: when something happens."""
        wake_s = None if self._ending else self.driver.step(now)
        if self._ending:
            wake_s = self._end()
        elif self._draw(now):
            wake_s = now
        self._end_study(now)
        return wake_s

    @property
    def used(self) -> Devices:
        """The GPUs that processes compute on, as they were seen last."""
        seen = self.scheduler.seen.values()
        return tuple(sorted({gpu for one in seen if one.state.is_computing and one.placement for gpu in one.placement.devices}))

    def kill(self, now: float) -> None:
        """End a search that somebody else has ended: its trials are killed."""
        self._finish(list(self.ledger.live_jobs), TrialStatus.KILLED)
        self.driver.react()
        if self.draws is not None:  # No further one is drawn.
            self.driver.take(StudyEnded(now, self.search.name))
        self._end_study(now)

    def park(self, interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Stop every job at an iteration boundary with a checkpoint, and return whether all are.

        interrupted: whether to give up waiting.
        """
        until = time.monotonic() + self._timeout_s
        while left := _moving(self._observe()):
            if interrupted() or time.monotonic() > until:
                return False
            self._request_parking(left)
            time.sleep(CHECK_INTERVAL_S)
        self._observe()  # This takes in what was reported until then.
        self.scheduler.revoke(self._clock())
        return True

    def wait_until_forgotten(self, interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Step until the engine has forgotten all jobs, which have ended, and return whether it has."""
        until = time.monotonic() + self._timeout_s
        while self.engine.report():
            if interrupted() or time.monotonic() > until:
                return False
            self.step(self._clock())
            time.sleep(CHECK_INTERVAL_S)
        return True

    @property
    def unended(self) -> set[str]:
        """The jobs that `park` or, of a search that is done, `wait_until_forgotten` waits for."""
        seen = self.engine.report()
        return set(seen) if self.done else _moving(seen)

    @property
    def _ending(self) -> bool:
        return self._reached and bool(self.ledger.live_jobs)

    def _end(self) -> float:
        """End a search that has reached its target, as far as that can be done now, and return when to go on.

        What reached it is saved, then finished; the others are killed at once.
        """
        winners = self.statistics.reached.keys()
        self._finish([key for key in self.ledger.live_jobs if key not in winners], TrialStatus.KILLED)
        left = _moving(self._observe()) & set(self.ledger.live_jobs)
        self._end_deadline_s = self._end_deadline_s or time.monotonic() + self._timeout_s
        if time.monotonic() > self._end_deadline_s:
            for key in left:
                log.warning("%s has not been parked in time: its last checkpoint may be older than its target", key)
            left = set()
        self._request_parking(left)
        self._finish([key for key in self.ledger.live_jobs if key not in left], TrialStatus.FINISHED)
        self.driver.react()
        return self._clock() + CHECK_INTERVAL_S

    def _finish(self, keys: Iterable[str], status: TrialStatus) -> None:
        for key in keys:
            self.driver.take(TrialEnded(self._clock(), key, status))

    def _end_study(self, now: float) -> None:
        if self.done:
            self.driver.take(StudyEnded(now, self.search.name))
            self.driver.react()

    def _observe(self) -> Mapping[str, Observed]:
        """Return what the engine observes, after it has been applied."""
        seen = self.scheduler.watch(self._clock())
        self.driver.react()
        return seen

    def _request_parking(self, keys: Iterable[str]) -> None:
        """Ask the engine to park jobs, and again after a while: a call may have failed."""
        if time.monotonic() < self._next_request_s:
            return
        self._next_request_s = time.monotonic() + RETRY_INTERVAL_S
        for key in keys:
            try:
                self.engine.resize(key, None)
            except EngineError as error:
                log.warning("parking %s: %s", key, error)

    def _counted(self, past: Iterable[Event]) -> Iterator[Event]:
        for event in past:
            self._count(event)
            yield event

    def _count(self, event: Event) -> None:
        self.statistics.apply(event)
        if self.draws is not None:
            if isinstance(event, TrialSampled):
                self.search = self.search.with_drawn(Trial(event.trial, event.values))
            self.draws.apply(event)

    def _on_event(self, event: Event) -> None:
        before = self.statistics.devices
        if isinstance(event, RunFailed) and missing_program(event.reason):
            self.missing_program = event.reason
        self._count(event)
        self._listener(event, before)
