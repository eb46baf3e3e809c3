"""Tuners judge the jobs of a search while they run; simulator and live search share them.

A tuner acts on events alone, so that replaying a journal through a new one makes it what its predecessor was.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from beamer.gpu.events import JobReported, JobSubmitted
from beamer.gpu.model import Report
from beamer.studies.events import Event, JobEnded, StageSealed
from beamer.studies.halving import Halving, Verdict
from beamer.studies.model import JobStatus, Rung, split_key

A = TypeVar("A")


class Tuner(ABC, Generic[A]):
    """Judges the jobs of a search. A: a request to submit one, for whoever runs the jobs."""

    done: bool = False

    @abstractmethod
    def judge(self, event: Event) -> Iterable[Event | A]:
        """Return what it does about an event: jobs that it ends, stages that it seals, jobs that it starts."""


class NoTuner(Tuner[A]):
    """Lets every job run to its end."""

    def judge(self, event: Event) -> Iterable[Event | A]:
        """Do nothing."""
        return ()


class HalvingTuner(Tuner[A]):
    """Successive halving: the best trials of a rung continue in the next, a job in each. See `beamer.studies.halving`.

    rungs: every one, the first included. arrival: of a trial in a rung, where it continues from where it stopped in the one
    before, at a time. early: whether a trial is promoted as soon as that is certain; otherwise all are when the last job of the
    rung has ended. Trials that failed or were killed go no further, whatever their losses.
    """

    def __init__(
        self, study: str, rungs: Sequence[Rung], arrival: Callable[[str, int, float], A], *, early: bool = False
    ) -> None:
        self.study = study
        self.halving = Halving(rungs)
        self.early = early
        self._arrival = arrival
        self._number = {rung.name: i for i, rung in enumerate(rungs)}
        self._losses: dict[str, float] = {}
        self._current: int | None = 0  # the rung whose end is waited for; None: no further one begins
        self._open: set[int] = set()  # later rungs that were begun early

    def first(self, trials: Sequence[str], at_s: float = 0.0) -> list[A]:
        """Return the arrivals of the first rung's jobs."""
        return [self._arrival(trial, 0, at_s) for trial in trials]

    def judge(self, event: Event) -> Iterable[Event | A]:
        """Start the jobs of promoted trials, and seal rungs that no further trial enters."""
        match event:
            case JobSubmitted(study=self.study, stage=stage, job=trial) if self._number.get(stage) == 0:
                self.halving.join(trial)
            case StageSealed(study=self.study, stage=stage, at_s=at_s) if self._number.get(stage) == 0:
                yield from self._act(self.halving.close(), at_s)
            case JobReported(job=key, report=Report(loss=loss)):
                self._losses[key] = loss
            case JobEnded(job=key, at_s=at_s, status=status):
                study, stage, trial = split_key(key)
                loss = self._losses.pop(key, math.inf)
                if study == self.study and stage in self._number and trial in self.halving:
                    finished = status is JobStatus.FINISHED
                    yield from self._act(self.halving.arrive(trial, loss) if finished else self.halving.leave(trial), at_s)

    def _act(self, verdicts: Iterable[Verdict], at_s: float) -> Iterable[Event | A]:
        self.done = self.halving.is_over(len(self.halving.rungs) - 1)
        return self._promote(verdicts, at_s) if self.early else self._begin_next(at_s)

    def _begin_next(self, at_s: float) -> Iterable[Event | A]:
        """Seal the current rung when it is over, and start the jobs of the next."""
        rung = self._current
        if rung is None or not self.halving.is_over(rung):
            return
        survivors = self.halving.survivors(rung)
        self._current = rung + 1 if survivors else None
        yield self._seal(rung, at_s)
        for trial in survivors:
            yield self._arrival(trial, rung + 1, at_s)

    def _promote(self, verdicts: Iterable[Verdict], at_s: float) -> Iterable[Event | A]:
        """Start the next jobs of trials that are promoted."""
        for verdict in verdicts:
            if verdict.promoted:
                rung = self.halving.rung(verdict.trial)
                self._open.add(rung)
                yield self._arrival(verdict.trial, rung, at_s)
        for rung in sorted(self._open):
            if self.halving.is_sealed(rung):
                self._open.discard(rung)
                yield self._seal(rung, at_s)

    def _seal(self, rung: int, at_s: float) -> StageSealed:
        return StageSealed(at_s, self.study, self.halving.rungs[rung].name)
