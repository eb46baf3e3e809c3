"""The figures of a run, their table, document and picture."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from beamer.measures import jain, quantile
from beamer.report.json_documents import run_document
from beamer.report.plots import plot_timeline
from beamer.report.tables import mean_rows, stage_table
from beamer.sim.results import JobResult, RunResult, StageResult


def _run(policy: str, scale: float) -> RunResult:
    stages = (
        StageResult("a", "r0", 0.0, 2.0 * scale),
        StageResult("a", "r1", 2.0 * scale, 6.0 * scale),
        StageResult("b", "r0", 1.0, 3.0),
    )
    return RunResult(policy, stages, (JobResult("a/r0/x", 0.0, 2.0 * scale),), {"h1-s1": 0.5})


def test_means_and_makespans() -> None:
    run = _run("fair", 1.0)
    assert run.mean_sct_s == pytest.approx(8 / 3)
    assert run.makespans_s == {"a": 6.0, "b": 2.0}
    assert run.mean_jct_s == 2.0


def test_the_table_compares_with_the_first_run() -> None:
    text = StringIO()
    runs = [_run("fair", 1.0), _run("beamer", 0.5)]
    Console(file=text, width=100).print(stage_table("t", runs, mean_rows(runs)))
    assert "(-50%)" in text.getvalue()
    assert "a/r1" in text.getvalue()


def test_the_table_has_every_stage_that_is_over_in_one_run() -> None:
    whole = _run("fair", 1.0)
    runs = [RunResult("fifo", whole.stages[:1], ()), whole]
    table = stage_table("t", runs)
    first, *others = ([*column.cells] for column in table.columns)
    assert first == ["a/r0", "a/r1", "b/r0"]
    assert others == [["2.00", "not over", "not over"], ["2.00", "4.00", "2.00"]]


def test_the_document_is_json_with_the_promised_names() -> None:
    document = json.loads(json.dumps(run_document(_run("fair", 1.0))))
    assert {"policy", "mean_sct_s", "p95_sct_s", "stages"} <= document.keys()
    assert document["stages"][1] == {"study": "a", "stage": "r1", "start_s": 2.0, "end_s": 6.0, "sct_s": 4.0}


def test_the_timeline_is_a_picture(tmp_path: Path) -> None:
    plot_timeline([_run("fair", 1.0), _run("beamer", 0.5)], tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_jains_index() -> None:
    assert jain([1.0, 1.0, 1.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0]) == pytest.approx(0.5)


def test_quantile_is_the_nearest_rank() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.99) == 3.0
    assert quantile([float(i) for i in range(100, 0, -1)], 0.5) == 50.0
    assert quantile([float(i) for i in range(100, 0, -1)], 0.99) == 99.0
