"""The plots of docs/experiments/gpu.md, as the results files of `eval gpu` and `eval peers` have them.

Names are those of the files in docs/images without the ending: "gpu-CLAIM", "gpu-verdicts", "peers-PEER", "peers-agreement".
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from eval.gpu import agreement
from eval.gpu.claim import CellResults, Claim, Metric
from eval.gpu.knowledge import shown
from eval.gpu.report import OURS, CellVerdict, ratio, verdicts_of
from eval.gpu.results_file import ClaimResults, StudyResults
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, PanelBand, single
from eval.peers import report as peer_report
from eval.peers.contender import PeerContender
from eval.peers.results_file import PeerResults

MOST_CELLS = 3  # of a claim whose plot has a band per cell; with more it has a panel per contender
ACROSS = 4  # such panels


def plots(results: StudyResults, peers: Mapping[str, PeerResults]) -> dict[str, IntervalPlot]:
    """Return every plot."""
    found = {"gpu-verdicts": of_verdicts(results)}
    found |= {f"gpu-{one.claim.name}": of_claim(one) for one in results.claims}
    found |= {f"peers-{name}": of_peer(one) for name, one in peers.items()}
    for one in results.claims:
        if one.claim.name in peers:
            found["peers-agreement"] = of_agreement(one, peers[one.claim.name])
    return found


def of_claim(results: ClaimResults) -> IntervalPlot:
    """Return a claim's contenders relative to its own policy, by cell and metric."""
    claim = results.claim
    cells = {cell: results.cells[cell] for cell in claim.judged() if cell in results.cells}
    metrics = [metric for metric in claim.metrics if metric.compared]
    return _by_cell(claim, cells, metrics) if len(cells) <= MOST_CELLS else _by_contender(claim, cells, metrics)


def _by_cell(claim: Claim, cells: Mapping[str, CellResults], metrics: Sequence[Metric]) -> IntervalPlot:
    """Return a band per cell, a panel per metric, a row per contender, and a series per kind of knowledge."""
    bands = []
    for cell, runs in cells.items():
        names = [name for name in runs if name != claim.name]
        names.sort(key=lambda name, runs=runs: ratio(runs, metrics[0], name, claim.name).mean)  # type: ignore[misc]
        knows = {name: f"knows {shown(known)}" for name, known in claim.known(cell).items()}
        panels = []
        for metric in metrics:
            series: dict[str, dict[str, IntervalEstimate]] = {kind: {} for kind in sorted({knows[name] for name in names})}
            for name in names:
                series[knows[name]][name] = IntervalEstimate.of(ratio(runs, metric, name, claim.name))
            panels.append(Panel(f"{_short(metric)} / {claim.name}", series, cell if len(cells) > 1 else ""))
        bands.append(PanelBand(names, panels))
    return IntervalPlot(bands, _ours(name for runs in cells.values() for name in runs))


def _by_contender(claim: Claim, cells: Mapping[str, CellResults], metrics: Sequence[Metric]) -> IntervalPlot:
    """Return a panel per contender, a row per cell, and a series per metric."""
    names = list(dict.fromkeys(name for runs in cells.values() for name in runs if name != claim.name))
    panels = []
    for name in names:
        there = {cell: runs for cell, runs in cells.items() if name in runs}
        series = {
            _short(metric): {cell: IntervalEstimate.of(ratio(runs, metric, name, claim.name)) for cell, runs in there.items()}
            for metric in metrics
        }
        knows = shown(claim.known(next(iter(there)))[name])
        panels.append(Panel(f"time / {claim.name}", series, f"{name}\n(knows {knows})"))
    return IntervalPlot([PanelBand([*cells], panels[first : first + ACROSS]) for first in range(0, len(panels), ACROSS)])


def of_verdicts(results: StudyResults) -> IntervalPlot:
    """Return our policy relative to the best of those that know no more: the median over cells and metrics, least to most."""
    grouped: dict[tuple[str, str, str], list[CellVerdict]] = {}
    for one in (verdict for claim in results.claims for verdict in verdicts_of(claim.claim, claim.cells)):
        grouped.setdefault((one.claim, one.ours, shown(one.knows)), []).append(one)
    series: dict[str, dict[str, IntervalEstimate]] = {}
    rows = []
    for (claim, ours, knows), several in grouped.items():
        ratios = [one.to_best.mean for one in several]
        worse = sum(bool(one.worse_than) for one in several)
        rows.append(f"{claim}: {ours} (worse in {worse} of {len(several)})")
        series.setdefault(f"knows {knows}", {})[rows[-1]] = IntervalEstimate(median(ratios), min(ratios), max(ratios))
    return single(rows, Panel("ours / best of the others: median over cells and metrics, least to most", series))


def of_peer(results: PeerResults) -> IntervalPlot:
    """Return policies in a peer's simulator relative to the peer's own one: over all workloads, and the mean by workload."""
    figures, base = results.compared, results.base
    names = {who: _called(who) for who in figures if who != base}
    whose = {who: "theirs" if who.own else f"ours, knows {who.knows}" for who in names}
    kinds = list(dict.fromkeys(whose.values()))
    panels = []
    for metric, title in peer_report.COMPARED.items():
        found = {who: IntervalEstimate.of(peer_report.ratio(figures, who, base, metric)) for who in names}
        series = {kind: {names[who]: found[who] for who in names if whose[who] == kind} for kind in kinds}
        panels.append(Panel(f"{title} / theirs", series, "all workloads"))
    workloads = sorted({workload for runs in figures.values() for workload, _ in runs})
    by_workload: dict[str, dict[str, IntervalEstimate]] = {}
    for workload in workloads:
        only = {who: {run: one for run, one in runs.items() if run[0] == workload} for who, runs in figures.items()}
        by_workload[f"workload {workload}"] = {
            name: IntervalEstimate.of(peer_report.ratio(only, who, base, "mean_s")) for who, name in names.items()
        }
    rows = list(names.values())
    first = peer_report.COMPARED["mean_s"]
    return single(rows, *panels, Panel(f"{first} / theirs", by_workload, "each workload"), strong=_ours(rows))


def of_agreement(claim: ClaimResults, peer: PeerResults) -> IntervalPlot:
    """Return the policies of `agreement`, in our simulator and in the peer's."""
    _, found = agreement.agreements(claim, peer)
    rows = {_called(one.contender): one for one in found}
    series = {
        "in our simulator": {row: IntervalEstimate(one.here, one.here, one.here) for row, one in rows.items()},
        "in Pollux' simulator": {row: IntervalEstimate(one.there, one.there, one.there) for row, one in rows.items()},
    }
    return single([*rows], Panel(f"mean JCT / our {agreement.BASE} with free sizes", series), strong=_ours(rows))


def _called(who: PeerContender) -> str:
    """Return a policy's name with what it is told and the sizes of its jobs, shorter than its title."""
    batches = ", own batch size" if who.batches == "policy" else ""
    return f"{who.name} ({'theirs' if who.own else who.knows}, {who.sizes}{batches})"


def _short(metric: Metric) -> str:
    return metric.title.partition(" (")[0]


def _ours(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name.startswith(OURS)))
