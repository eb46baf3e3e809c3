"""Hermes: a search whose few good configurations reach their target sooner where jobs that converge fast have the GPUs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from matplotlib.figure import Figure
from pydantic import Field
from rich.table import Table

from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.gpu.events import TrialReported
from beamer.gpu.model import Costs, Grant, Node, Request
from beamer.gpu.tuners import Tuner
from beamer.sim.gpu import Arrival
from beamer.studies.events import Event, TrialEnded
from beamer.studies.model import TrialStatus
from eval.config_section import ConfigSection
from eval.gpu.claim import (
    LOST,
    SENSITIVITY,
    Claim,
    CostsConfig,
    Figures,
    GpuContender,
    Inputs,
    Metric,
    Results,
    contenders,
)
from eval.gpu.loss_noise import RECORDED, recorded_noise
from eval.gpu.measured_run import MeasuredGpuRun, reached_s
from eval.gpu.report import by_cell, by_metric, lines
from eval.gpu.searches import SYNTHETIC, BatchReports, Configuration, SearchSpace, Shape, draw, measured_shapes

CLOSED_FORM = "closed form"
NOISY = "noisy losses"
MEASURED = "noise of "
OTHERS = "others "


@dataclass(frozen=True)
class RecordedLossProfile(SimulatedProfile):
    """A job of one GPU whose losses are known. losses: by epoch, from the start on."""

    losses: Sequence[float]
    epoch_s: float

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the time of an epoch."""
        return self.epoch_s, 0.0

    def outcome(self, iteration: float) -> Outcome:
        """Return the loss after an epoch."""
        return Outcome(self.losses[min(round(iteration), len(self.losses) - 1)])


class StopAtTarget(Tuner):
    """Ends a configuration that reaches the target, and the search when `good` of them have. epochs: of each."""

    def __init__(self, target: float, good: int, epochs: int) -> None:
        self._target = target
        self._missing = good
        self._epochs = epochs

    def judge(self, event: Event) -> Iterable[Event]:
        """Count what reaches the target."""
        if isinstance(event, TrialReported) and event.report and event.report.loss <= self._target:
            self._missing -= 1
            self.done = not self._missing
            if event.report.iteration < self._epochs:
                yield TrialEnded(event.at_s, event.trial, TrialStatus.FINISHED)


class ClosedForm(ConfigSection):
    """A search whose figures are known: one good job among `jobs` of `iterations` seconds, the others flat, changes for free.

    window: of hermes.
    """

    jobs: int
    gpus: int
    iterations: int
    window: int
    policies: tuple[str | GpuContender, ...]

    def expected_s(self, policy: str) -> float:
        """Return the good job's mean completion time, over its places in the queue; not a number where none is known."""
        n, g, k, w = self.jobs, self.gpus, self.iterations, self.window
        known = {"hermes": n * w / g + (k - w), "fifo": (n + 1) * k / (2 * g), "round-robin": n * k / g}
        return known.get(policy, math.nan)


class Sensitivity(ConfigSection):
    """Parameters of one policy, in the cell of so many good configurations. base: what ratios are to."""

    good: int
    base: str
    policies: tuple[str | GpuContender, ...]


class HermesClaim(Claim):
    """The same searches under every policy, by the share of good configurations, and by what the others are.

    good: how many are, in a cell each. kinds_good: how many where all others are of one kind, and where losses are as noisy as
    `noisy` says, or as was measured. measured: cells of `python -m eval loss-noise` whose noise losses have, in a cell each.
    report_batches: batches between two reports there, which are the loss of one batch.
    """

    name = "hermes"
    title = "Hermes: search for the good configurations"
    data = "pollux"
    recorded = (RECORDED,)
    processes = True
    end = "the declared end"
    target = True
    published: ClassVar = dict.fromkeys(("fifo", "round-robin", "slaq"), "up to 4.04x hermes")
    metrics = (
        Metric("mean_s", "mean time to target (h)", 1 / 3600),
        Metric("first_s", "time to the first (h)", 1 / 3600),
        Metric("all_s", "time to all (h)", 1 / 3600),
    )

    nodes: int
    gpus: int
    configurations: int
    good: tuple[int, ...]
    kinds_good: int
    noisy: float
    measured: tuple[str, ...] = ()
    report_batches: int = Field(1, ge=1)
    space: SearchSpace
    costs: CostsConfig
    sensitivity: Sensitivity
    closed_form: ClosedForm

    def cells(self) -> tuple[str, ...]:
        """Return one cell per share, one per kind, those of noise, then the two others."""
        return (*self.judged(), SENSITIVITY, CLOSED_FORM)

    def judged(self) -> tuple[str, ...]:
        """Return the cells by share, by kind and of noise."""
        return (*self._sweep(), *self._kinds())

    def _sweep(self) -> tuple[str, ...]:
        return tuple(f"{good} of {self.configurations}" for good in self.good)

    def _kinds(self) -> tuple[str, ...]:
        start = f"{self.kinds_good} of {self.configurations}, "
        kinds = (f"{start}{OTHERS}{kind}" for kind in self.space.bad)
        return (*kinds, f"{start}{NOISY}", *(f"{start}{MEASURED}{name}" for name in self.measured))

    def contenders(self, cell: str) -> tuple[GpuContender, ...]:
        """Return the policies of a cell."""
        others = {SENSITIVITY: self.sensitivity.policies, CLOSED_FORM: self.closed_form.policies}
        return contenders(others.get(cell, self.policies))

    def run(self, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
        """Search until all good configurations have reached the target."""
        if cell == CLOSED_FORM:
            return self._run_closed_form(contender, seed)
        search = self.search(cell, seed, inputs)
        good = sum(one.good for one in search)
        target, epochs = self.space.target_loss, self.space.epochs
        request = Request(epochs, target_loss=target)
        costs = inputs.costs_of(contender, self.costs)
        arrivals = [
            Arrival(0.0, "search", f"c{i:04}", SimulatedJob(request, RecordedLossProfile(one.losses, one.epoch_s), costs))
            for i, one in enumerate(search)
        ]
        nodes = [Node(f"n{i}", self.gpus) for i in range(self.nodes)]
        done = contender.simulate(nodes, arrivals, seed, StopAtTarget(target, good, epochs))
        kinds = {arrival.key: one.kind for arrival, one in zip(arrivals, search, strict=True)}
        return _figures(done, kinds, target)

    def search(self, cell: str, seed: int, inputs: Inputs) -> tuple[Configuration, ...]:
        """Return the configurations of a cell but the closed form."""
        good = self.sensitivity.good if cell == SENSITIVITY else int(cell.split()[0])
        only = cell.partition(OTHERS)[2] or None
        space = self.space.model_copy(update={"noise": self.noisy}) if cell.endswith(NOISY) else self.space
        measured = cell.partition(MEASURED)[2]
        reports = BatchReports(recorded_noise(measured), self.report_batches) if measured else None
        return draw(space, self.configurations, good, self._shapes(inputs), seed, only, reports)

    def _run_closed_form(self, contender: GpuContender, seed: int) -> Figures:
        form = self.closed_form
        times = []
        for place in range(seed % 10, form.jobs, 10):  # ten seeds together try every place
            arrivals = []
            for i in range(form.jobs):
                losses = [1.0 - k / form.iterations if i == place else 1.0 for k in range(form.iterations + 1)]
                job = SimulatedJob(Request(form.iterations), RecordedLossProfile(losses, 1.0), Costs())
                arrivals.append(Arrival(0.0, "search", f"c{i:04}", job))
            run = contender.simulate([Node("n0", form.gpus)], arrivals, seed, StopAtTarget(0.0, 1, form.iterations))
            times.append(reached_s(run.jobs[place], 0.0))
        expected_s = form.expected_s(contender.policy)
        return {"mean_s": fmean(times), "expected_s": expected_s, "ratio": fmean(times) / expected_s}

    def _shapes(self, inputs: Inputs) -> Sequence[Shape]:
        folder = inputs.folder(self.data)
        return measured_shapes(folder / "traces" / "cifar10") if folder else SYNTHETIC

    def describe(self, inputs: Inputs) -> str:
        """Describe where the losses' shapes and the costs are from."""
        shapes = "measured accuracies (cifar10)" if inputs.folder(self.data) else "synthetic curves"
        return f"losses along {shapes}; {inputs.describe_costs()}"

    def tables(self, results: Results) -> list[Table]:
        """Return the sweep by metric, what time-sharing costs, the sensitivity and the closed form."""
        sweep = {cell: results[cell] for cell in self.judged() if cell in results}
        tables = [
            by_cell(f"{self.title}, by how many are good", sweep, m, self.name, self.published, self.known(self.judged()[0]))
            for m in self.metrics
        ]
        tables.append(by_cell("overhead of time-sharing", sweep, LOST))
        if SENSITIVITY in results:
            title = f"parameters of hermes, {self.sensitivity.good} of {self.configurations} good"
            runs, knows = results[SENSITIVITY], self.known(SENSITIVITY)
            tables.append(by_metric(title, runs, self.metrics, self.sensitivity.base, knows=knows))
        if CLOSED_FORM in results:
            metrics = [Metric("mean_s", "time of the good job (s)"), Metric("ratio", "measured / closed form")]
            tables.append(by_metric("closed form: one good job, the others flat", results[CLOSED_FORM], metrics, ""))
        return tables

    def draw(self, results: Results, figure: Figure) -> None:
        """Draw the times over the share of good configurations."""
        sweep = {cell: results[cell] for cell in self._sweep() if cell in results}
        both = figure.subplots(1, 2)
        for axes, metric in zip(both, self.metrics, strict=False):
            lines(axes, sweep, lambda cell: int(cell.split()[0]) / self.configurations, metric)
            axes.set_xscale("log", base=2)
            axes.set_xlabel("share of good configurations")
            axes.set_ylim(bottom=0)
        both[0].legend(frameon=False, ncols=2)


def _figures(run: MeasuredGpuRun, kinds: dict[str, str], target: float) -> Figures:
    reached = [reached_s(job, target) for job in run.jobs if kinds[job.key] == "good"]
    held = sum(job.gpu_s for job in run.jobs)
    return {
        "mean_s": fmean(reached),
        "first_s": min(reached),
        "all_s": max(reached),
        "lost": sum(job.lost_s for job in run.jobs) / held,
        "decision_ms": 1000 * fmean(run.decision_s),
    }
