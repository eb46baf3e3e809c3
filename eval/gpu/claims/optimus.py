"""Optimus: few jobs with parameter servers, sized by predicted convergence and speed, against DRF and Tetris."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from beamer.engines.profiles import HyperbolicLoss
from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.gpu.model import Grant, Node, Request
from beamer.sim.gpu import Arrival
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
from eval.gpu.dl2 import read_speeds, speed_model_errors
from eval.gpu.profiles import NoisyLoss
from eval.gpu.report import bars, by_metric

CELL = "9 jobs"
FILE = "config_speed.txt"
NEIGHBOURS = 4  # measured configurations that stand for one that was not
CONVERGED = 0.002  # an epoch's drop of the loss, relative to its largest, at which a job ends


@dataclass(frozen=True)
class SpeedTable:
    """A model's speeds, steps of `batch_size` samples per second, by servers and workers."""

    model: str
    batch_size: int
    by_shape: Mapping[tuple[int, int], float]

    def at(self, servers: int, workers: int) -> float:
        """Return the speed, between measured shapes the mean of the nearest by distance."""
        if (servers, workers) in self.by_shape:
            return self.by_shape[servers, workers]
        here = (math.log(servers), math.log(workers))
        near = sorted((math.dist(here, (math.log(p), math.log(w))), speed) for (p, w), speed in self.by_shape.items())
        weights = [1.0 / distance for distance, _ in near[:NEIGHBOURS]]
        return sum(weight * speed for weight, (_, speed) in zip(weights, near, strict=False)) / sum(weights)


@dataclass(frozen=True)
class ParameterServerProfile(SimulatedProfile):
    """A job whose speed depends on its parameter servers; without any of its own, each worker's process is one as well."""

    speeds: SpeedTable
    loss: HyperbolicLoss

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the time in which the workers together do a step."""
        servers = sum(count for _, count in grant.servers) or grant.size
        return 1.0 / self.speeds.at(servers, grant.size), 0.0

    def outcome(self, iteration: float) -> Outcome:
        """Return the loss."""
        return Outcome(self.loss.at(iteration))


@lru_cache
def measured_speeds(path: Path) -> tuple[SpeedTable, ...]:
    """Return DL2's models."""
    found: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
    for one in read_speeds(path):
        found.setdefault((one.model, one.batch_size), {})[one.servers, one.workers] = one.speed
    return tuple(SpeedTable(model, batch_size, shapes) for (model, batch_size), shapes in found.items())


def synthetic_speeds(seed: int, models: int = 6) -> tuple[SpeedTable, ...]:
    """Return made-up models: what is computed, a server's traffic, and what every worker and server adds, with 5 % noise."""
    rng = np.random.default_rng(seed)
    drawn = []
    for number in range(models):
        compute, traffic, worker, server = rng.uniform(0.5, 1.0), rng.uniform(0.05, 0.4), *rng.uniform(0.002, 0.02, 2)
        shapes = {}
        for p in range(1, 13):
            for w in range(1, 13):
                step_s = compute / w + 0.05 + traffic * w / p + worker * w + server * p
                shapes[p, w] = float(math.exp(rng.normal(0.0, 0.05)) / step_s)
        drawn.append(SpeedTable(f"made-up-{number}", 64, shapes))
    return tuple(drawn)


class OptimusClaim(Claim):
    """Nine jobs on servers with CPUs and servers with GPUs.

    cpu_nodes, cpu_cores, gpu_nodes, gpu_cores, gpus: of each kind. worker_cpus, server_cpus: cores of a task. jobs: that arrive
    within span_s; epochs, hours: least and most of a job, on one worker and one server. sizes: workers that users ask for, one
    as likely as another. most: workers of a job.
    """

    name = "optimus"
    title = "Optimus: jobs with parameter servers"
    data = "dl2"
    published: ClassVar[Mapping[str, str]] = dict.fromkeys(("drf", "tetris"), "JCT 2.39x, makespan 1.63x optimus, over both")
    metrics = (
        Metric("jct_s", "mean JCT (h)", 1 / 3600),
        Metric("p99_s", "p99 JCT (h)", 1 / 3600),
        Metric("makespan_s", "makespan (h)", 1 / 3600),
    )

    cpu_nodes: int
    cpu_cores: float
    gpu_nodes: int
    gpu_cores: float
    gpus: int
    worker_cpus: float
    server_cpus: float
    jobs: int
    span_s: float
    epochs: tuple[int, int]
    hours: tuple[float, float]
    sizes: tuple[int, ...]
    most: int
    costs: CostsConfig
    sensitivity: tuple[str | GpuContender, ...]
    splits: int

    def cells(self) -> tuple[str, ...]:
        """Return the jobs, and the parameters of optimus on them."""
        return (CELL, SENSITIVITY)

    def judged(self) -> tuple[str, ...]:
        """Return the first."""
        return (CELL,)

    def contenders(self, cell: str) -> tuple[GpuContender, ...]:
        """Return the policies of a cell."""
        return contenders(self.sensitivity if cell == SENSITIVITY else self.policies)

    def run(self, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
        """Run the jobs of a seed to their ends."""
        nodes = [Node(f"cpu{i}", 0, self.cpu_cores) for i in range(self.cpu_nodes)]
        nodes += [Node(f"gpu{i}", self.gpus, self.gpu_cores) for i in range(self.gpu_nodes)]
        costs = inputs.costs_of(contender, self.costs)
        folder = inputs.folder(self.data)
        speeds = measured_speeds(folder / FILE) if folder else synthetic_speeds(seed)
        rng = np.random.default_rng(seed)
        arrivals = []
        for i in range(self.jobs):
            request, profile = self._job(rng, speeds)
            arrivals.append(
                Arrival(float(rng.uniform(0.0, self.span_s)), f"j{i}", "job", SimulatedJob(request, profile, costs))
            )
        run = contender.simulate(nodes, arrivals, seed)
        held = sum(job.gpu_s for job in run.jobs)
        return {
            "jct_s": run.mean_jct_s,
            "p99_s": run.quantile_jct_s(0.99),
            "makespan_s": run.makespan_s,
            "lost": sum(job.lost_s for job in run.jobs) / held,
        }

    def _job(self, rng: np.random.Generator, speeds: Sequence[SpeedTable]) -> tuple[Request, SimulatedProfile]:
        model = speeds[int(rng.integers(len(speeds)))]
        epochs = int(rng.integers(self.epochs[0], self.epochs[1] + 1))
        epoch = max(round(3600 * rng.uniform(*self.hours) * model.at(1, 1) / epochs), 1)
        floor = rng.uniform(0.05, 0.4)
        loss = NoisyLoss(1.0, floor, epoch * _half(1.0 - floor, epochs), 0.01)
        request = Request(
            iterations=epoch * epochs,
            gpus=int(rng.choice(self.sizes)),
            min_gpus=1,
            max_gpus=self.most,
            epoch=epoch,
            batch_size=model.batch_size,
            servers=True,
            worker_cpus=self.worker_cpus,
            server_cpus=self.server_cpus,
        )
        return request, ParameterServerProfile(model, loss)

    def figures(self, seeds: Sequence[int], inputs: Inputs) -> Mapping[str, Any]:
        """Return how far the speed model is off on held-out measurements."""
        folder = inputs.folder(self.data)
        if not folder:
            return {}
        errors = speed_model_errors(folder / FILE, self.splits, seeds[0])
        return {"speed_model": [vars(error) for error in errors]}

    def describe(self, inputs: Inputs) -> str:
        """Describe where speeds and costs are from."""
        speeds = "speeds measured by DL2" if inputs.folder(self.data) else "synthetic speeds"
        return f"{speeds}; {inputs.describe_costs()}"

    def tables(self, results: Results) -> list[Table]:
        """Return the comparison and the parameters."""
        titles = {CELL: (self.title, self.name), SENSITIVITY: ("parameters of optimus", contenders(self.sensitivity)[0].name)}
        shown = (*self.metrics, LOST)
        return [
            by_metric(titles[cell][0], runs, shown, titles[cell][1], self.published if cell == CELL else None, self.known(cell))
            for cell, runs in results.items()
        ]

    def further(self, figures: Mapping[str, Any], results: Results) -> list[Table]:
        """Return the table of the speed model's errors."""
        if "speed_model" not in figures:
            return []
        table = Table(title="speed model: error on configurations it was not fitted to, %", title_justify="left")
        for column in ("model", "batch", "points", "fitted", "splits", "median", "mean", "95 % of splits' medians below"):
            table.add_column(column, justify="left" if column == "model" else "right")
        for one in figures["speed_model"]:
            counts = (str(one[key]) for key in ("batch_size", "points", "fitted", "splits"))
            table.add_row(one["model"], *counts, *(f"{100 * one[key]:.1f}" for key in ("median", "mean", "split_median_p95")))
        return [table]

    def draw(self, results: Results, figure: Figure) -> None:
        """Draw the metrics' ratios to optimus."""
        if CELL in results:
            for axes, metric in zip(figure.subplots(1, 3), self.metrics, strict=True):
                bars(axes, results[CELL], metric, self.name)


def _half(amplitude: float, epochs: int) -> float:
    """Return the epochs after which a loss has halved that drops by `CONVERGED` in the epoch after `epochs`."""

    def drop(half: float) -> float:
        return amplitude * (1.0 / (1.0 + epochs / half) - 1.0 / (1.0 + (epochs + 1) / half))

    # the drop at a given epoch grows with `half` up to about that epoch
    low, high = 1e-3, float(epochs)
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if drop(middle) < CONVERGED else (low, middle)
    return high
