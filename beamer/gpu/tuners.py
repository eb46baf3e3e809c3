"""What judges the jobs of a search while they run; simulator and live search share it.

A tuner acts on events alone, so that replaying a journal through a new one makes it what its predecessor was.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from beamer.gpu.events import JobReported
from beamer.gpu.model import Report
from beamer.studies.events import Event, JobEnded, StageSealed
from beamer.studies.model import JobStatus, Rung, split_key

A = TypeVar("A")


class Tuner(ABC, Generic[A]):
    """What judges the jobs of a search. A: how whoever runs the jobs is told to submit one."""

    done: bool = False

    @abstractmethod
    def judge(self, event: Event) -> Iterable[Event | A]:
        """Return what it does about an event: jobs that it ends, stages that it seals, jobs that it starts."""


class NoTuner(Tuner[A]):
    """Lets every job run to its end."""

    def judge(self, event: Event) -> Iterable[Event | A]:
        """Do nothing."""
        return ()


class Halving(Tuner[A]):
    """Successive halving: when all jobs of a rung have ended, the best go on in the next. [source: SHA]

    rungs: every one, the first included. arrival: of a trial in a rung, where it goes on from where it stopped in the one
    before, at a time. Trials that failed or were killed go no further, be their losses what they may.
    """

    def __init__(self, study: str, rungs: Sequence[Rung], arrival: Callable[[str, int, float], A]) -> None:
        self.study = study
        self._rungs = tuple(rungs)
        self._arrival = arrival
        self._at = 0
        self._expected = self._rungs[0].jobs
        self._losses: dict[str, float] = {}
        self._ended: dict[str, JobStatus] = {}

    def first(self, trials: Sequence[str], at_s: float = 0.0) -> list[A]:
        """Return the arrivals of the first rung's jobs."""
        return [self._arrival(trial, 0, at_s) for trial in trials]

    def judge(self, event: Event) -> Iterable[Event | A]:
        """Seal a rung when its last job ends, and start the next one's jobs."""
        rung = self._rungs[self._at]
        match event:
            case JobReported(job=key, report=Report(loss=loss)) if key.startswith(f"{self.study}/{rung.name}/"):
                self._losses[split_key(key)[2]] = loss if math.isfinite(loss) else math.inf
            case JobEnded(job=key, at_s=at_s, status=status) if key.startswith(f"{self.study}/{rung.name}/"):
                self._ended[split_key(key)[2]] = status
                if len(self._ended) == self._expected:
                    yield StageSealed(at_s, self.study, rung.name)
                    yield from self._next(at_s)

    def _next(self, at_s: float) -> Iterable[A]:
        whole = [trial for trial, status in self._ended.items() if status is JobStatus.FINISHED]
        ranked = sorted(whole, key=lambda trial: self._losses.get(trial, math.inf))
        if self._at + 1 == len(self._rungs) or not ranked:
            self.done = True
            return
        self._ended.clear()
        self._at += 1
        chosen = ranked[: self._rungs[self._at].jobs]
        self._expected = len(chosen)
        for trial in chosen:
            yield self._arrival(trial, self._at, at_s)
