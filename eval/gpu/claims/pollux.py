"""Pollux' workloads under every policy: sizes and batch sizes chosen by users, or left to the policy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from beamer.errors import InputError
from beamer.gpu.model import Grant, Node
from beamer.sim.gpu import Arrival, GpuRun
from beamer.studies.model import split_key
from eval.config_section import ConfigSection
from eval.gpu.claim import (
    LOST,
    SENSITIVITY,
    ComparisonClaim,
    Figures,
    GpuContender,
    Inputs,
    Metric,
    Results,
    contenders,
)
from eval.gpu.pollux_data import (
    Application,
    PolluxSubmission,
    left_out,
    read_workload,
    simulated,
    synthetic,
    synthetic_workload,
    traced,
    workload_files,
)
from eval.gpu.report import bars, by_metric

CELL = "all policies"


PROFILED = ((1, 1), (2, 1), (4, 1), (8, 2), (12, 3), (16, 4), (24, 6), (32, 8), (48, 12))
"""GPUs and nodes on which jobs that are profiled were run beforehand: about as many samples as Optimus starts from [Peng, Bao,
Chen, Wu and Guo 2018, section 3.2]."""


class PeerMeans(ConfigSection):
    """Mean job completion times in Pollux' own simulator, seconds, one per workload.

    without: applications whose jobs were left out. source: where they are from. mean_jct_s: by contender.
    """

    without: tuple[str, ...]
    source: str
    mean_jct_s: dict[str, tuple[float, ...]]


class PolluxClaim(ComparisonClaim):
    """Workload i for seed i, as it was published; for seeds beyond, workloads in turn, their submission times shuffled.

    report_s, start_s: of all jobs, as of `SimulatedJob`. profiled: contenders whose jobs' speeds were measured beforehand.
    peer: what the same workloads take in Pollux' own simulator. without: applications of the measured data whose jobs are left
    out. jobs, span_s: where made up.
    """

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

    report_s: float
    start_s: float
    span_s: float
    profiled: tuple[str, ...]
    peer: tuple[PeerMeans, ...]
    without: tuple[str, ...] = ()

    def check_data(self, inputs: Inputs) -> None:
        """Check that every application has traces whose jobs are to run. Raises `InputError`."""
        if folder := inputs.folder(self.data):
            _measured(folder, self.without)

    def run(self, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
        """Run a workload to its end."""
        applications, rows = self._workload(seed, inputs)
        costs = inputs.costs_of(contender, self.costs)
        arrivals = []
        for row in rows:
            job = simulated(row, applications[row.application], costs, contender.tuned, self.report_s, self.start_s)
            if contender.name in self.profiled:
                job = replace(job, profiled=tuple(_even(gpus, nodes) for gpus, nodes in PROFILED if gpus <= job.request.most))
            arrivals.append(Arrival(row.at_s, row.name, "job", job))
        nodes = [Node(f"n{i:02}", self.gpus) for i in range(self.nodes)]
        run = contender.simulate(nodes, arrivals, seed)
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
            applications, workloads = _measured(folder, self.without)
            rows = [row for row in workloads[(seed - 1) % len(workloads)] if row.application not in self.without]
            if 1 <= seed <= len(workloads):
                return applications, rows
        else:
            applications = synthetic(seed)
            rows = list(synthetic_workload(seed, applications, self.jobs, self.span_s))
        order = np.random.default_rng(seed).permutation(len(rows))
        return applications, [replace(row, at_s=rows[int(other)].at_s) for row, other in zip(rows, order, strict=True)]

    def peer_means(self, inputs: Inputs) -> PeerMeans | None:
        """Return what the peer's simulator took for the jobs that run here."""
        if not inputs.folder(self.data):
            return None
        return next((means for means in self.peer if set(means.without) == set(self.without)), None)

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
            row = by_name[split_key(job.key)[0]]
            alone = simulated(row, applications[row.application], self.costs.costs(), True)
            share = max(round(self.nodes * self.gpus / together), alone.request.least)
            grant = Grant.of({f"n{i:02}": min(self.gpus, share - i * self.gpus) for i in range(-(-share // self.gpus))})
            found.append(job.jct_s / (alone.step(grant, alone.request.batch_size).step_s * alone.request.iterations))
        return found

    def describe(self, inputs: Inputs) -> str:
        """Describe where the jobs and the costs are from."""
        measured = f"measured speeds and convergence, published workloads{left_out(self.without)}"
        jobs = measured if inputs.folder(self.data) else "synthetic jobs"
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
        return [
            by_metric(f"{self.title}: {cell}", runs, shown, firsts[cell], knows=self.known(cell))
            for cell, runs in results.items()
        ]

    def figures(self, seeds: Sequence[int], inputs: Inputs) -> Mapping[str, Any]:
        """Return what the peer's simulator takes."""
        means = self.peer_means(inputs)
        return {"peer": means.model_dump()} if means else {}

    def further(self, figures: Mapping[str, Any], results: Results) -> list[Table]:
        """Return the mean completion times of the workloads as published beside those of the peer's simulator."""
        if not figures or CELL not in results:
            return []
        means = PeerMeans.model_validate(figures["peer"])
        left_out = f" without jobs of {', '.join(means.without)}" if means.without else ""
        table = Table(
            title=f"{self.title} as published{left_out}, times not shuffled: mean JCT (s) here, there ({means.source}), ratio",
            title_justify="left",
        )
        table.add_column("policy")
        workloads = max(map(len, means.mean_jct_s.values()))
        for number in range(1, workloads + 1):
            table.add_column(f"workload {number}", justify="right")
        for name, runs in results[CELL].items():
            theirs = means.mean_jct_s.get(name, ())
            ours = {figures["seed"]: figures["jct_s"] for figures in runs}
            cells = []
            for number in range(1, workloads + 1):
                there = theirs[number - 1] if number <= len(theirs) else None
                here = ours.get(number)
                shown = "" if here is None else f"{here:.0f}"
                cells.append(f"{shown} {there:.0f} {here / there:.3f}" if here is not None and there else shown)
            table.add_row(name, *cells)
        return [table]

    def draw(self, results: Results, figure: Figure) -> None:
        """Draw the metrics' ratios to pollux."""
        if CELL in results:
            for axes, metric in zip(figure.subplots(1, 3), self.metrics, strict=True):
                bars(axes, results[CELL], metric, self.name)


def _even(gpus: int, nodes: int) -> Grant:
    return Grant.of({f"n{i:02}": gpus // nodes for i in range(nodes)})


@lru_cache
def _measured(
    folder: Path, without: tuple[str, ...]
) -> tuple[dict[str, Application], tuple[tuple[PolluxSubmission, ...], ...]]:
    files = workload_files(folder)
    if not files:
        raise InputError("--data", str(folder), "a folder with workloads/*.csv")
    return traced(folder, without), tuple(map(read_workload, files))
