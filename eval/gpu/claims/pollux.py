"""Pollux' workloads under every policy: sizes and batch sizes chosen by users, or left to the policy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from beamer.gpu.model import Grant, Node
from beamer.sim.gpu import Arrival, GpuRun, simulate_gpus
from beamer.studies.model import split_key
from eval.gpu.claims.base import LOST, SENSITIVITY, ComparisonClaim, Figures, GpuContender, Inputs, Metric, Results, contenders
from eval.gpu.pollux_data import Application, PolluxSubmission, read, read_workload, simulated, synthetic, synthetic_workload
from eval.gpu.report import bars, by_metric

CELL = "all policies"


class PolluxClaim(ComparisonClaim):
    """A workload per seed, its jobs' submission times shuffled. reports: of a job, at most. jobs, span_s: where made up."""

    name = "pollux"
    cell = CELL
    title = "Pollux' workloads"
    data = "pollux"
    published: ClassVar[Mapping[str, str]] = {}
    metrics = (
        Metric("jct_s", "mean JCT (h)", 1 / 3600),
        Metric("p99_s", "p99 JCT (h)", 1 / 3600),
        Metric("makespan_s", "makespan (h)", 1 / 3600),
    )

    reports: int
    span_s: float

    def run(self, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
        """Run a workload to its end."""
        applications, rows = self._workload(seed, inputs)
        costs = inputs.costs_of(contender, self.costs)
        arrivals = []
        for row in rows:
            job = simulated(row, applications[row.application], costs, contender.tuned)
            epoch = max(job.request.epoch, job.request.iterations // self.reports)
            job = replace(job, request=replace(job.request, epoch=epoch))
            arrivals.append(Arrival(row.at_s, "jobs", row.name, job))
        nodes = [Node(f"n{i:02}", self.gpus) for i in range(self.nodes)]
        run = simulate_gpus(contender.build(), nodes, arrivals, seed=seed)
        fairness = self._fairness(run, rows, applications)
        return {
            "jct_s": run.mean_jct_s,
            "p99_s": run.quantile_jct_s(0.99),
            "makespan_s": run.makespan_s,
            "fairness": float(np.mean(fairness)),
            "fairness_p99": float(np.quantile(fairness, 0.99)),
            "lost": sum(job.lost_s for job in run.jobs) / sum(job.gpu_s for job in run.jobs),
        }

    def _workload(self, seed: int, inputs: Inputs) -> tuple[Mapping[str, Application], Sequence[PolluxSubmission]]:
        folder = inputs.folder(self.data)
        if folder:
            applications, workloads = _measured(folder)
            rows = [row for row in workloads[seed % len(workloads)] if row.application in applications]
        else:
            applications = synthetic(seed)
            rows = list(synthetic_workload(seed, applications, self.jobs, self.span_s))
        order = np.random.default_rng(seed).permutation(len(rows))
        return applications, [replace(row, at_s=rows[int(other)].at_s) for row, other in zip(rows, order, strict=True)]

    def _fairness(self, run: GpuRun, rows: Sequence[PolluxSubmission], applications: Mapping[str, Application]) -> list[float]:
        """Return every job's completion time relative to that, as its user tuned it, alone on an equal share of the cluster.

        The share is the cluster over the mean number of jobs in the system while the job was.
        """
        starts = np.array([job.submitted_s for job in run.jobs])
        ends = starts + np.array([job.jct_s for job in run.jobs])
        by_name = {row.name: row for row in rows}
        found = []
        for job, start_s, end_s in zip(run.jobs, starts, ends, strict=True):
            if not np.isfinite(end_s):
                return [float("inf")]
            together = np.clip(np.minimum(ends, end_s) - np.maximum(starts, start_s), 0.0, None).sum() / (end_s - start_s)
            row = by_name[split_key(job.key)[1]]
            alone = simulated(row, applications[row.application], self.costs.costs(), True)
            share = max(round(self.nodes * self.gpus / together), alone.request.least)
            grant = Grant.of({f"n{i:02}": min(self.gpus, share - i * self.gpus) for i in range(-(-share // self.gpus))})
            step_s, _ = alone.profile.step_s(grant, alone.request.batch_size)
            found.append(job.jct_s / (step_s * alone.request.iterations))
        return found

    def describe(self, inputs: Inputs) -> str:
        """Describe where the jobs and the costs are from."""
        jobs = "measured speeds and convergence, published workloads" if inputs.folder(self.data) else "synthetic jobs"
        return f"{jobs}; {inputs.describe_costs()}"

    def tables(self, results: Results) -> list[Table]:
        """Return all metrics, and the parameters."""
        shown = (
            *self.metrics,
            Metric("fairness", "JCT / alone on equal share", compared=False),
            Metric("fairness_p99", "p99 of that", compared=False),
            LOST,
        )
        firsts = {CELL: self.name, SENSITIVITY: contenders(self.sensitivity)[0].name}
        return [by_metric(f"{self.title}: {cell}", runs, shown, firsts[cell]) for cell, runs in results.items()]

    def draw(self, results: Results, figure: Figure) -> None:
        """Draw the metrics' ratios to pollux."""
        if CELL in results:
            for axes, metric in zip(figure.subplots(1, 3), self.metrics, strict=True):
                bars(axes, results[CELL], metric, self.name)


@lru_cache
def _measured(folder: Path) -> tuple[dict[str, Application], tuple[tuple[PolluxSubmission, ...], ...]]:
    return read(folder), tuple(read_workload(file) for file in sorted((folder / "workloads").glob("*.csv")))
