"""What people and programs read after a run: a table, a JSON document, a timeline as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from beamer.results import RunResult


def stage_table(title: str, runs: Sequence[RunResult], extra: Sequence[tuple[str, Sequence[str]]] = ()) -> Table:
    """Return a table with a column per run: SCT per stage, then the means; `extra` rows follow, a cell per run."""
    table = Table(title=title, title_justify="left")
    table.add_column("stage completion time (s)")
    for run in runs:
        table.add_column(run.policy, justify="right")
    keys = [(s.study, s.stage) for s in runs[0].stages]
    times = [{(s.study, s.stage): s.sct_s for s in run.stages} for run in runs]
    for number, key in enumerate(keys):
        last_of_study = number + 1 == len(keys) or keys[number + 1][0] != key[0]
        table.add_row("/".join(key), *(f"{t[key]:.2f}" for t in times), end_section=last_of_study)
    base = runs[0]
    for name, value in (("mean SCT", "mean_sct_s"), ("p95 SCT", "p95_sct_s"), ("mean JCT", "mean_jct_s")):
        table.add_row(name, *(_against(getattr(run, value), getattr(base, value), run is base) for run in runs))
    for study in base.makespans_s:
        table.add_row(
            f"makespan {study}", *(_against(run.makespans_s[study], base.makespans_s[study], run is base) for run in runs)
        )
    for name, cells in extra:
        table.add_row(name, *cells)
    return table


def _against(value: float, base: float, alone: bool) -> str:
    return f"{value:.2f}" if alone else f"{value:.2f} ({value / base - 1:+.0%})"


def job_table(runs: Sequence[RunResult], class_shares: Sequence[dict[str, float]]) -> Table:
    """Return a table of every job's completion time and the share of its bytes that travelled in its class, per run."""
    table = Table(title="jobs: completion time (s), share of bytes in the class given", title_justify="left")
    table.add_column("job")
    for run in runs:
        table.add_column(run.policy, justify="right")
    times = [{j.key: j.jct_s for j in run.jobs} for run in runs]
    for job in runs[0].jobs:
        table.add_row(
            job.key, *(f"{t[job.key]:.2f}  {s.get(job.key, 0.0):.1%}" for t, s in zip(times, class_shares, strict=True))
        )
    return table


def run_document(run: RunResult) -> dict[str, Any]:
    """Return a run as plain data, seconds by name."""
    return {
        "policy": run.policy,
        "mean_sct_s": run.mean_sct_s,
        "p95_sct_s": run.p95_sct_s,
        "mean_jct_s": run.mean_jct_s,
        "makespans_s": run.makespans_s,
        "stages": [
            {"study": s.study, "stage": s.stage, "start_s": s.start_s, "end_s": s.end_s, "sct_s": s.sct_s} for s in run.stages
        ],
        "jobs": [{"job": j.key, "start_s": j.start_s, "end_s": j.end_s, "jct_s": j.jct_s} for j in run.jobs],
        "link_utilisation": dict(run.utilisation),
    }


def plot_timeline(runs: Sequence[RunResult], path: Path) -> None:
    """Draw each run's stages as bars, a lane per study, on a common time axis, and write the picture to `path`."""
    from matplotlib.figure import Figure

    studies = list(runs[0].makespans_s)
    figure = Figure(figsize=(10, 1.0 + len(runs) * (0.6 + 0.35 * len(studies))), layout="constrained")
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for panel, run in zip(panels, runs, strict=True):
        for stage in run.stages:
            row = studies.index(stage.study)
            panel.barh(row, stage.sct_s, left=stage.start_s, height=0.7, color=f"C{row}", edgecolor="white", linewidth=1.5)
            panel.text(
                stage.start_s + stage.sct_s / 2,
                row,
                stage.stage,
                ha="center",
                va="center",
                fontsize=7,
                color="white",
                clip_on=True,
            )
        panel.axvline(0, color="black", linewidth=0.5)
        panel.set_yticks(range(len(studies)), studies)
        panel.invert_yaxis()
        panel.set_title(f"{run.policy}: mean SCT {run.mean_sct_s:.2f} s", loc="left", fontsize=10)
        panel.grid(axis="x", alpha=0.3)
    panels[-1].set_xlabel("time since the scenario's start (s)")
    figure.savefig(path, dpi=120)
