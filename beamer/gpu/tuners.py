"""Tuners judge the trials of a search while they run; simulator and live search share them.

A tuner acts on events alone, so that replaying a journal through a new one makes it what its predecessor was.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from beamer.gpu.events import RunFinished, TrialReported
from beamer.gpu.model import Report
from beamer.studies.asynchronous_halving import AsynchronousHalving, RungArrival
from beamer.studies.events import Event, StageRegistered, StageSealed, TargetSet, TrialEnded, TrialRegistered
from beamer.studies.halving import Halving, Verdict
from beamer.studies.model import Rung, TrialStatus, split_key, trial_key


class Tuner(ABC):
    """Judges the trials of a search.

    done: whether it waits for nothing any more. rung_without_loss: the rung that is over, that not all survive, and at
    whose end no trial had a finite loss; "" for none.
    """

    done: bool = False
    rung_without_loss: str = ""

    @abstractmethod
    def judge(self, event: Event) -> Iterable[Event]:
        """Return what it does about an event: targets that it sets, trials that it ends, stages that it opens and seals."""


class NoTuner(Tuner):
    """Lets every trial run to its end."""

    def judge(self, event: Event) -> Iterable[Event]:
        """Do nothing."""
        return ()


class Tuners(Tuner):
    """The tuners of several searches; each judges its own trials."""

    def __init__(self, tuners: Sequence[Tuner]) -> None:
        self._tuners = tuple(tuners)

    def judge(self, event: Event) -> Iterable[Event]:
        """Return what each does."""
        for tuner in self._tuners:
            yield from tuner.judge(event)

    @property
    def done(self) -> bool:  # type: ignore[override]  # The value follows from those of the tuners.
        """Whether none waits for anything any more."""
        return all(tuner.done for tuner in self._tuners)


class HalvingTuner(Tuner):
    """Successive halving: the best trials of a rung continue in the next, from where they are. See `beamer.studies.halving`.

    rungs: every one, the first included. early: whether a trial is promoted as soon as that is certain; otherwise all are when
    the last trial of the rung has come to its end. Losers are killed. Trials that failed or were killed go no further, whatever
    their losses.
    """

    def __init__(self, study: str, rungs: Sequence[Rung], *, early: bool = False) -> None:
        self.study = study
        self.early = early
        self.rungs = tuple(rungs)
        self._number = {rung.name: i for i, rung in enumerate(rungs)}
        self.halving = Halving(self.rungs)
        self._joined: set[str] = set()
        self._losses: dict[str, float] = {}
        self._current: int | None = 0  # The tuner waits for the end of this rung; None means that no further rung begins.
        self._open: set[int] = set()  # later rungs that were begun early

    @property
    def rung_without_loss(self) -> str:  # type: ignore[override]  # The value follows from those of the rungs.
        """The first rung that is over without a finite loss, and that not all survive; "" for none."""
        return next((rung.name for number, rung in enumerate(self.rungs) if self.halving.is_without_loss(number)), "")

    def judge(self, event: Event) -> Iterable[Event]:
        """Have new trials join the first rung, promote trials, kill the others, and seal rungs that no further trial enters."""
        match event:
            case TrialRegistered(study=self.study, trial=trial, at_s=at_s) if trial not in self._joined:
                yield from self._join(trial, at_s)
            case StageSealed(study=self.study, stage=stage, at_s=at_s) if self._number.get(stage) == 0:
                yield from self._act(self.halving.close(), at_s)
            case TrialReported(trial=key, report=Report(loss=loss)):
                self._losses[key] = loss
            case RunFinished(trial=key, step=step, at_s=at_s):
                study, trial = split_key(key)
                if study == self.study and trial in self.halving and step >= self.rungs[self.halving.rung(trial)].step:
                    yield from self._act(self.halving.arrive(trial, self._losses.pop(key, math.inf)), at_s)
            case TrialEnded(trial=key, at_s=at_s):
                study, trial = split_key(key)
                if study == self.study and trial in self.halving:
                    yield from self._act(self.halving.leave(trial), at_s)

    def _join(self, trial: str, at_s: float) -> Iterable[Event]:
        if not self._joined:
            yield StageRegistered(at_s, self.study, self.rungs[0].name)
        self._joined.add(trial)
        self.halving.join(trial)
        yield self._target(trial, 0, at_s)

    def _act(self, verdicts: Sequence[Verdict], at_s: float) -> Iterable[Event]:
        self.done = self.halving.is_over(len(self.rungs) - 1)
        for verdict in verdicts:
            if not verdict.promoted:
                yield TrialEnded(at_s, trial_key(self.study, verdict.trial), TrialStatus.KILLED)
        yield from self._promote(verdicts, at_s) if self.early else self._begin_next(at_s)

    def _begin_next(self, at_s: float) -> Iterable[Event]:
        """Seal the current rung when it is over, and begin the next."""
        rung = self._current
        if rung is None or not self.halving.is_over(rung):
            return
        survivors = self.halving.survivors(rung)
        self._current = rung + 1 if survivors else None
        yield self._seal(rung, at_s)
        if survivors:
            yield StageRegistered(at_s, self.study, self.rungs[rung + 1].name)
        for trial in survivors:
            yield self._target(trial, rung + 1, at_s)

    def _promote(self, verdicts: Iterable[Verdict], at_s: float) -> Iterable[Event]:
        """Begin later rungs with the trials that are promoted."""
        for verdict in verdicts:
            if verdict.promoted:
                rung = self.halving.rung(verdict.trial)
                self._open.add(rung)
                yield StageRegistered(at_s, self.study, self.rungs[rung].name)
                yield self._target(verdict.trial, rung, at_s)
        for rung in sorted(self._open):
            if self.halving.is_sealed(rung):
                self._open.discard(rung)
                yield self._seal(rung, at_s)

    def _target(self, trial: str, rung: int, at_s: float) -> TargetSet:
        return TargetSet(at_s, trial_key(self.study, trial), self.rungs[rung].step, self.rungs[rung].name)

    def _seal(self, rung: int, at_s: float) -> StageSealed:
        return StageSealed(at_s, self.study, self.rungs[rung].name)


class AsynchronousHalvingTuner(Tuner):
    """Asynchronous successive halving: at a rung a trial is sent on at once, or killed. See `AsynchronousHalving`.

    A trial that ends before it has the target of the next rung has not gone on: whoever ended it, an earlier version by another
    rule among them, was faster.
    """

    def __init__(self, study: str, halving: AsynchronousHalving) -> None:
        self.study = study
        self.halving = halving
        self.rungs = halving.rungs
        self._rung: dict[str, int] = {}  # the rung that each trial runs to
        self._losses: dict[str, float] = {}
        self._arrived: list[dict[str, RungArrival]] = [{} for _ in self.rungs]
        self._sent: set[str] = set()  # trials whose present targets have not been set yet

    def judge(self, event: Event) -> Iterable[Event]:
        """Send new trials to the first rung, and those that come to a rung to the next, or kill them."""
        match event:
            case TrialRegistered(study=self.study, trial=trial, at_s=at_s) if trial not in self._rung:
                yield from self._send(trial, 0, at_s)
            case TrialReported(trial=key, report=Report(loss=loss)):
                self._losses[key] = loss
            case RunFinished(trial=key, step=step, at_s=at_s):
                study, trial = split_key(key)
                rung = self._rung.get(trial)
                if study == self.study and rung is not None and step >= self.rungs[rung].step:
                    yield from self._arrive(trial, rung, self._losses.pop(key, math.inf), at_s)
            case TargetSet(trial=key):
                study, trial = split_key(key)
                if study == self.study:
                    self._sent.discard(trial)
            case TrialEnded(trial=key):
                study, trial = split_key(key)
                if study == self.study and trial in self._sent:
                    self._sent.discard(trial)
                    self._take_back(trial)

    def _arrive(self, trial: str, rung: int, loss: float, at_s: float) -> Iterable[Event]:
        if rung + 1 == len(self.rungs):
            return
        goes_on = self.halving.goes_on(loss, self._arrived[rung].values())
        self._arrived[rung][trial] = RungArrival(loss, goes_on)
        if goes_on:
            yield from self._send(trial, rung + 1, at_s)
        else:
            yield TrialEnded(at_s, trial_key(self.study, trial), TrialStatus.KILLED)

    def _send(self, trial: str, rung: int, at_s: float) -> Iterable[Event]:
        self._rung[trial] = rung
        self._sent.add(trial)
        yield StageRegistered(at_s, self.study, self.rungs[rung].name)
        yield TargetSet(at_s, trial_key(self.study, trial), self.rungs[rung].step, self.rungs[rung].name)

    def _take_back(self, trial: str) -> None:
        """Count a trial that was to be sent on as one that was not."""
        rung = self._rung[trial] - 1
        if rung >= 0:
            self._arrived[rung][trial] = replace(self._arrived[rung][trial], went_on=False)
