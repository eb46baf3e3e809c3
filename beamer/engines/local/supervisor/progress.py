"""What a job prints, as reports: progress in iterations of the requested batch size, service time, the time of a step.

Service time runs from a run's first line of progress on and pauses while the job is suspended; the steps before that line are
counted at the speed measured since, or, before any was measured, at the time since the launch. A program that prints its state
at the start leaves nothing to be guessed.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

WINDOW = 32
"""Intervals between lines whose median is the time of a step."""


@dataclass(frozen=True)
class ProgressLine:
    """A line of progress; step: iteration or samples, whichever the program counts."""

    step: float
    in_samples: bool
    loss: float
    accuracy: float | None = None
    gradient_sqr: float = 0.0
    gradient_var: float = 0.0


def parser(pattern: str) -> re.Pattern[str] | None:
    """Return what `parse` takes for the progress pattern of a launch."""
    return re.compile(pattern) if pattern else None


def parse(text: str, pattern: re.Pattern[str] | None) -> ProgressLine | None:
    """Return the progress that a line reports, None if it reports none."""
    values: Mapping[str, Any]
    if pattern is None:
        if not text.lstrip().startswith("{"):
            return None
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            return None
    else:
        found = pattern.search(text)
        if found is None:
            return None
        values = found.groupdict()
    return _line(values)


def _line(values: Mapping[str, Any]) -> ProgressLine | None:
    in_samples = values.get("samples") is not None
    step, loss, accuracy = (
        _number(values.get(name)) for name in ("samples" if in_samples else "iteration", "loss", "accuracy")
    )
    if step is None or loss is None or not math.isfinite(step):
        return None
    return ProgressLine(
        step, in_samples, loss, accuracy, _number(values.get("gradient_sqr")) or 0.0, _number(values.get("gradient_var")) or 0.0
    )  # fmt: skip


def _number(value: Any) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):  # the last of an integer of hundreds of digits
        return None


@dataclass(frozen=True)
class Progress:
    """How far a job has come; it is handed on from run to run.

    step: of the last line, as the program counts. done: iterations of the requested batch size.
    service_s: computed for them. step_s: of the last run that measured it.
    """

    step: float = 0.0
    done: float = 0.0
    service_s: float = 0.0
    step_s: float = 0.0


@dataclass(frozen=True)
class NodeReport:
    """A report before it is on anybody's clock: at_s is monotonic time of this node."""

    at_s: float
    iteration: float
    loss: float
    service_s: float
    accuracy: float | None = None
    gradient_sqr: float = 0.0
    gradient_var: float = 0.0


class Meter:
    """Turns the lines of one run into reports.

    progress: from the run before. launched_s: monotonic time. scale: iterations of the requested batch size in a step.
    batch_size: requested; of samples, so many are an iteration. every: iterations between two reports; iterations: after which
    the job ends, which is reported whatever came before; 0: not known. gap_s: how long the job has computed nothing before the
    launch.
    """

    def __init__(
        self,
        progress: Progress,
        launched_s: float,
        scale: float,
        batch_size: int,
        every: int,
        gap_s: float,
        iterations: int = 0,
    ) -> None:
        self.progress = progress
        self.restart_s: float | None = None
        self.last_s: float | None = None
        self._start = progress
        self._launched_s = launched_s
        self._scale = scale
        self._batch_size = batch_size
        self._every = every
        self._gap_s = gap_s
        self._iterations = iterations
        self._paused_s = 0.0
        self._in_samples = False
        self._steps: list[float] = []
        self._reported: float | None = None

    @property
    def iteration_s(self) -> float:
        """How long an iteration of this run's batch size takes; 0: not measured yet."""
        return self._step_s * (self._batch_size * self._scale if self._in_samples else 1.0)

    @property
    def _step_s(self) -> float:
        return median(self._steps) if self._steps else 0.0

    def pause(self, seconds: float) -> None:
        """Leave out so many seconds for which the job was suspended."""
        self._paused_s += seconds

    def line(self, line: ProgressLine, now: float) -> NodeReport | None:
        """Return the report for a line; None if it is not new or not due."""
        if self.last_s is None:
            self._first(line, now)
        elif line.step <= self.progress.step:
            return None  # another rank has reported it
        else:
            steps, seconds = line.step - self.progress.step, max(now - self.last_s - self._paused_s, 0.0)
            self._steps = [*self._steps, seconds / steps][-WINDOW:]
            self._move(line, self.progress.service_s + seconds)
        self._paused_s = 0.0
        self.last_s = now
        self.progress = replace(self.progress, step_s=self._step_s or self.progress.step_s)
        is_last = 0 < self._iterations <= self.progress.done
        if self._reported is not None and self.progress.done - self._reported < self._every and not is_last:
            return None
        self._reported = self.progress.done
        return NodeReport(
            now, self.progress.done, line.loss, self.progress.service_s, line.accuracy, line.gradient_sqr, line.gradient_var
        )  # fmt: skip

    def _first(self, line: ProgressLine, now: float) -> None:
        """Count what came before a run's first line: steps at the known speed, the rest was the restart."""
        since_launch = max(now - self._launched_s - self._paused_s, 0.0)
        steps = max(line.step - self._start.step, 0.0)
        known = self._start.step_s
        computed = min(steps * known, since_launch) if known or not steps else since_launch
        self._move(line, self._start.service_s + computed)
        if known or not steps:
            self.restart_s = self._gap_s + since_launch - computed

    def _move(self, line: ProgressLine, service_s: float) -> None:
        self._in_samples = line.in_samples
        if line.in_samples:
            done = line.step / self._batch_size
        else:
            done = self._start.done + (line.step - self._start.step) * self._scale
        self.progress = replace(self.progress, step=line.step, done=max(done, 0.0), service_s=service_s)
