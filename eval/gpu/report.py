"""Tables and plots of what contenders did: means with intervals, and paired ratios to the one that a table names."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from rich.table import Table

from eval.gpu.claims.base import CellResults, Claim, Metric, Results
from eval.statistics import Interval, Ratio

OURS = "convergence"


def ratio(runs: CellResults, metric: Metric, name: str, base: str) -> Ratio:
    """Return a contender's metric relative to another's, paired by seed."""
    return Ratio.of(*([figures[metric.key] for figures in runs[who]] for who in (name, base)))


def mean(runs: CellResults, metric: Metric, name: str) -> Interval:
    """Return a contender's mean, in the metric's unit."""
    return Interval.of([figures[metric.key] * metric.scale for figures in runs[name]])


def by_metric(
    title: str, runs: CellResults, metrics: Sequence[Metric], base: str, notes: dict[str, str] | None = None
) -> Table:
    """Return a table of a cell: a row per contender, per metric its mean and its ratio to `base`.

    notes: what is published, by contender, in a column of its own.
    """
    table = Table(title=f"{title}{base and f'; ratios to {base}'}", title_justify="left")
    table.add_column("policy")
    for metric in metrics:
        table.add_column(metric.title, justify="right")
        if base and metric.compared:
            table.add_column("ratio", justify="right")
    if notes:
        table.add_column("published", overflow="fold")
    for name in runs:
        cells = []
        for metric in metrics:
            cells.append(_number(mean(runs, metric, name)))
            if base and metric.compared:
                cells.append("" if name == base or base not in runs else str(ratio(runs, metric, name, base)))
        table.add_row(name, *cells, *([notes.get(name, "")] if notes else []))
    return table


def by_cell(title: str, results: Results, metric: Metric, base: str = "", notes: dict[str, str] | None = None) -> Table:
    """Return a table of a metric: a row per contender, a column per cell: its ratio to `base`, or its mean without one."""
    table = Table(title=f"{title}: {metric.title}{base and f'; ratios to {base}'}", title_justify="left")
    table.add_column("policy")
    for cell in results:
        table.add_column(cell, justify="right")
    if notes:
        table.add_column("published", overflow="fold")
    for name in dict.fromkeys(name for runs in results.values() for name in runs):
        cells = [_entry(runs, metric, name, base) for runs in results.values()]
        table.add_row(name, *cells, *([notes.get(name, "")] if notes else []))
    return table


def _entry(runs: CellResults, metric: Metric, name: str, base: str) -> str:
    if name not in runs:
        return ""
    if base in ("", name):
        return _number(mean(runs, metric, name))
    return str(ratio(runs, metric, name, base)) if base in runs else ""


def _number(interval: Interval) -> str:
    if not np.isfinite(interval.mean):
        return "" if np.isnan(interval.mean) else "never ends"
    digits = 0 if interval.mean >= 100 else 1 if interval.mean >= 10 else 3
    return f"{interval.mean:.{digits}f} ±{interval.half_width:.{digits}f}"


def verdicts(claims: Sequence[tuple[Claim, Results]]) -> Table:
    """Return how our policy fares on every claim's cells against the best of the others, by the claim's metrics."""
    table = Table(title=f"{OURS} against the best of the others", title_justify="left")
    for column in ("claim", "cell", "metric", "ours", "best of the others", "ours / best", "worse than, beyond chance"):
        table.add_column(column, overflow="fold")
    for claim, results in claims:
        for cell in (cell for cell in claim.judged() if cell in results):
            runs = results[cell]
            policies = {one.name: one.policy for one in claim.contenders(cell)}
            ours = [name for name in runs if policies[name] == OURS]
            others = [name for name in runs if policies[name] != OURS]
            for metric, name in product(claim.metrics, ours if others else ()):
                best = min((mean(runs, metric, other).mean, other) for other in others)[1]
                worse = [other for other in others if ratio(runs, metric, name, other).above]
                figures = (best, str(ratio(runs, metric, name, best)), ", ".join(worse) or "none")
                table.add_row(claim.name, cell, metric.title, name, *figures)
    return table


def lines(axes: Axes, results: Results, x: Callable[[str], float], metric: Metric) -> None:
    """Draw a metric over the cells, a line per contender, with intervals."""
    cells = list(results)
    for name in dict.fromkeys(name for runs in results.values() for name in runs):
        there = [cell for cell in cells if name in results[cell]]
        intervals = [mean(results[cell], metric, name) for cell in there]
        axes.errorbar(
            [x(cell) for cell in there],
            [interval.mean for interval in intervals],
            yerr=[interval.half_width for interval in intervals],
            capsize=3,
            marker="o",
            markersize=4,
            linewidth=2.5 if name == OURS else 1.2,
            label=name,
        )
    axes.set_ylabel(metric.title)
    axes.grid(alpha=0.3)


def bars(axes: Axes, runs: CellResults, metric: Metric, base: str) -> None:
    """Draw the ratios of a cell's contenders to one of them as horizontal bars, best first, with intervals."""
    shown = {name: ratio(runs, metric, name, base) for name in runs}
    shown = {name: one for name, one in shown.items() if np.isfinite(one.mean)}
    if not shown:
        return
    names = sorted(shown, key=lambda name: shown[name].mean)
    means = [shown[name].mean for name in names]
    errors = [[shown[n].mean - shown[n].low for n in names], [shown[n].high - shown[n].mean for n in names]]
    colours = ["tab:orange" if name.split(",")[0] == OURS else "tab:grey" if name == base else "tab:blue" for name in names]
    axes.barh(names, means, xerr=errors, color=colours, capsize=3, height=0.7)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlim(0.0, min(max(one.high for one in shown.values()), 1.5 * max(means)) * 1.03)
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric.title.partition(' (')[0]} / {base}'s")
    axes.grid(axis="x", alpha=0.3)
