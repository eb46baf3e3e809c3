"""A search under way: its journal, the scheduler on an engine, the tuner that judges its jobs."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
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
from beamer.schedule.tally import Tally
from beamer.studies.events import Event, JobEnded, StageRegistered, StudyRegistered
from beamer.studies.model import JobStatus
from beamer.studies.tracker import Tracker

POLL_S = 0.1
LOOK_S = 0.01
AGAIN_S = 1.0

log = logging.getLogger("beamer.gpu")


def _never() -> bool:
    return False


def _moving(seen: Mapping[str, Observed]) -> set[str]:
    return {key for key, one in seen.items() if one.state.has_processes}


class Session:
    """Lead a search from where its journal left it.

    past: the journal's events. write: makes an event durable, before it takes effect.
    hear: told of every event when it has been taken in, with the GPUs that jobs had before it. patience_s: for which it is
    waited that jobs are parked or gone.
    """

    def __init__(
        self,
        search: Search,
        policy: GpuPolicy[Any],
        engine: Engine,
        past: Iterable[Event],
        write: Callable[[Event], None],
        hear: Callable[[Event, Mapping[str, Devices]], None] = lambda event, before: None,
        seed: int = 0,
        patience_s: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.search = search
        self.engine = engine
        self.tally = Tally(search.target_loss)
        self.ledger = GpuLedger()
        self.tracker = Tracker(self.ledger)
        self._append = write
        self._hear = hear
        self._patience_s = patience_s
        self._clock = clock
        self._news: deque[Event] = deque()
        self._tuner: HalvingTuner[JobSubmitted] = HalvingTuner(search.name, search.rungs, self._submission)
        self._due: list[Event] = []
        self._ask_s = 0.0
        self._end_by: float | None = None
        for event in past:
            self.tracker.apply(event)
            self.tally.note(event)
            self._due += self._tuner.judge(event)
        others = self.tracker.studies.keys() - {search.name}
        if others:
            raise InputError("--journal", ", ".join(sorted(others)), f"a journal of search {search.name} alone")
        self.scheduler = Scheduler(self.tracker, self.ledger, policy, engine, self._write, seed)

    @property
    def begun(self) -> bool:
        """Whether the journal holds anything."""
        return bool(self.tracker.studies)

    @property
    def done(self) -> bool:
        """Whether all jobs have ended that there will be."""
        return (self._tuner.done or self._reached) and not self.ledger.live_jobs

    @property
    def _reached(self) -> bool:
        return self.search.stop_at_target and bool(self.tally.reached)

    def begin(self, now: float) -> None:
        """Submit what has not been submitted yet, and do what a predecessor had not come to."""
        rungs = self.search.rungs
        self.scheduler.take(StudyRegistered(now, self.search.name, rungs=rungs[1:]))
        self._react(self._tuner.first([trial.name for trial in self.search.trials], now))
        self._react(self._due)
        self._due = []

    def step(self, now: float) -> float | None:
        """Let scheduler and tuner act, and return when to step again at the latest; None: whenever something happens."""
        if self._ending:
            return self._end()
        wake_s = self.scheduler.step(now)
        acted = self._hear_news()
        if self._ending:
            return self._end()
        return now if acted else wake_s

    def park(self, hurried: Callable[[], bool] = _never) -> bool:
        """Stop every job at an iteration boundary with a checkpoint, and say whether all are. hurried: not to be waited for."""
        until = time.monotonic() + self._patience_s
        while left := _moving(self._watch()):
            if hurried() or time.monotonic() > until:
                return False
            self._ask_to_park(left)
            time.sleep(LOOK_S)
        self._watch()  # for what was said on the way to rest
        last = self.ledger.decision
        if last and last.grants:  # what is not on GPUs is not to be counted as if
            self.scheduler.take(replace(last, at_s=self._clock(), generation=last.generation + 1, grants={}, devices={}))
        return True

    def settle(self, hurried: Callable[[], bool] = _never) -> bool:
        """Step until the engine has forgotten all jobs, which have ended, and say whether it has."""
        until = time.monotonic() + self._patience_s
        while self.engine.report():
            if hurried() or time.monotonic() > until:
                return False
            self.step(self._clock())
            time.sleep(LOOK_S)
        return True

    @property
    def _ending(self) -> bool:
        return self._reached and bool(self.ledger.live_jobs)

    def _end(self) -> float:
        """Lead a search that has reached its target to its end, and return when to go on with that.

        What reached it is saved, then finished; the others are killed at once.
        """
        winners = self.tally.reached.keys()
        self._finish([key for key in self.ledger.live_jobs if key not in winners], JobStatus.KILLED)
        left = _moving(self._watch()) & set(self.ledger.live_jobs)
        self._end_by = self._end_by or time.monotonic() + self._patience_s
        if time.monotonic() > self._end_by:
            for key in left:
                log.warning("%s has not come to rest: its last checkpoint may be older than its target", key)
            left = set()
        self._ask_to_park(left)
        self._finish([key for key in self.ledger.live_jobs if key not in left], JobStatus.FINISHED)
        self._hear_news()
        return self._clock() + LOOK_S

    def _finish(self, keys: Iterable[str], status: JobStatus) -> None:
        for key in keys:
            self.scheduler.take(JobEnded(self._clock(), key, status))

    def _watch(self) -> Mapping[str, Observed]:
        """Return what the engine sees, taken in."""
        seen = self.scheduler.watch(self._clock())
        self._hear_news()
        return seen

    def _ask_to_park(self, keys: Iterable[str]) -> None:
        """Ask for it again after a while: a call may have failed."""
        if time.monotonic() < self._ask_s:
            return
        self._ask_s = time.monotonic() + AGAIN_S
        for key in keys:
            try:
                self.engine.resize(key, None)
            except EngineError as error:
                log.warning("parking %s: %s", key, error)

    def _hear_news(self) -> bool:
        """Let tally, listener and tuner know of what has been taken in, and say whether the tuner has acted."""
        acted = False
        while self._news:
            event = self._news.popleft()
            before = self.tally.devices
            self.tally.note(event)
            self._hear(event, before)
            acted = self._react(self._tuner.judge(event)) or acted
        return acted

    def _react(self, reactions: Iterable[Event]) -> bool:
        """Take what the tuner does; after the target has been reached nothing is begun any more."""
        acted = False
        for reaction in reactions:
            if isinstance(reaction, JobSubmitted):
                if self._reached:
                    continue
                self.scheduler.take(StageRegistered(reaction.at_s, reaction.study, reaction.stage))
            acted = self.scheduler.take(reaction) or acted
        return acted

    def _submission(self, trial: str, rung: int, at_s: float) -> JobSubmitted:
        stage = self.search.rungs[rung].name
        return JobSubmitted(at_s, self.search.name, stage, trial, self.search.tasks[rung, trial].request)

    def _write(self, event: Event) -> None:
        self._append(event)
        self._news.append(event)
