"""What a job prints, as reports: progress in iterations of the requested batch size, service time, the time of a step.

Service time runs from a run's first line of progress on and pauses while the job is suspended; the steps before that line are
counted at the speed measured since, or, before any was measured, at the time since the launch. A program that prints its state
at the start leaves nothing to be guessed.

A line is refused whose iteration cannot be: negative, or beyond the job's target by more than lies between two of its lines.
Where the last line before a job's end was refused, its loss there is not known, and none that was printed before stands for it.
"""

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated

from beamer.engines.local.supervisor.lines import ProgressLine
from beamer.errors import InputError
from beamer.protocol_version import Since
from beamer.studies.model import MAX_STEPS

ROUNDING = 1e-9  # The number of report intervals passed may miss a whole number by this much.
UNKNOWN = -1.0
"""Of iterations: how far a refused line would have come cannot be read."""
WINDOW = 32
"""Intervals between lines whose median is the time of a step."""


@dataclass(frozen=True)
class Progress:
    """How far a job has come; it is handed on from run to run.

    step: of the last line, as the program counts. done: iterations of the requested batch size.
    service_s: computed for them. step_s: of the last run that measured it. refused: iterations as in `done`, or `UNKNOWN`, of a
    refused line after which none as far could be read; None: there is no such line.
    """

    step: float = 0.0
    done: float = 0.0
    service_s: float = 0.0
    step_s: float = 0.0
    refused: Annotated[float | None, Since(2)] = None


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
    batch_size: requested; of samples, so many are an iteration. every: iterations of whose multiples each is reported, or the
    first line after it, so that the same ones are however often the job is restarted; a job's first line is, too. iterations:
    after which the job ends, which is reported whatever came before; 0: not known. gap_s: how long the job has computed nothing
    before the launch. paused_s: for how long it was suspended since its last line.
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
        self._ahead_s = 0.0  # It had started for so long when it was held.
        self._iterations = iterations
        self.paused_s = 0.0
        self._in_samples = False
        self._steps: list[float] = []
        self._reported = progress.done if progress.step > 0 else None
        self._distance = 0.0  # longest distance between two lines of this run, iterations
        self._has_refused = False

    @property
    def iteration_s(self) -> float:
        """How long an iteration of this run's batch size takes; 0: not measured yet."""
        return self._step_s * (self._batch_size * self._scale if self._in_samples else 1.0)

    @property
    def _step_s(self) -> float:
        return median(self._steps) if self._steps else 0.0

    @property
    def has_reported(self) -> bool:
        """Whether the job has reported anything, in this run or before."""
        return self.last_s is not None or self.progress.step > 0

    @property
    def has_advanced(self) -> bool:
        """Whether the job has come farther in this run."""
        return self.progress.step > self._start.step

    @property
    def missing(self) -> float:
        """Iterations to its end that a job has not reported, less than lies between two of its lines left out.

        0 where its end is not known, and where it never printed anything that is meant as progress: it may be silent.
        """
        if not self._iterations or not (self.has_reported or self._has_refused):
            return 0.0
        steps = 0.0 if self.last_s is None else self._iterations_of(self.progress.step, self._in_samples)
        left = self._iterations - max(self.progress.done, steps, self.progress.refused or 0.0)
        return left if left > (self._distance or self._every) else 0.0

    def pause(self, seconds: float) -> None:
        """Leave out so many seconds for which the job was suspended."""
        self.paused_s += seconds

    def hold(self, now: float) -> None:
        """Count what was before, as the processes started ahead, to the start alone: they had no GPU."""
        self._ahead_s += now - self._launched_s
        self._launched_s, self.paused_s = now, 0.0

    def refuse(self, step: float | None, in_samples: bool) -> None:
        """Take in that a line was refused. step: how far it would have come, None where that cannot be read.

        One that is not beyond what has been reported is of another rank, and changes nothing.
        """
        before = self.progress.refused
        refused = UNKNOWN if step is None or not self._is_possible(step, in_samples) else self._done_at(step, in_samples)
        if refused == UNKNOWN and before is not None:
            return
        if refused != UNKNOWN:
            known = self.progress.done if before is None else max(self.progress.done, before)
            if self.has_reported and refused <= self.progress.done:
                return
            self._distance = max(self._distance, refused - known) if known else self._distance
        self.progress = replace(self.progress, refused=refused)

    def unread(self, now: float) -> NodeReport | None:
        """Return the report of a job that has come to its end and whose last line was refused: its loss is not a number.

        None where the last line was read, and where none ever was.
        """
        refused = self.progress.refused
        if refused is None or not self.has_reported:
            return None
        iteration = float(self._iterations) if refused == UNKNOWN else refused
        if iteration <= self.progress.done:
            return None
        return NodeReport(now, iteration, math.nan, self.progress.service_s)

    def line(self, line: ProgressLine, now: float) -> NodeReport | None:
        """Return the report for a line; None if it is not new or not due. Raises `InputError` for one that cannot be."""
        self._check(line)
        if self.last_s is None:
            self._first(line, now)
        elif line.step <= self.progress.step:
            return None  # Another rank has reported this step.
        else:
            steps, seconds = line.step - self.progress.step, max(now - self.last_s - self.paused_s, 0.0)
            self._distance = max(self._distance, self._iterations_of(steps, line.in_samples))
            self._steps = [*self._steps, seconds / steps][-WINDOW:]
            self._move(line, self.progress.service_s + seconds)
        self.paused_s = 0.0
        self.last_s = now
        refused = self.progress.refused
        if refused is not None and refused <= self.progress.done:
            refused = None
        self.progress = replace(self.progress, step_s=self._step_s or self.progress.step_s, refused=refused)
        if not self._is_due:
            return None
        self._reported = self.progress.done
        return NodeReport(
            now, self.progress.done, line.loss, self.progress.service_s, line.accuracy, line.gradient_sqr, line.gradient_var
        )  # fmt: skip

    @property
    def _is_due(self) -> bool:
        done, reported = self.progress.done, self._reported
        if reported is None or 0 < self._iterations <= done:
            return True
        if done < reported:  # The job went back to a checkpoint, and the reports that are due were made before.
            return abs(done / self._every - round(done / self._every)) < ROUNDING
        return self._multiples(done) > self._multiples(reported)

    def _multiples(self, done: float) -> int:
        """Return how many multiples of `every` have been reached; what is summed up of fractions may miss one by rounding."""
        return int(done / self._every + ROUNDING)

    def _check(self, line: ProgressLine) -> None:
        """Check that a job may have come as far as a line says: to its target, or beyond it before it could tell."""
        if not self._is_possible(line.step, line.in_samples):
            self._has_refused = True
            target, beyond = self._farthest
            unit = self._batch_size if line.in_samples else 1
            expected = f"0 to {target * unit:g}, its target, and at most {beyond * unit:g} beyond, as between two reports"
            raise InputError("samples" if line.in_samples else "iteration", line.step, expected)

    @property
    def _farthest(self) -> tuple[float, float]:
        """The steps to the target, and how many more there may be."""
        least_scale = min(self._scale, 1.0)  # A smaller batch needs more steps for the same distance.
        target = self._iterations / least_scale if self._iterations else float(MAX_STEPS)
        return target, max(self._distance, float(self._every))

    def _is_possible(self, step: float, in_samples: bool) -> bool:
        return 0 <= self._iterations_of(step, in_samples) <= sum(self._farthest)

    def _iterations_of(self, step: float, in_samples: bool) -> float:
        return step / self._batch_size if in_samples else step

    def _first(self, line: ProgressLine, now: float) -> None:
        """Count what came before a run's first line: steps at the known speed, the rest was the restart."""
        since_launch = max(now - self._launched_s - self.paused_s, 0.0)
        steps = max(line.step - self._start.step, 0.0)
        known = self._start.step_s
        computed = min(steps * known, since_launch) if known or not steps else since_launch
        self._move(line, self._start.service_s + computed)
        if known or not steps:
            self.restart_s = self._gap_s + self._ahead_s + since_launch - computed

    def _move(self, line: ProgressLine, service_s: float) -> None:
        self._in_samples = line.in_samples
        done = self._done_at(line.step, line.in_samples)
        self.progress = replace(self.progress, step=line.step, done=done, service_s=service_s)

    def _done_at(self, step: float, in_samples: bool) -> float:
        """Return the iterations of the requested batch size that a step means."""
        done = step / self._batch_size if in_samples else self._start.done + (step - self._start.step) * self._scale
        return max(done, 0.0)
