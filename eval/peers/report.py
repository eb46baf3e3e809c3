"""What came of runs in a peer's simulator: a row per policy, with ratios to the peer's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from eval.peers.contender import PeerContender
from eval.statistics import Ratio

TAIL = 99  # percentile of the completion times


@dataclass(frozen=True)
class PeerFigures:
    """What a run is judged by, seconds; restarts: changes of GPUs per job after its start."""

    mean_s: float
    tail_s: float
    makespan_s: float
    restarts: float

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "PeerFigures":
        """Return the figures of what a runner has left: seconds until completion and restarts by job, the makespan."""
        jct_s = list(result["jct_s"].values())
        restarts = list(result["restarts"].values())
        return cls(float(np.mean(jct_s)), float(np.percentile(jct_s, TAIL)), result["makespan_s"], float(np.mean(restarts)))


COMPARED = {"mean_s": "mean JCT", "tail_s": f"p{TAIL}", "makespan_s": "makespan"}

Figures = Mapping[PeerContender, Mapping[tuple[str, int], PeerFigures]]
"""By policy, then by workload and seed."""


def ratio(figures: Figures, ours: PeerContender, base: PeerContender, metric: str) -> Ratio:
    """Return a metric relative to a base's, paired by workload and seed.

    The seeds of a workload share its jobs, so that they are no independent samples: their geometric mean is one value, and the
    interval is over workloads. With a single workload it is over the seeds.
    """
    pairs = sorted(set(figures[ours]) & set(figures[base]))
    logs = {pair: [np.log(getattr(figures[who][pair], metric)) for who in (ours, base)] for pair in pairs}
    workloads = sorted({workload for workload, _ in pairs})
    groups = [[pair] for pair in pairs]
    if len(workloads) > 1:
        groups = [[pair for pair in pairs if pair[0] == workload] for workload in workloads]
    means = np.exp([np.mean([logs[pair] for pair in group], axis=0) for group in groups])
    if len(means) < 2:
        only = float(means[0, 0] / means[0, 1])
        return Ratio(only, only, only)
    return Ratio.of(means[:, 0].tolist(), means[:, 1].tolist())


def comparison(title: str, figures: Figures, base: PeerContender) -> Table:
    """Return a table of all policies: what each knows, its means over workloads and seeds, and its ratios to `base`."""
    made = Table(title=f"{title}; ratios to {base.title}", title_justify="left")
    for column in ("policy", "whose", "knows", "sizes"):
        made.add_column(column, overflow="fold")
    for name in COMPARED.values():
        made.add_column(f"{name} (s)", justify="right")
        made.add_column("ratio", justify="right")
    made.add_column("restarts per job", justify="right")
    for who, runs in figures.items():
        sizes = "free, batch size by the policy" if who.batches == "policy" else who.sizes
        cells = [who.name, "theirs" if who.own else "ours", who.knows, sizes]
        for metric in COMPARED:
            cells.append(f"{mean(runs, metric):.0f}")
            cells.append("" if who == base else _shown(ratio(figures, who, base, metric)))
        made.add_row(*cells, f"{mean(runs, 'restarts'):.1f}")
    return made


def by_workload(figures: Figures, base: PeerContender, metric: str) -> Table:
    """Return a table of a metric's ratios to `base`, a column per workload."""
    workloads = sorted({workload for runs in figures.values() for workload, _ in runs})
    made = Table(title=f"{COMPARED[metric]} by workload; ratios to {base.title}", title_justify="left")
    made.add_column("policy", overflow="fold")
    for workload in workloads:
        made.add_column(workload, justify="right")
    for who in figures:
        cells = []
        for workload in workloads:
            only = {name: {pair: one for pair, one in runs.items() if pair[0] == workload} for name, runs in figures.items()}
            cells.append(f"{mean(only[who], metric):.0f} s" if who == base else _shown(ratio(only, who, base, metric)))
        made.add_row(who.title, *cells)
    return made


def mean(runs: Mapping[tuple[str, int], PeerFigures], metric: str) -> float:
    """Return the mean of a metric over runs."""
    return float(np.mean([getattr(one, metric) for one in runs.values()]))


def _shown(one: Ratio) -> str:
    return f"{one.mean:.2f}" if one.low == one.high else str(one)
