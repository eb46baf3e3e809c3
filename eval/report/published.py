"""Published factors beside ours: what is claimed, what came out here, and why they differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from beamer.yaml_files import read_json
from eval.gpu import regions
from eval.gpu import report as gpu_report
from eval.gpu.results_file import RESULTS, ClaimResults, read_results
from eval.network.command import NETWORK
from eval.network.report import Study
from eval.published import Publication, PublishedFactor, read_published
from eval.statistics import Ratio

COLUMNS = ("idea", "metric, of", "published", "ours", "in a grid of conditions", "why they differ")
NETWORK_IDEA = "beamer"  # the idea that the study of network policies is about
OPTIMUM_FACTOR = 20 / 3
NOT_RUN = "not run"


@dataclass(frozen=True)
class PublishedRow:
    """A published figure.

    ours: over the cells in which policies are compared. grid: where it appears. reached: whether ours is as published, in one
    cell if that is the largest that was seen, otherwise in all of them; beyond chance if it is only said to be above 1.
    """

    idea: str
    title: str
    published: str
    ours: str
    grid: str
    reached: bool


@dataclass(frozen=True)
class PublishedComparison:
    """What is published of an idea, beside ours."""

    publication: Publication
    rows: tuple[PublishedRow, ...]


def comparisons() -> list[PublishedComparison]:
    """Return every idea of `eval/configs/published.yaml`; one without committed figures has no rows."""
    gpu = {one.claim.name: one for one in read_results().claims} if RESULTS.exists() else {}
    grids = read_json(regions.RESULTS, "the results") if regions.RESULTS.exists() else {}
    network = NETWORK.committed.known()
    found = []
    for name, one in read_published().items():
        rows: list[PublishedRow] = []
        if name in gpu:
            rows += _of_claim(one, gpu[name], grids.get(name, {"factors": ()}))
        elif name == NETWORK_IDEA and network:
            rows += _of_network(one, network)
        found.append(PublishedComparison(one, tuple(rows)))
    return found


def table(found: Sequence[PublishedComparison]) -> Table:
    """Return a row per published figure; the reason stands in the first of an idea."""
    made = Table(title="published figures and ours: the baseline's over the idea's own, above 1 where the idea is better")
    for column in COLUMNS:
        made.add_column(column)
    for one in found:
        reason = " ".join(one.publication.why.split())
        for number, row in enumerate(one.rows):
            ours = f"{row.ours} (as published)" if row.reached else row.ours
            made.add_row(row.idea, row.title, row.published, ours, row.grid, "" if number else reason)
    return made


def _of_claim(one: Publication, results: ClaimResults, grid: Mapping[str, Any]) -> Iterator[PublishedRow]:
    metrics = {metric.key: metric for metric in results.claim.metrics}
    cells = {cell: results.cells[cell] for cell in results.claim.judged() if cell in results.cells}
    searched = {(entry["baseline"], entry["metric"]): entry for entry in grid["factors"]}
    for factor in one.factors:
        metric = metrics[factor.metric]
        ratios = [
            gpu_report.ratio(runs, metric, factor.baseline, results.claim.name)
            for runs in cells.values()
            if factor.baseline in runs
        ]
        title = f"{metric.title.partition(' (')[0]}, {factor.baseline}"
        yield _row(one, title, factor, ratios, _grid(searched.get((factor.baseline, factor.metric))))


def _of_network(one: Publication, study: Study) -> Iterator[PublishedRow]:
    groups = [cell for group in study.config.groups.values() for cell in study.known(list(group.cells))]
    reference = study.config.reference
    for factor in one.factors:
        there = [cell for cell in groups if factor.baseline in study.runs[cell]]
        ratios = [study.ratio(cell, factor.baseline, reference, factor.metric) for cell in there]
        yield _row(one, f"mean SCT, {factor.baseline}", factor, ratios, "")
    over = [bound for cell in groups if (bound := study.over_bound(cell, reference))]
    if over:
        least, most = (f"{limit(bound.mean for bound in over):.2f}" for limit in (min, max))
        yield PublishedRow(
            one.title,
            "mean SCT over the optimum",
            f"at most {OPTIMUM_FACTOR:.2f}",
            f"{least} to {most} times a lower bound, {len(over)} cells",
            "",
            max(bound.mean for bound in over) <= OPTIMUM_FACTOR,
        )


def _row(one: Publication, title: str, factor: PublishedFactor, ratios: Sequence[Ratio], grid: str) -> PublishedRow:
    each = [ratio.above if factor.factor is None else ratio.mean >= factor.factor for ratio in ratios]
    reached = any(each) if factor.up_to else bool(each) and all(each)
    return PublishedRow(one.title, title, str(factor), _shown(ratios), grid, reached)


def _shown(ratios: Sequence[Ratio]) -> str:
    """Return ratios in words: that of one cell with its interval, of several the least and the largest with theirs."""
    if not ratios:
        return NOT_RUN
    least, most = (limit(ratios, key=lambda ratio: ratio.mean) for limit in (min, max))
    return str(most) if len(ratios) == 1 else f"{least} to {most}, {len(ratios)} cells"


def _grid(entry: Mapping[str, Any] | None) -> str:
    return "not searched" if entry is None else f"{regions.reached_at(entry)}, largest {regions.largest(entry):.2f}"
