"""Results that did not come out as hoped, by the committed figures: factors that appear nowhere, policies that do not gain."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from beamer.yaml_files import read_json
from eval.gpu import regions
from eval.gpu.results_file import RESULTS, read_results
from eval.joint.command import JOINT
from eval.joint.report import JointStudy
from eval.network.cells import FAIR
from eval.network.command import NETWORK
from eval.network.report import Study
from eval.pairs import pair
from eval.report.published import PublishedComparison
from eval.statistics import Ratio


def tables(found: Sequence[PublishedComparison]) -> Iterator[Table]:
    """Yield every table that there are committed figures for. found: what is published, beside ours."""
    yield not_reached(found)
    if regions.RESULTS.exists():
        yield nowhere()
    if network := NETWORK.committed.known():
        yield network_losses(network)
    if joint := JOINT.committed.known():
        yield joint_losses(joint)
    if RESULTS.exists():
        yield read_results().tally()


def not_reached(found: Sequence[PublishedComparison]) -> Table:
    """Return the published figures that ours do not come to on the conditions of the claim."""
    made = _table(
        "published figures to which ours do not come, or which were not run", "idea", "metric, of", "published", "ours"
    )
    for row in (row for one in found for row in one.rows if not row.reached):
        made.add_row(row.idea, row.title, row.published, row.ours)
    return made


def nowhere() -> Table:
    """Return the published factors that no point of their grids comes to."""
    made = _table("published factors that appear nowhere in a grid", "claim", "metric, of", "published", "points", "largest")
    for name, grid in read_json(regions.RESULTS, "the results").items():
        for one in grid["factors"]:
            if not regions.is_reached(one):
                points, most = regions.reached_at(one).partition(" of ")[2], f"{regions.largest(one):.2f}"
                made.add_row(name, one["title"], f"{one['factor']:.2f}", points, most)
    return made


def network_losses(study: Study) -> Table:
    """Return in how many cells each network policy is worse than none, live, in the mean and at the 95th percentile."""
    title = f"network policies against {FAIR}, live: in how many cells they are worse beyond chance, and the mean over cells"
    made = _table(title, "policy", "cells", "mean SCT worse in", "ratio", "95th percentile worse in", "ratio")
    cells = [cell for group in study.config.groups.values() for cell in study.known(list(group.cells))]
    for contender in study.config.contenders:
        there = [cell for cell in cells if contender.name in study.runs[cell]]
        if contender.name == FAIR or not contender.is_live or contender.survivors or not there:
            continue
        counts = [
            part
            for measure in ("mean_s", "p95_s")
            for part in (
                _worse(study.ratio(cell, contender.name, FAIR, measure) for cell in there),
                f"{study.overall(there, contender.name, FAIR, measure):.2f}",
            )
        ]
        made.add_row(contender.name, str(len(there)), *counts)
    return made


def joint_losses(study: JointStudy) -> Table:
    """Return in which cells each GPU policy takes longer than the first one, and where the network adds nothing to it."""
    network = study.config.network_policies
    title = "GPU policies where trials share GPUs and network: cells in which searches take longer beyond chance"
    made = _table(
        title,
        "GPU policy",
        f"than under {study.config.gpu_policies[0]}, both with {network[0]}",
        *(f"with {name} than with {network[0]}" for name in network[1:]),
    )
    for policy in study.config.gpu_policies:
        alone = pair(policy, network[0])
        others = [pair(policy, name) for name in network[1:]]
        first = pair(study.config.gpu_policies[0], network[0])
        made.add_row(policy, _named(study, alone, first), *(_named(study, other, alone) for other in others))
    return made


def _named(study: JointStudy, who: str, base: str) -> str:
    """Return the cells in which a pair of policies is worse than another beyond chance, of those in which both ran."""
    both = [cell for cell, runs in study.runs.items() if who in runs and base in runs]
    return ", ".join(cell for cell in both if study.ratio(cell, who, base).above) or "none"


def _worse(ratios: Iterator[Ratio]) -> str:
    return str(sum(ratio.above for ratio in ratios))


def _table(title: str, *columns: str) -> Table:
    made = Table(title=title)
    for column in columns:
        made.add_column(column)
    return made
