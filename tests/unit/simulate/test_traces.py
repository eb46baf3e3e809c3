"""`beamer replay`, and what `beamer simulate` writes beside a table."""

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beamer.cli import main
from tests.support.commands import run_here

TRACE = "2 3\na 0 1 1 1 2:10\nb 0 1 1 1 2:20\nc 100 1 2 1 1:10\n"  # 0.08, 0.16 and 0.08 s on ports of 1 Gbit/s = 125 MB/s
MB_S = 2**20 * 8 / 1e9


def beamer(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_here(main, *arguments)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(TRACE)
    return path


def replayed(trace: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return beamer("replay", str(trace), "--format", "coflow-benchmark", "--rate", "1gbit", *more)


def test_a_trace_is_replayed_and_written_as_json(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = replayed(trace, "--policies", "sebf", "--allocator", "greedy", "--bounds", "--json", str(out))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any]
    (document,) = json.loads(out.read_text())["runs"]
    assert list(document) == [
        "policy", "allocator", "mean_cct_s", "p95_cct_s", "mean_sct_s", "lower_bound_s", "wall_s", "coflows", "stages",
    ]  # fmt: skip
    assert (document["policy"], document["allocator"]) == ("sebf", "greedy")
    assert (document["mean_sct_s"], document["stages"]) == (None, [])
    ends = {coflow["id"]: coflow["completion_s"] for coflow in document["coflows"]}
    assert ends == pytest.approx({"a": 10 * MB_S, "b": 30 * MB_S, "c": 0.1 + 10 * MB_S})
    assert document["mean_cct_s"] == pytest.approx(50 * MB_S / 3)
    assert document["lower_bound_s"] == pytest.approx(document["mean_cct_s"]), "one link, SRPT: the bound is met"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--policies", "fair", "--allocator", "greedy"), ("allocator", "'greedy'", "maxmin or classes")),
        (("--policies", "sebf", "--allocator", "maxmin"), ("policy", "'sebf'", "fair")),
        (("--policies", "sebf", "--allocator", "gready"), ("allocator", "'gready'", "greedy")),
        (("--policies", "sebf,sebv", "--allocator", "greedy"), ("policy", "'sebv'", "sebf")),
        (("--policies", "sebf", "--queues", "9"), ("--queues", "'9'", "1 to 8")),
        (("--policies", "sebf", "--allocator", "greedy", "--table", "t.txt"), ("--table", "t.txt")),
        (("--policies", "sebf", "--allocator", "greedy", "--rate", "99999999tbit"), ("--rate", "99999999tbit", "at most")),
    ],
)
def test_what_cannot_be_replayed(trace: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    done = replayed(trace, *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line


def test_a_broken_trace_is_refused_with_file_line_field_and_value(tmp_path: Path) -> None:
    path = tmp_path / "broken.txt"
    path.write_text("2 2\na 0 1 1 1 2:10\nb 0 1 1 1 2:nan\n")
    done = replayed(path, "--policies", "sebf", "--allocator", "greedy")
    assert done.returncode == 2
    for part in ("broken.txt", "line 3", "megabytes", "'nan'"):
        assert part in done.stderr


def test_rows_and_events_of_a_scenario(tmp_path: Path) -> None:
    table, events, picture = tmp_path / "t.csv", tmp_path / "c.json", tmp_path / "cdf.png"
    done = beamer(
        "simulate",
        "--policies",
        "fair,beamer",
        "--bounds",
        "--table",
        str(table),
        "--chrome",
        str(events),
        "--cdf",
        str(picture),
    )
    assert done.returncode == 0, done.stderr
    assert "bound (subset-dp)   mean / bound" in done.stdout
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["policy"] for row in rows} == {"fair", "beamer"}
    stages = [row for row in rows if row["stage"]]
    assert all(float(row["end_s"]) > float(row["start_s"]) for row in stages)
    written = json.loads(events.read_text())
    spans = [event for event in written["traceEvents"] if event["ph"] == "X"]
    assert len([span for span in spans if span["cat"] == "stage"]) == len(rows)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [
        ("stages", ["study", "stage", "start_s", "end_s", "sct_s"], 8),
        ("jobs", ["study", "trial", "status", "submitted_s", "started_s", "ended_s", "jct_s", "gpu_s"], 18),
    ],
)
def test_rows_events_and_bounds_of_searches_that_ask_for_gpus(
    rows: str, columns: list[str], count: int, tmp_path: Path
) -> None:
    figures, table, events, picture = (tmp_path / name for name in ("f.json", "t.csv", "c.json", "cdf.png"))
    written = ("--json", str(figures), "--table", str(table), "--chrome", str(events), "--cdf", str(picture))
    done = beamer("simulate", "--gpu-policy", "fifo", "--policies", "fair,beamer", "--bounds", "--rows", rows, *written)
    assert done.returncode == 0, done.stderr
    assert "lower bound" in done.stdout
    runs = json.loads(figures.read_text())["runs"]
    for run in runs:
        assert 0 < run["lower_bound_s"] <= run["mean_search_s"]
        assert run["ratio"] == pytest.approx(run["mean_search_s"] / run["lower_bound_s"])
    lines = list(csv.DictReader(table.read_text().splitlines()))
    assert list(lines[0]) == ["gpu_policy", "network_policy", "allocator", *columns]
    assert [line["network_policy"] for line in lines] == ["fair"] * count + ["beamer"] * count
    spans = [event for event in json.loads(events.read_text())["traceEvents"] if event["ph"] == "X"]
    stages, trials = (sorted(span["dur"] for span in spans if span["cat"] == category) for category in ("stage", "job"))
    expected = sorted(1e6 * (stage["end_s"] - stage["start_s"]) for run in runs for stage in run["stages"])
    assert stages == pytest.approx(expected)
    assert trials == pytest.approx(sorted(1e6 * (one["ended_s"] - one["started_s"]) for run in runs for one in run["trials"]))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bounds_are_left_out_unless_they_are_asked_for(trace: Path, tmp_path: Path) -> None:
    for number, command in enumerate(
        (
            ("simulate",),
            ("simulate", "--gpu-policy", "fifo"),
            ("replay", str(trace), "--format", "coflow-benchmark", "--rate", "1gbit"),
        )
    ):
        out = tmp_path / f"{number}.json"
        done = beamer(*command, "--policies", "fair", "--json", str(out))
        assert done.returncode == 0, done.stderr
        assert "bound" not in done.stdout
        assert json.loads(out.read_text())["runs"][0]["lower_bound_s"] is None


@pytest.mark.parametrize("searches", [(), ("--gpu-policy", "fifo,convergence")], ids=["network", "searches"])
def test_details_are_every_stage_and_no_number_that_is_none(searches: tuple[str, ...]) -> None:
    done = beamer("simulate", "--policies", "fair", "--details", *searches)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rung0") >= 3
    assert "nan" not in done.stdout
    assert ("mean JCT" in done.stdout) == (not searches)
