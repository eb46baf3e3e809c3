"""Tables and plots of what contenders did: means with intervals, and paired ratios to the one that a table names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from rich.table import Table

from eval.gpu.claim import CellResults, Claim, Metric, Results
from eval.gpu.knowledge import Knowledge, shown
from eval.statistics import Interval, Ratio

OURS = "convergence"


def ratio(runs: CellResults, metric: Metric, name: str, base: str) -> Ratio:
    """Return a contender's metric relative to another's, paired by seed."""
    return Ratio.of(*([figures[metric.key] for figures in runs[who]] for who in (name, base)))


def mean(runs: CellResults, metric: Metric, name: str) -> Interval:
    """Return a contender's mean, in the metric's unit."""
    return Interval.of([figures[metric.key] * metric.scale for figures in runs[name]])


def better_than_ours(runs: CellResults, metrics: Sequence[Metric]) -> list[str]:
    """Return who is better than our policy in one of the metrics at least, beyond chance."""
    others = [name for name in runs if name != OURS and OURS in runs]
    return [name for name in others if any(metric.compared and ratio(runs, metric, OURS, name).above for metric in metrics)]


def by_metric(
    title: str,
    runs: CellResults,
    metrics: Sequence[Metric],
    base: str,
    notes: Mapping[str, str] | None = None,
    knows: Mapping[str, Knowledge] | None = None,
) -> Table:
    """Return a table of a cell: a row per contender, per metric its mean and its ratio to `base`.

    Who is better than our policy comes first, then the others in the order of the config.
    notes: what is published, by contender; knows: what each knows; in columns of their own.
    """
    table = Table(title=f"{title}{base and f'; ratios to {base}'}", title_justify="left")
    table.add_column("policy")
    if knows:
        table.add_column("knows", overflow="fold")
    for metric in metrics:
        table.add_column(metric.title, justify="right")
        if base and metric.compared:
            table.add_column("ratio", justify="right")
    if notes:
        table.add_column("published", overflow="fold")
    better = better_than_ours(runs, metrics)
    for name in (*better, *(name for name in runs if name not in better)):
        cells = [shown(knows[name])] if knows else []
        for metric in metrics:
            cells.append(_number(mean(runs, metric, name)))
            if base and metric.compared:
                cells.append("" if name == base or base not in runs else str(ratio(runs, metric, name, base)))
        table.add_row(name, *cells, *([notes.get(name, "")] if notes else []))
    return table


def by_cell(
    title: str,
    results: Results,
    metric: Metric,
    base: str = "",
    notes: Mapping[str, str] | None = None,
    knows: Mapping[str, Knowledge] | None = None,
) -> Table:
    """Return a table of a metric: a row per cell, a column per contender: its ratio to `base`, or its mean without one.

    notes, knows: as in `by_metric`, in rows of their own.
    """
    table = Table(title=f"{title}: {metric.title}{base and f'; ratios to {base}'}", title_justify="left")
    table.add_column("cell")
    names = list(dict.fromkeys(name for runs in results.values() for name in runs))
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    if knows:
        table.add_row("knows", *(shown(knows[name]) for name in names))
    if notes:
        table.add_row("published", *(notes.get(name, "") for name in names))
    for cell, runs in results.items():
        table.add_row(cell, *(_entry(runs, metric, name, base) for name in names))
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


@dataclass(frozen=True)
class CellVerdict:
    """Our policy in a cell, by a metric, against those that know no more than it does.

    best: of those; to_best: ours relative to it. worse_than: those that are better, beyond chance.
    """

    claim: str
    cell: str
    metric: str
    ours: str
    knows: Knowledge
    best: str
    to_best: Ratio
    worse_than: tuple[str, ...]


def verdicts_of(claim: Claim, results: Results) -> list[CellVerdict]:
    """Return how our policy fares in a claim's cells, against those that know no more and may change no more of a job."""
    found = []
    for cell in (cell for cell in claim.judged() if cell in results):
        runs, knows = results[cell], claim.known(cell)
        who = {one.name: one for one in claim.contenders(cell)}
        for metric, ours in product(claim.metrics, (name for name in runs if who[name].policy == OURS)):
            others = [
                name
                for name in runs
                if who[name].policy != OURS and knows[name] <= knows[ours] and who[name].tuned >= who[ours].tuned
            ]
            if others:
                best = min((mean(runs, metric, other).mean, other) for other in others)[1]
                worse = tuple(other for other in others if ratio(runs, metric, ours, other).above)
                to_best = ratio(runs, metric, ours, best)
                found.append(CellVerdict(claim.name, cell, metric.title, ours, knows[ours], best, to_best, worse))
    return found


def verdicts(claims: Sequence[tuple[Claim, Results]], only_worse: bool = False) -> Table:
    """Return the table of verdicts, where our policy is worse than another first. only_worse: leave out all others."""
    table = Table(title=f"{OURS} against the best of those that know no more", title_justify="left")
    for column in (
        "claim",
        "cell",
        "metric",
        "ours",
        "knows",
        "best of the others",
        "ours / best",
        "worse than, beyond chance",
    ):
        table.add_column(column, overflow="fold")
    for one in sorted((one for claim in claims for one in verdicts_of(*claim)), key=lambda one: not one.worse_than):
        if only_worse and not one.worse_than:
            break
        where = (one.claim, one.cell, one.metric, one.ours, shown(one.knows))
        table.add_row(*where, one.best, str(one.to_best), ", ".join(one.worse_than) or "none")
    return table


def tally(claims: Sequence[tuple[Claim, Results]]) -> Table:
    """Return how many verdicts there are by claim and by what our policy knows, and in how many of them it is worse."""
    table = Table(title=f"{OURS} against the best of those that know no more, all cells and metrics", title_justify="left")
    for column in ("claim", "ours", "knows", "compared", "worse, beyond chance", "ours / best: least", "median", "most"):
        table.add_column(column, overflow="fold")
    rows: dict[tuple[str, str, str], list[CellVerdict]] = {}
    for one in (one for claim in claims for one in verdicts_of(*claim)):
        rows.setdefault((one.claim, one.ours, shown(one.knows)), []).append(one)
    for key, found in rows.items():
        ratios = [one.to_best.mean for one in found]
        worse = sum(bool(one.worse_than) for one in found)
        table.add_row(*key, str(len(found)), str(worse), *(f"{one:.2f}" for one in (min(ratios), median(ratios), max(ratios))))
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
