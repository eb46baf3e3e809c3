"""Figures as plain data for JSON files: seconds, by names that end in `_s`; None where a figure does not apply."""

from typing import TYPE_CHECKING, Any

from beamer.sim.replay import Replay
from beamer.sim.results import RunResult

if TYPE_CHECKING:  # Linear programmes are imported where a bound is asked for.
    from beamer.bounds import Bounds


def ratio(mean_s: float, found: "Bounds") -> float | None:
    """Return a mean completion time relative to the best lower bound on it; None of nothing."""
    return mean_s / found.mean_s if found.mean_s > 0 else None


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


def simulation_document(run: RunResult, allocator: str, found: "Bounds | None" = None) -> dict[str, Any]:
    """Return a simulated run as plain data, its mean SCT beside the best lower bound on it, if there is one."""
    return {
        **run_document(run),
        "allocator": allocator,
        "lower_bound_s": found and found.mean_s,
        "bound": found and found.best,
        "ratio": found and ratio(run.mean_sct_s, found),
    }


def replay_document(one: Replay, found: "Bounds | None" = None) -> dict[str, Any]:
    """Return a replay of a trace as plain data, coflows in the trace's order."""
    times = zip(one.id, one.release_s.tolist(), one.completion_s.tolist(), strict=True)
    return {
        "policy": one.policy,
        "allocator": one.allocator,
        "mean_cct_s": one.mean_cct_s,
        "p95_cct_s": one.quantile_cct_s(0.95),
        "mean_sct_s": None,
        "lower_bound_s": found and found.mean_s,
        "wall_s": one.wall_s,
        "coflows": [{"id": key, "release_s": release, "completion_s": completion} for key, release, completion in times],
        "stages": [],
    }
