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

POINT_GROWTH = 1.05  # of the steps between two points: they grow as the logarithm of the steps, and forecasts are as rare
RECENT_ENDS = 20  # of a study's trials, whose forecasts' errors are shown
JUDGED_AT = 0.5  # share of a trial's steps after which its forecast is judged: later ones cannot be far off


def no_forecast(losses: tuple[Point, ...]) -> float | None:
    """Return None: losses tell nothing."""
    return None


@dataclass
class LossHistory:
    """A trial's losses at steps that lie ever farther apart, each the mean of those reported since the one before."""

    points: tuple[Point, ...] = ()
    count: int = 0
    steps: float = 0.0
    losses: float = 0.0

    def add(self, step: int, loss: float) -> None:
        """Take in a report."""
        self.count, self.steps, self.losses = self.count + 1, self.steps + step, self.losses + loss
        if not self.points or step >= POINT_GROWTH * self.points[-1][0]:
            self.points += ((self.steps / self.count, self.losses / self.count),)
            self.count, self.steps, self.losses = 0, 0.0, 0.0


@dataclass
class Forecasts:
    """The losses of trials that go on without a target or a budget, and of those that ended; changed by events only.

    ended: by study, the latest ones' losses until `JUDGED_AT` of their steps, and their steps.
    """

    forecast: Forecast = no_forecast
    histories: dict[str, LossHistory] = field(default_factory=dict)
    ended: dict[str, deque[tuple[tuple[Point, ...], int]]] = field(default_factory=dict)

    def report(self, trial: TrialRecord, loss: float) -> None:
        """Take in a loss at the step that a trial has come to."""
        if trial.budget is None and not trial.targets and isfinite(loss):
            self.histories.setdefault(trial.key, LossHistory()).add(trial.done, loss)

    def end(self, trial: TrialRecord) -> None:
        """Take in that a trial has ended."""
        history = self.histories.pop(trial.key, None)
        if history is not None and trial.status is not TrialStatus.FAILED:
            points = tuple(takewhile(lambda point: point[0] <= JUDGED_AT * trial.done, history.points))
            self.ended.setdefault(trial.study, deque(maxlen=RECENT_ENDS)).append((points, trial.done))

    def begin_anew(self, study: str) -> None:
        """Forget a study's trials."""
        self.histories = {trial: kept for trial, kept in self.histories.items() if split_key(trial)[0] != study}
        self.ended.pop(study, None)

    def end_step(self, trial: str) -> float | None:
        """Return the step at which a trial will have stopped improving, None where its losses do not tell."""
        history = self.histories.get(trial)
        return None if history is None else self.forecast(history.points)

    def error(self, study: str) -> float | None:
        """Return the median error of a study's forecasts, relative to the steps after which its trials ended; None before that.

        A tuner that stops trials early for what others do ends them before their losses would: the error says by how much.
        """
        made = ((self.forecast(points), done) for points, done in self.ended.get(study, ()))
        found = [error for step, done in made if step is not None and (error := relative_error(step, done)) is not None]
        return median(found) if found else None
