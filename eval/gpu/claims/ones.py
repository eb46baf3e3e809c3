"""ONES: a trace of jobs that train until they have converged, on 64 GPUs, batch sizes growing with GPUs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from beamer.gpu.model import Node
from beamer.sim.gpu import Arrival
from eval.gpu.claim import LOST, SENSITIVITY, ComparisonClaim, Figures, GpuContender, Inputs, Metric, Results, contenders
from eval.gpu.ones_data import OnesData, read, synthetic
from eval.gpu.report import bars, by_metric
from eval.statistics import Ratio

CELL = "trace"


class OnesClaim(ComparisonClaim):
    """Consecutive jobs of the trace, from a place that the seed draws. pace: times the trace's, at which they arrive."""

    name = "ones"
    cell = CELL
    title = "ONES' trace on 64 GPUs"
    data = "ones"
    published: ClassVar[Mapping[str, str]] = {
        "drl": "ones 26.9 % less",
        "tiresias": "ones 41.7 % less",
        "optimus": "ones 45.6 % less",
    }
    metrics = (Metric("jct_s", "mean JCT (s)"), Metric("p99_s", "p99 JCT (s)"))

    pace: float

    def run(self, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
        """Run the jobs of a seed to their ends."""
        folder = inputs.folder(self.data)
        data = _measured(folder) if folder else synthetic(seed, jobs=self.jobs)
        first = int(np.random.default_rng(seed).integers(max(len(data.trace) - self.jobs, 0) + 1))
        rows = range(first, min(first + self.jobs, len(data.trace)))
        costs = inputs.costs_of(contender, self.costs)
        arrivals = [
            Arrival(
                (data.trace[row].at_s - data.trace[first].at_s) / self.pace,
                f"j{row:03}",
                "job",
                data.simulated(row, costs, not contender.tuned),
            )
            for row in rows
        ]
        nodes = [Node(f"n{i:02}", self.gpus) for i in range(self.nodes)]
        run = contender.simulate(nodes, arrivals, seed)
        return {
            "jct_s": run.mean_jct_s,
            "p99_s": run.quantile_jct_s(0.99),
            "makespan_s": run.makespan_s,
            "lost": sum(job.lost_s for job in run.jobs) / sum(job.gpu_s for job in run.jobs),
            "decision_ms": 1000 * fmean(run.decision_s),
        }

    def figures(self, seeds: Sequence[int], inputs: Inputs) -> Mapping[str, Any]:
        """Return mean JCTs of the shipped profiles, relative to ONES', over the jobs that they have in common."""
        folder = inputs.folder(self.data)
        if not folder:
            return {}
        measured = _measured(folder).measured
        common = sorted(set.intersection(*(set(jobs) for jobs in measured.values())))
        by_name = {name: [jobs[i].completion_s for i in common] for name, jobs in measured.items()}
        base = by_name["ones"]
        return {
            "profiles": {
                name: {"mean_s": fmean(values), "ratio_of_means": fmean(values) / fmean(base), "jobs": len(common)}
                for name, values in by_name.items()
            }
        }

    def describe(self, inputs: Inputs) -> str:
        """Describe where the jobs and the costs are from."""
        jobs = "published trace and histories" if inputs.folder(self.data) else "synthetic trace and histories"
        return f"{jobs}; {inputs.describe_costs()}"

    def tables(self, results: Results) -> list[Table]:
        """Return the comparison and the parameters."""
        shown = (
            *self.metrics,
            Metric("makespan_s", "makespan (s)"),
            LOST,
            Metric("decision_ms", "decision (ms)", compared=False),
        )
        firsts = {CELL: self.name, SENSITIVITY: contenders(self.sensitivity)[0].name}
        return [
            by_metric(
                f"{self.title}: {cell}",
                runs,
                shown,
                firsts[cell],
                self.published if cell == CELL else None,
                self.known(cell),
            )
            for cell, runs in results.items()
        ]

    def further(self, figures: Mapping[str, Any], results: Results) -> list[Table]:
        """Return the ratios to ONES beside those of the shipped profiles."""
        if "profiles" not in figures or self.name not in results.get(CELL, {}):
            return []
        runs = results[CELL]
        table = Table(title="mean JCT relative to ones", title_justify="left")
        for column in ("policy", "here", "in the shipped profiles"):
            table.add_column(column)
        for name, one in figures["profiles"].items():
            jcts = ([figures["jct_s"] for figures in runs[who]] for who in (name, self.name)) if name in runs else None
            table.add_row(name, str(Ratio.of(*jcts)) if jcts else "", f"{one['ratio_of_means']:.2f} ({one['jobs']} jobs)")
        return [table]

    def draw(self, results: Results, figure: Figure) -> None:
        """Draw the ratios to ones."""
        if CELL in results:
            bars(figure.subplots(), results[CELL], self.metrics[0], self.name)


@lru_cache
def _measured(folder: Path) -> OnesData:
    return read(folder)
