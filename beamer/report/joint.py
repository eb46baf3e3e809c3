"""A table and a JSON document of runs under a policy of each level."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from beamer.sim.joint import JointRun


def joint_table(title: str, runs: Sequence[JointRun], bound_s: float | None = None) -> Table:
    """Return a table with a row per run; search and stage completion times stand beside the first run's.

    bound_s: a lower bound on the mean search time, which gets a row of its own.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    for heading in ("GPU\npolicy", "network\npolicy"):
        table.add_column(heading, no_wrap=True)
    for heading in ("search\n(s)", "", "SCT\n(s)", "", "p95\nSCT", "idle\nGPUs", "GB on\nlinks"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        row = [run.gpu_policy, run.network_policy]
        for value, base in ((run.mean_search_s, runs[0].mean_search_s), (run.mean_sct_s, runs[0].mean_sct_s)):
            row += [_seconds(value), "" if run is runs[0] else _change(value, base)]
        table.add_row(*row, _seconds(run.p95_sct_s), f"{run.idle_share:.0%}", f"{run.network_bytes / 1e9:.2f}")
    if bound_s is not None:
        table.add_row("lower bound", "", _seconds(bound_s))
    return table


def joint_simulation_document(run: JointRun, allocator: str, bound_s: float | None = None) -> dict[str, Any]:
    """Return a simulated run as plain data, its mean search time beside a lower bound on it, if there is one."""
    ratio = _finite(run.mean_search_s / bound_s) if bound_s else None
    return {**joint_document(run), "allocator": allocator, "lower_bound_s": bound_s, "ratio": ratio}


def joint_document(run: JointRun) -> dict[str, Any]:
    """Return a run under a policy of each level as plain data; times that never came are null."""
    return {
        "gpu_policy": run.gpu_policy,
        "network_policy": run.network_policy,
        "mean_search_s": _finite(run.mean_search_s),
        "mean_sct_s": _finite(run.mean_sct_s),
        "p95_sct_s": _finite(run.p95_sct_s),
        "mean_jct_s": _finite(run.mean_jct_s),
        "idle_share": run.idle_share,
        "network_bytes": run.network_bytes,
        "end_s": run.end_s,
        "searches_s": {study: _finite(seconds) for study, seconds in run.search_s.items()},
        "stages": [{"study": s.study, "stage": s.stage, "start_s": s.start_s, "end_s": s.end_s} for s in run.stages],
        "trials": [
            {
                "key": job.key,
                "status": job.status.value,
                "submitted_s": job.submitted_s,
                "started_s": job.started_s,
                "ended_s": job.ended_s,
                "gpu_s": job.gpu_s,
                "lost_gpu_s": job.lost_s,
                "iterations": job.reports[-1].iteration if job.reports else 0.0,
                "loss": _finite(job.reports[-1].loss) if job.reports else None,
            }
            for job in run.jobs
        ],
    }


def _seconds(value: float) -> str:
    return f"{value:.1f}" if isfinite(value) else "not over"


def _change(value: float, base: float) -> str:
    return f"{value / base - 1:+.0%}" if isfinite(value) and isfinite(base) and base else ""


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
