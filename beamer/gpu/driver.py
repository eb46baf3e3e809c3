"""Drives searches: what happens under the GPU scheduler is passed to a tuner, and what the tuner does about it is taken.

Live searches and the simulator run this one. A driver that is killed anywhere is replaced by one that reads the same journal:
the tuner is told of all that happened before, and what its predecessor had not taken of its reactions is taken then.
"""

from collections import deque
from collections.abc import Callable, Iterable

from beamer.gpu.decider import Decider
from beamer.gpu.engine import Engine
from beamer.gpu.events import GpusRequested
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.limits import RunLimits
from beamer.gpu.model import Request
from beamer.gpu.scheduler import NO_LIMITS, Scheduler
from beamer.gpu.tuners import Tuner
from beamer.studies.events import Event, StageRegistered, StageSealed, TargetSet, TrialEnded, TrialRegistered
from beamer.studies.model import StudyStatus, split_key, trial_key
from beamer.studies.tracker import Tracker


class SearchDriver:
    """A tuner's searches on an engine.

    decider: returns who grants GPUs, given the tracker and its `GpuLedger`. past: the journal's events. write: makes an event
    durable, before it takes effect. on_event: called with every new event that has been applied, before the tuner judges it.
    is_over: whether what the tuner does is not taken any more, and nothing is started. limits: as of `Scheduler`. tracker: a
    new one with a `GpuLedger` among its ledgers; None: with that alone.
    """

    def __init__(
        self,
        decider: Callable[[Tracker, GpuLedger], Decider],
        engine: Engine,
        tuner: Tuner,
        past: Iterable[Event] = (),
        write: Callable[[Event], None] = lambda event: None,
        on_event: Callable[[Event], None] = lambda event: None,
        is_over: Callable[[], bool] = lambda: False,
        limits: RunLimits = NO_LIMITS,
        tracker: Tracker | None = None,
    ) -> None:
        self.tracker = Tracker(GpuLedger()) if tracker is None else tracker
        self.ledger = next(ledger for ledger in self.tracker.ledgers if isinstance(ledger, GpuLedger))
        self.tuner = tuner
        self._on_event = on_event
        self._is_over = is_over
        self._new: deque[Event] = deque()
        self._due: list[Event] = []
        for event in past:
            self.tracker.apply(event)
            self._due += tuner.judge(event)
        decides = decider(self.tracker, self.ledger)
        self.scheduler = Scheduler(self.tracker, self.ledger, decides, engine, write, limits, self._applied, is_over)

    def take(self, event: Event) -> bool:
        """Take in an event, as `Scheduler.take`; the tuner is told of it at the next `react`."""
        return self.scheduler.take(event)

    def submit(self, study: str, trial: str, request: Request, now: float) -> None:
        """Register a trial of a registered study, let the tuner give it a target, and have it ask for GPUs."""
        self.take(TrialRegistered(now, study, trial, request.iterations))
        self.react()
        self.take(GpusRequested(now, trial_key(study, trial), request))

    def step(self, now: float) -> float | None:
        """Let scheduler and tuner act, and return when to step again at the latest; None: when something happens."""
        wake_s = self.scheduler.step(now)
        return now if self.react() else wake_s

    def react(self) -> bool:
        """Pass on what has been applied, take what the tuner does about it, and return whether that changed anything."""
        due, self._due = self._due, []
        acted = self._take_all(due)
        while self._new:
            acted = self._take_all(self.tuner.judge(self._new.popleft())) or acted
        return acted

    def _take_all(self, events: Iterable[Event]) -> bool:
        changed = [self.take(event) for event in events if not self._is_over() and self._is_active(event)]
        return any(changed)

    def _is_active(self, event: Event) -> bool:
        """Say whether the study that a tuner's event is about has not ended."""
        match event:
            case StageRegistered(study=study) | StageSealed(study=study):
                return self.tracker.study(study).status is not StudyStatus.ENDED
            case TargetSet(trial=key) | TrialEnded(trial=key):
                return self.tracker.study(split_key(key)[0]).status is not StudyStatus.ENDED
        return True

    def _applied(self, event: Event) -> None:
        self._on_event(event)
        self._new.append(event)
