"""Tables for the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from beamer.report.json_documents import ratio
from beamer.sim.replay import Replay
from beamer.sim.results import RunResult

if TYPE_CHECKING:
    from beamer.bounds import Bounds


def stage_table(title: str, runs: Sequence[RunResult], rows: Sequence[tuple[str, Sequence[str]]] = ()) -> Table:
    """Return a table with a column per run: SCT per stage, of every stage that is over in one of them; then `rows`."""
    table = Table(title=title, title_justify="left")
    table.add_column("stage completion time (s)", overflow="fold")
    for run in runs:
        table.add_column(run.policy, justify="right")
    times = [{(s.study, s.stage): s.sct_s for s in run.stages} for run in runs]
    studies: dict[str, dict[str, None]] = {}
    for study, stage in (key for of in times for key in of):
        studies.setdefault(study, {})[stage] = None
    for study, stages in studies.items():
        for stage in stages:
            cells = [f"{of[study, stage]:.2f}" if (study, stage) in of else "not over" for of in times]
            table.add_row(f"{study}/{stage}", *cells)
        table.add_section()
    for name, row in rows:
        table.add_row(name, *row)
    return table


def mean_rows(runs: Sequence[RunResult]) -> list[tuple[str, list[str]]]:
    """Return the rows for `stage_table` with each run's means and makespans beside the first run's, of the same studies."""
    base = runs[0]
    rows = [
        (name, [_against(getattr(run, value), getattr(base, value), run is base) for run in runs])
        for name, value in (("mean SCT", "mean_sct_s"), ("p95 SCT", "p95_sct_s"), ("mean JCT", "mean_jct_s"))
    ]
    for study, base_s in base.makespans_s.items():
        rows.append((f"makespan {study}", [_against(run.makespans_s[study], base_s, run is base) for run in runs]))
    return rows


def _against(value: float, base: float, alone: bool) -> str:
    return f"{value:.2f}" if alone or not base else f"{value:.2f} ({value / base - 1:+.0%})"


def bound_rows(runs: Sequence[RunResult], found: "Bounds") -> list[tuple[str, list[str]]]:
    """Return the rows for `stage_table` that compare each run's mean SCT with the best lower bound on it."""
    ratios = [ratio(run.mean_sct_s, found) for run in runs]
    return [
        (f"lower bound on mean SCT ({found.best})", [f"{found.mean_s:.2f}"] * len(runs)),
        ("mean SCT / lower bound", [_ratio(value) for value in ratios]),
    ]


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


def replay_table(title: str, replays: Sequence[Replay], found: "Bounds | None" = None) -> Table:
    """Return a table with a row per replay of a trace: coflow completion times, beside a lower bound on their mean, if any."""
    table = Table(title=title, title_justify="left")
    table.add_column("coflow completion time (s)")
    of_bound = () if found is None else (f"bound ({found.best})", "mean / bound")
    for heading in ("mean", "p50", "p95", *of_bound, "run time (s)"):
        table.add_column(heading, justify="right")
    for one in replays:
        times = (one.mean_cct_s, one.quantile_cct_s(0.5), one.quantile_cct_s(0.95))
        bounded = () if found is None else (f"{found.mean_s:.3f}", _ratio(ratio(one.mean_cct_s, found)))
        table.add_row(one.policy, *(f"{t:.3f}" for t in times), *bounded, f"{one.wall_s:.1f}")
    return table


def _ratio(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
