"""Files of rows, one per stage, job or coflow and policy: CSV anywhere, Parquet where pyarrow is installed."""

import csv
from collections.abc import Sequence
from pathlib import Path

from beamer.output_files import CSV, check_table
from beamer.sim.joint import JointRun
from beamer.sim.replay import Replay
from beamer.sim.results import RunResult, StageResult
from beamer.studies.model import split_key

Row = dict[str, str | float | None]


def stage_rows(run: RunResult, allocator: str) -> list[Row]:
    """Return a row per stage of a run, seconds by name."""
    return _stage_rows(run.stages, {"policy": run.policy, "allocator": allocator})


def _stage_rows(stages: Sequence[StageResult], of_run: Row) -> list[Row]:
    return [
        {**of_run, "study": s.study, "stage": s.stage, "start_s": s.start_s, "end_s": s.end_s, "sct_s": s.sct_s} for s in stages
    ]


def job_rows(run: RunResult, allocator: str) -> list[Row]:
    """Return a row per job of a run, seconds by name."""
    rows: list[Row] = []
    for j in run.jobs:
        study, stage, job = j.names
        rows.append(
            {
                "policy": run.policy,
                "allocator": allocator,
                "study": study,
                "stage": stage,
                "job": job,
                "start_s": j.start_s,
                "end_s": j.end_s,
                "jct_s": j.jct_s,
            }
        )
    return rows


def joint_stage_rows(run: JointRun, allocator: str) -> list[Row]:
    """Return a row per stage of a run under a policy of each level, seconds by name."""
    return _stage_rows(run.stages, _pair(run, allocator))


def trial_rows(run: JointRun, allocator: str) -> list[Row]:
    """Return a row per trial of a run under a policy of each level, seconds by name; what never came is None."""
    rows: list[Row] = []
    for one in run.jobs:
        study, trial = split_key(one.key)
        rows.append(
            {
                **_pair(run, allocator),
                "study": study,
                "trial": trial,
                "status": one.status.value,
                "submitted_s": one.submitted_s,
                "started_s": one.started_s,
                "ended_s": one.ended_s,
                "jct_s": None if one.ended_s is None else one.jct_s,
                "gpu_s": one.gpu_s,
            }
        )
    return rows


def _pair(run: JointRun, allocator: str) -> Row:
    return {"gpu_policy": run.gpu_policy, "network_policy": run.network_policy, "allocator": allocator}


def coflow_rows(one: Replay) -> list[Row]:
    """Return a row per coflow of a replay, seconds by name."""
    columns = zip(one.id, one.release_s.tolist(), one.completion_s.tolist(), one.cct_s.tolist(), strict=True)
    return [
        {
            "policy": one.policy,
            "allocator": one.allocator,
            "coflow": key,
            "release_s": release,
            "completion_s": completion,
            "cct_s": cct,
        }
        for key, release, completion, cct in columns
    ]


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows, all with the keys of the first, as the suffix of `path` says. Raises `InputError` as `check_table` does."""
    check_table(path)
    if path.suffix.lower() == CSV:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
        return
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    names = list(rows[0]) if rows else []
    parquet.write_table(pyarrow.table({name: [row[name] for row in rows] for name in names}), path)
