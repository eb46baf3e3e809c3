"""Files that are written after a run: rows, timelines for a viewer, distributions."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.report.chrome import replay_events, run_events, write_events
from beamer.report.plots import plot_cdf
from beamer.report.row_files import coflow_rows, job_rows, stage_rows, write_rows
from beamer.sim.replay import Replay
from beamer.sim.results import JobResult, RunResult, StageResult
from beamer.testing.profile import PROFILE

RUN = RunResult(
    "beamer",
    (StageResult("a", "rung0", 0.0, 2.0), StageResult("b", "rung0", 1.0, 4.0), StageResult("a", "rung1", 2.0, 5.0)),
    (JobResult("a/rung0/x", 0.0, 1.0), JobResult("a/rung0/y", 0.0, 2.0), JobResult("b/rung0/x", 1.0, 4.0),
     JobResult("a/rung1/y", 2.0, 5.0)),
)  # fmt: skip

SPANS = st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=12)


def replayed(spans: list[tuple[float, float]]) -> Replay:
    release = np.array([start for start, _ in spans], np.float64)
    completion = release + np.array([length for _, length in spans], np.float64)
    return Replay("sebf", "greedy", tuple(f"c{i}" for i in range(len(spans))), release, completion, 0.1, 1)


def test_a_study_is_a_process_whose_threads_are_its_stages_and_trials() -> None:
    events = list(run_events([RUN]))
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(1, 0): "stages", (1, 1): "x", (1, 2): "y", (2, 0): "stages", (2, 1): "x"}
    shown = [(e["pid"], e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert shown == [
        (1, 0, "rung0", 0.0, 2e6), (1, 0, "rung1", 2e6, 3e6),
        (1, 1, "rung0/x", 0.0, 1e6), (1, 2, "rung0/y", 0.0, 2e6), (1, 2, "rung1/y", 2e6, 3e6),
    ]  # fmt: skip


@PROFILE
@given(SPANS)
def test_coflows_of_a_lane_do_not_overlap_and_lanes_are_no_more_than_coflows_at_once(spans: list[tuple[float, float]]) -> None:
    one = replayed(spans)
    shown = [e for e in replay_events([one]) if e["ph"] == "X"]
    assert sorted(e["name"] for e in shown) == sorted(one.id)
    position = {key: i for i, key in enumerate(one.id)}
    for track in {e["tid"] for e in shown}:
        of = sorted(
            (position[e["name"]] for e in shown if e["tid"] == track), key=lambda i: (one.release_s[i], one.completion_s[i])
        )
        assert all(one.completion_s[i] <= one.release_s[j] for i, j in pairwise(of))
    most = max((int(np.sum((one.release_s <= at) & (one.completion_s >= at))) for at in one.release_s), default=0)
    assert len({e["tid"] for e in shown}) <= most


def test_events_are_written_as_viewers_read_them(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    write_events(run_events([RUN]), path)
    assert len(json.loads(path.read_text())["traceEvents"]) == len(list(run_events([RUN])))


def test_rows_come_back_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "stages.csv"
    write_rows(stage_rows(RUN, "classes"), path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["study"], r["stage"], float(r["sct_s"])) for r in rows] == [
        ("a", "rung0", 2),
        ("b", "rung0", 3),
        ("a", "rung1", 3),
    ]
    assert {(r["policy"], r["allocator"]) for r in rows} == {("beamer", "classes")}


@pytest.mark.parametrize("rows", [job_rows(RUN, "classes"), coflow_rows(replayed([(0.0, 1.5), (2.0, 0.25)])), []])
def test_rows_come_back_from_parquet(rows: list[dict[str, str | float]], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "rows.parquet"
    write_rows(rows, path)
    assert parquet.read_table(path).to_pylist() == rows


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--table.*\.csv or \.parquet"):
        write_rows(stage_rows(RUN, "classes"), tmp_path / "rows.xlsx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", [[], [0.0, 0.0], [1.0, 2.0], [0.0, 1e-3, 1e3]])
def test_distributions_are_drawn_of_any_values(seconds: list[float], tmp_path: Path) -> None:
    path = tmp_path / "cdf.png"
    plot_cdf("coflow completion time", [("fair", seconds), ("sebf", [1.0])], path)
    assert path.read_bytes().startswith(b"\x89PNG")
