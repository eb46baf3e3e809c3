"""SC'20's elastic scheduler: jobs that grow and shrink between their limits against those of fixed size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from beamer.engines.profiles import HyperbolicLoss
from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.gpu.model import Grant, Node, Request
from beamer.sim.gpu import Arrival
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
from eval.gpu.pollux_data import Application, left_out, traced
from eval.gpu.profiles import ExchangingProfile, NoisyLoss
from eval.gpu.report import bars, by_metric

ITERATIONS = 3000
REPORTS = 30
BATCH = 512


@dataclass(frozen=True)
class MeasuredSpeedProfile(SimulatedProfile):
    """A job with an application's measured speeds."""

    loss: HyperbolicLoss
    application: Application

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the measured time of a step."""
        return self.application.step_s((count for _, count in grant.gpus), batch_size)

    def outcome(self, iteration: float) -> Outcome:
        """Return the loss."""
        return Outcome(self.loss.at(iteration))


@lru_cache
def _measured(folder: Path, without: tuple[str, ...]) -> dict[str, Application]:
    return traced(folder, without)


class ClusterConfig(ConfigSection):
    """A cluster of equal nodes."""

    nodes: int
    gpus: int


class JobMix(ConfigSection):
    """What arrives.

    jobs: in all; burst: how many of them come at once, bursts: how often; gap_s: mean time between the others.
    hours: median of a job's time on the GPUs that it asks for; spread: deviation of its logarithm.
    sizes: GPUs that jobs ask for, one as likely as another. least, most: between which they can run.
    """

    jobs: int
    burst: int
    bursts: int
    gap_s: float
    hours: float
    spread: float
    sizes: tuple[int, ...]
    least: int
    most: int

    def arrivals(self, seed: int, folder: Path | None, without: tuple[str, ...] = ()) -> list[Arrival]:
        """Return the jobs of a seed. folder: of the measured data. without: applications of it that no job is of."""
        rng = np.random.default_rng(seed)
        at_s = list(np.cumsum(rng.exponential(self.gap_s, self.jobs - self.burst * self.bursts)))
        for start_s in rng.uniform(0.0, at_s[-1], self.bursts):
            at_s += [start_s] * self.burst
        applications = list(_measured(folder, without).values()) if folder else []
        jobs = [self._measured_job(rng, applications) if applications else self._job(rng) for _ in at_s]
        return [Arrival(float(t), f"j{i:03}", "job", job) for i, (t, job) in enumerate(zip(sorted(at_s), jobs, strict=True))]

    def _job(self, rng: np.random.Generator) -> SimulatedJob:
        gpus = int(rng.choice(self.sizes))
        profile = self._profile(rng, gpus, self._seconds(rng) / ITERATIONS)
        return SimulatedJob(self._request(gpus, self.least, ITERATIONS, BATCH), profile)

    def _measured_job(self, rng: np.random.Generator, applications: Sequence[Application]) -> SimulatedJob:
        """Return a job with the speeds of an application at the middle of its batch sizes."""
        application = applications[int(rng.integers(len(applications)))]
        sizes = sorted(application.runs)
        batch_size = sizes[len(sizes) // 2]
        least = max(self.least, -(-batch_size // application.max_local_batch_size))
        gpus = max(int(rng.choice(self.sizes)), least)
        iterations = max(round(self._seconds(rng) / application.step_s((gpus,), batch_size)[0]), REPORTS)
        falling = NoisyLoss(2.3, rng.uniform(0.1, 0.8), iterations * rng.uniform(0.02, 0.2), 0.01)
        return SimulatedJob(self._request(gpus, least, iterations, batch_size), MeasuredSpeedProfile(falling, application))

    def _seconds(self, rng: np.random.Generator) -> float:
        return 3600 * self.hours * math.exp(rng.normal(0.0, self.spread))

    def _request(self, gpus: int, least: int, iterations: int, batch_size: int) -> Request:
        return Request(
            iterations,
            gpus=gpus,
            min_gpus=least,
            max_gpus=max(self.most, gpus),
            gang=False,
            epoch=max(iterations // REPORTS, 1),
            batch_size=batch_size,
        )

    def _profile(self, rng: np.random.Generator, gpus: int, step_s: float) -> SimulatedProfile:
        """Return a job whose step takes `step_s` on `gpus` of one node."""
        fixed, local, remote = rng.uniform(0.01, 0.05), rng.uniform(0.005, 0.03), rng.uniform(0.02, 0.15)
        falling = NoisyLoss(2.3, rng.uniform(0.1, 0.8), ITERATIONS * rng.uniform(0.02, 0.2), 0.01)
        unit = ExchangingProfile(falling, BATCH, 1.0, fixed, local, remote)
        scale = step_s / unit.step_s(Grant.of({"n0": gpus}), BATCH)[0]
        return ExchangingProfile(falling, BATCH, scale, fixed * scale, local * scale, remote * scale)


class ElasticClaim(Claim):
    """A mix of jobs with bursts on two clusters of 16 GPUs. without: applications of the measured data that no job is of."""

    name = "elastic"
    title = "SC'20: elastic jobs on two clusters of 16 GPUs"
    data = "pollux"
    processes = True
    published: ClassVar[Mapping[str, str]] = {
        "k8s-default": "total time up to 1.82x, JCT up to 2.70x elastic (45 %, 63 % less)",
        "termination": "total time up to 1.25x, JCT up to 1.59x elastic (20 %, 37 % less)",
    }
    metrics = (
        Metric("jct_s", "mean JCT (h)", 1 / 3600),
        Metric("p99_s", "p99 JCT (h)", 1 / 3600),
        Metric("makespan_s", "total time (h)", 1 / 3600),
    )

    clusters: dict[str, ClusterConfig]
    mixes: dict[str, JobMix]
    costs: CostsConfig
    sensitivity: tuple[str | GpuContender, ...]
    without: tuple[str, ...] = ()

    def check_data(self, inputs: Inputs) -> None:
        """Check that every application has traces whose jobs are to run. Raises `InputError`."""
        if folder := inputs.folder(self.data):
            _measured(folder, self.without)

    def cells(self) -> tuple[str, ...]:
        """Return those in which policies are compared, and the parameters of elastic in the first."""
        return (*self.judged(), SENSITIVITY)

    def judged(self) -> tuple[str, ...]:
        """Return the first mix on every cluster, and the others on the first."""
        first, *others = self.mixes
        return (*(f"{name}, {first}" for name in self.clusters), *(f"{next(iter(self.clusters))}, {name}" for name in others))

    def contenders(self, cell: str) -> tuple[GpuContender, ...]:
        """Return the policies of a cell."""
        return contenders(self.sensitivity if cell == SENSITIVITY else self.policies)

    def run(self, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
        """Let the mix arrive and end."""
        where, _, what = (self.judged()[0] if cell == SENSITIVITY else cell).partition(", ")
        cluster = self.clusters[where]
        nodes = [Node(f"n{i}", cluster.gpus) for i in range(cluster.nodes)]
        costs = inputs.costs_of(contender, self.costs)
        arrivals = [
            replace(one, job=replace(one.job, costs=costs))
            for one in self.mixes[what].arrivals(seed, inputs.folder(self.data), self.without)
        ]
        run = contender.simulate(nodes, arrivals, seed)
        held = sum(job.gpu_s for job in run.jobs)
        return {
            "jct_s": run.mean_jct_s,
            "p99_s": run.quantile_jct_s(0.99),
            "makespan_s": run.makespan_s,
            "lost": sum(job.lost_s for job in run.jobs) / held,
            "changes_s": sum(job.lost_s for job in run.jobs),
        }

    def describe(self, inputs: Inputs) -> str:
        """Describe where speeds and costs are from."""
        speeds = f"speeds measured by Pollux{left_out(self.without)}" if inputs.folder(self.data) else "synthetic speeds"
        return f"{speeds}; {inputs.describe_costs()}"

    def tables(self, results: Results) -> list[Table]:
        """Return a table per cluster, and the parameters."""
        tables = [
            by_metric(f"{self.title}: {cell}", runs, (*self.metrics, LOST), self.name, self.published, self.known(cell))
            for cell, runs in results.items()
            if cell != SENSITIVITY
        ]
        if SENSITIVITY in results:
            first = contenders(self.sensitivity)[0].name
            shown, knows = (*self.metrics, LOST), self.known(SENSITIVITY)
            tables.append(by_metric("parameters of elastic", results[SENSITIVITY], shown, first, knows=knows))
        return tables

    def draw(self, results: Results, figure: Figure) -> None:
        """Draw the metrics' ratios to elastic in every cell."""
        cells = [cell for cell in self.judged() if cell in results]
        if not cells:
            return
        rows = figure.subplots(len(cells), len(self.metrics), squeeze=False)
        for cell, row in zip(cells, rows, strict=True):
            for axes, metric in zip(row, self.metrics, strict=True):
                bars(axes, results[cell], metric, self.name)
                axes.set_title(cell, fontsize=9)
