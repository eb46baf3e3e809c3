"""How long trials go on of which nobody has said it: from the losses that they report.

What a level knows of loss curves is not known here: the forecast itself is passed in.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from math import isfinite
from statistics import median

from beamer.network.estimates import relative_error
from beamer.studies.model import TrialStatus, split_key
from beamer.studies.records import TrialRecord

Point = tuple[float, float]
"""A step, and the mean loss around it."""

Forecast = Callable[[tuple[Point, ...]], float | None]
"""Losses so far -> the step at which the trial will have stopped improving, None where they do not tell."""

# The steps grow by this factor between two points: points grow as the logarithm of the steps, and forecasts are as rare.
POINT_GROWTH = 1.05
# A trial's points grow by this factor between two forecasts: fewer new ones change a curve little, and a fit is costly.
FIT_GROWTH = 1.2
# Growth of the steps by this factor is enough for a forecast, too: a fifth of many points are many times the steps.
FIT_STEPS = 2.0
MAX_PERIOD_FITS = 4  # A period has at most so many fits, of 8 ms on average; a decision makes those of two periods at most.
FIT_PERIOD_S = 0.5  # A period is measured by the events' times; progress makes decisions no more often.
RECENT_ENDS = 20  # The forecasts' errors are shown for so many of a study's latest ended trials.
JUDGED_AT = 0.5  # A trial's forecast is judged after this share of its steps: later ones cannot be far off.


def no_forecast(losses: tuple[Point, ...]) -> float | None:
    """Return None: losses tell nothing."""
    return None


@dataclass
class LossHistory:
    """A trial's losses at steps that lie ever farther apart, each the mean of those reported since the one before.

    fitted: the points that its forecast is made from, the first of `points`.
    """

    points: tuple[Point, ...] = ()
    fitted: tuple[Point, ...] = ()
    count: int = 0
    steps: float = 0.0
    losses: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether there are so many more points that a new forecast is worth its time."""
        if not self.fitted or len(self.points) >= FIT_GROWTH * len(self.fitted):
            return len(self.points) > len(self.fitted)
        return self.points[-1][0] >= FIT_STEPS * self.fitted[-1][0]

    def add(self, step: int, loss: float) -> None:
        """Take in a report."""
        self.count, self.steps, self.losses = self.count + 1, self.steps + step, self.losses + loss
        if not self.points or step >= POINT_GROWTH * self.points[-1][0]:
            self.points += ((self.steps / self.count, self.losses / self.count),)
            self.count, self.steps, self.losses = 0, 0.0, 0.0


@dataclass(frozen=True)
class ForecastsState:
    """All fields of `Forecasts` but the forecast itself, as JSON can hold them."""

    histories: dict[str, LossHistory]
    ended: dict[str, list[tuple[tuple[Point, ...], int]]]
    waiting: tuple[str, ...]
    fits: int
    period_end_s: float


@dataclass
class Forecasts:
    """The losses of trials that go on without a target or a budget, and of those that ended; changed by events only.

    Events alone say which losses a forecast is made from, so that a journal gives the same ones again; it is made when it is
    first asked for, so that a journal is read without making those that have been replaced.

    waiting: trials that a new forecast is due for, the longest waiting first; each keeps its last one until then. fits: made
    due in the period that lasts until period_end_s. ended: by study, the latest ones' losses until `JUDGED_AT` of their steps,
    and their steps.
    """

    forecast: Forecast = no_forecast
    histories: dict[str, LossHistory] = field(default_factory=dict)
    ended: dict[str, deque[tuple[tuple[Point, ...], int]]] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    fits: int = 0
    period_end_s: float = 0.0

    def report(self, trial: TrialRecord, loss: float, at_s: float) -> tuple[str, ...]:
        """Take in a loss at the step that a trial has come to; return the trials whose forecasts change. Times do not fall."""
        if trial.budget is not None or trial.targets or not isfinite(loss):
            return ()
        history = self.histories.setdefault(trial.key, LossHistory())
        if history.points and trial.done < history.points[-1][0]:  # It has begun again from an earlier step.
            history = self.histories[trial.key] = LossHistory()
            self.waiting.pop(trial.key, None)
        history.add(trial.done, loss)
        if history.is_due:
            self.waiting.setdefault(trial.key)
        if at_s >= self.period_end_s:
            self.fits, self.period_end_s = 0, at_s + FIT_PERIOD_S
        renewed: list[str] = []
        while self.waiting and self.fits < MAX_PERIOD_FITS:
            first = next(iter(self.waiting))
            del self.waiting[first]
            self.histories[first].fitted = self.histories[first].points
            self.fits += 1
            renewed.append(first)
        return tuple(renewed)

    def end(self, trial: TrialRecord) -> None:
        """Take in that a trial has ended."""
        history = self.histories.pop(trial.key, None)
        self.waiting.pop(trial.key, None)
        if history is not None and trial.status is not TrialStatus.FAILED:
            points = tuple(takewhile(lambda point: point[0] <= JUDGED_AT * trial.done, history.points))
            self.ended.setdefault(trial.study, deque(maxlen=RECENT_ENDS)).append((points, trial.done))

    def state(self) -> ForecastsState:
        """Return what is known."""
        ended = {study: list(runs) for study, runs in self.ended.items()}
        return ForecastsState(self.histories, ended, tuple(self.waiting), self.fits, self.period_end_s)

    def restore(self, state: ForecastsState) -> None:
        """Know what `state` returned."""
        self.histories, self.waiting = state.histories, dict.fromkeys(state.waiting)
        self.ended = {study: deque(runs, maxlen=RECENT_ENDS) for study, runs in state.ended.items()}
        self.fits, self.period_end_s = state.fits, state.period_end_s

    def begin_anew(self, study: str) -> None:
        """Forget a study's trials."""
        self.histories = {trial: kept for trial, kept in self.histories.items() if split_key(trial)[0] != study}
        self.waiting = {trial: None for trial in self.waiting if trial in self.histories}
        self.ended.pop(study, None)

    def end_step(self, trial: str) -> float | None:
        """Return the step at which a trial will have stopped improving, None where its losses do not tell."""
        history = self.histories.get(trial)
        return None if history is None else self.forecast(history.fitted)

    def error(self, study: str) -> float | None:
        """Return the median error of a study's forecasts, relative to the steps after which its trials ended; None before that.

        A tuner that stops trials early for what others do ends them before their losses would: the error says by how much.
        """
        made = ((self.forecast(points), done) for points, done in self.ended.get(study, ()))
        found = [error for step, done in made if step is not None and (error := relative_error(step, done)) is not None]
        return median(found) if found else None
