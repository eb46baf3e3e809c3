"""A running search: its journal, the scheduler on an engine, the tuner that judges its jobs."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beamer.errors import EngineError, InputError
from beamer.gpu.devices import Devices
from beamer.gpu.engine import Engine, Observed
from beamer.gpu.events import JobSubmitted
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.scheduler import Scheduler
from beamer.gpu.tuners import HalvingTuner
from beamer.schedule.file import Search
from beamer.schedule.statistics import SearchStatistics
from beamer.studies.events import Event, JobEnded, StageRegistered, StudyRegistered
from beamer.studies.model import JobStatus
from beamer.studies.tracker import Tracker

POLL_INTERVAL_S = 0.1  # between two steps while nothing is due
CHECK_INTERVAL_S = 0.01  # between two observations of jobs that are waited for
RETRY_INTERVAL_S = 1.0  # until an engine is asked again: a call may have failed

log = logging.getLogger("beamer.gpu")


def _never() -> bool:
    return False


def _moving(seen: Mapping[str, Observed]) -> set[str]:
    return {key for key, one in seen.items() if one.state.has_processes}


class SearchSession:
    """Run a search from where its journal ends.

    past: the journal's events. write: makes an event durable, before it takes effect. on_event: called with every event that
    has been applied, and with the GPUs that jobs had before it. timeout_s: the longest wait for jobs to be parked or forgotten.
    """

    def __init__(
        self,
        search: Search,
        policy: GpuPolicy[Any],
        engine: Engine,
        past: Iterable[Event],
        write: Callable[[Event], None],
        on_event: Callable[[Event, Mapping[str, Devices]], None] = lambda event, before: None,
        seed: int = 0,
        timeout_s: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.search = search
        self.engine = engine
        self.statistics = SearchStatistics(search.target_loss)
        self.ledger = GpuLedger()
        self.tracker = Tracker(self.ledger)
        self._append = write
        self._on_event = on_event
        self._timeout_s = timeout_s
        self._clock = clock
        self._new_events: deque[Event] = deque()
        self._tuner: HalvingTuner[JobSubmitted] = HalvingTuner(search.name, search.rungs, self._submission)
        self._pending: list[Event] = []
        self._next_request_s = 0.0
        self._end_deadline_s: float | None = None
        for event in past:
            self.tracker.apply(event)
            self.statistics.apply(event)
            self._pending += self._tuner.judge(event)
        others = self.tracker.studies.keys() - {search.name}
        if others:
            raise InputError("--journal", ", ".join(sorted(others)), f"a journal of search {search.name} alone")
        self.scheduler = Scheduler(self.tracker, self.ledger, policy, engine, self._write, seed)

    @property
    def started(self) -> bool:
        """Whether the journal holds anything."""
        return bool(self.tracker.studies)

    @property
    def done(self) -> bool:
        """Whether all jobs have ended that there will be."""
        return (self._tuner.done or self._reached) and not self.ledger.live_jobs

    @property
    def _reached(self) -> bool:
        return self.search.stop_at_target and bool(self.statistics.reached)

    def start(self, now: float) -> None:
        """Submit what has not been submitted yet, and take the tuner's events that a killed predecessor had not taken."""
        rungs = self.search.rungs
        self.scheduler.take(StudyRegistered(now, self.search.name, rungs=rungs[1:]))
        self._take_all(self._tuner.first([trial.name for trial in self.search.trials], now))
        self._take_all(self._pending)
        self._pending = []

    def step(self, now: float) -> float | None:
        """Let scheduler and tuner act, and return when to step again at the latest; None: when something happens."""
        if self._ending:
            return self._end()
        wake_s = self.scheduler.step(now)
        acted = self._process_new_events()
        if self._ending:
            return self._end()
        return now if acted else wake_s

    def park(self, interrupted: Callable[[], bool] = _never) -> bool:
        """Stop every job at an iteration boundary with a checkpoint, and return whether all are.

        interrupted: whether to give up waiting.
        """
        until = time.monotonic() + self._timeout_s
        while left := _moving(self._observe()):
            if interrupted() or time.monotonic() > until:
                return False
            self._request_parking(left)
            time.sleep(CHECK_INTERVAL_S)
        self._observe()  # for what was reported until then
        self.scheduler.revoke(self._clock())
        return True

    def wait_until_forgotten(self, interrupted: Callable[[], bool] = _never) -> bool:
        """Step until the engine has forgotten all jobs, which have ended, and return whether it has."""
        until = time.monotonic() + self._timeout_s
        while self.engine.report():
            if interrupted() or time.monotonic() > until:
                return False
            self.step(self._clock())
            time.sleep(CHECK_INTERVAL_S)
        return True

    @property
    def _ending(self) -> bool:
        return self._reached and bool(self.ledger.live_jobs)

    def _end(self) -> float:
        """End a search that has reached its target, as far as that can be done now, and return when to go on.

        What reached it is saved, then finished; the others are killed at once.
        """
        winners = self.statistics.reached.keys()
        self._finish([key for key in self.ledger.live_jobs if key not in winners], JobStatus.KILLED)
        left = _moving(self._observe()) & set(self.ledger.live_jobs)
        self._end_deadline_s = self._end_deadline_s or time.monotonic() + self._timeout_s
        if time.monotonic() > self._end_deadline_s:
            for key in left:
                log.warning("%s has not been parked in time: its last checkpoint may be older than its target", key)
            left = set()
        self._request_parking(left)
        self._finish([key for key in self.ledger.live_jobs if key not in left], JobStatus.FINISHED)
        self._process_new_events()
        return self._clock() + CHECK_INTERVAL_S

    def _finish(self, keys: Iterable[str], status: JobStatus) -> None:
        for key in keys:
            self.scheduler.take(JobEnded(self._clock(), key, status))

    def _observe(self) -> Mapping[str, Observed]:
        """Return what the engine observes, after it has been applied."""
        seen = self.scheduler.watch(self._clock())
        self._process_new_events()
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

    def _process_new_events(self) -> bool:
        """Pass what has been applied on to statistics, listener and tuner, and return whether the tuner has acted."""
        acted = False
        while self._new_events:
            event = self._new_events.popleft()
            before = self.statistics.devices
            self.statistics.apply(event)
            self._on_event(event, before)
            acted = self._take_all(self._tuner.judge(event)) or acted
        return acted

    def _take_all(self, events: Iterable[Event]) -> bool:
        """Take the tuner's events; after the target has been reached, no job is submitted any more."""
        acted = False
        for event in events:
            if isinstance(event, JobSubmitted):
                if self._reached:
                    continue
                self.scheduler.take(StageRegistered(event.at_s, event.study, event.stage))
            acted = self.scheduler.take(event) or acted
        return acted

    def _submission(self, trial: str, rung: int, at_s: float) -> JobSubmitted:
        stage = self.search.rungs[rung].name
        return JobSubmitted(at_s, self.search.name, stage, trial, self.search.jobs[rung, trial].request)

    def _write(self, event: Event) -> None:
        self._append(event)
        self._new_events.append(event)
