"""Runs that a second start does not repeat."""

import io
import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest
from rich.console import Console

from beamer.errors import EngineError
from eval.arithmetic import arithmetic
from eval.machine import Machine
from eval.resume import ROOT, ResultCache, Task, digest, folder_digest, imported_sources, run_resumably, source_digest
from eval.workers import on_processes

LONG_S = 60.0


def recorded(folder: Path, number: int) -> dict[str, float]:
    if number < 0:
        raise ValueError(number)
    (folder / f"ran-{number}-{os.getpid()}-{len(list(folder.iterdir()))}").touch()
    return {"value": number / 3}


def tasks(folder: Path, numbers: list[int]) -> list[Task]:
    return [Task(digest("run", number), f"run {number}", recorded, (folder, number)) for number in numbers]


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    (tmp_path / "ran").mkdir()
    return tmp_path / "ran"


def plain() -> Console:
    return Console(file=io.StringIO(), width=200)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_second_start_runs_only_what_is_missing(tmp_path: Path, ran: Path) -> None:
    cache = ResultCache(tmp_path / "cache")
    assert run_resumably(tasks(ran, [1, 2]), cache, on_processes(2), plain(), "t") == [
        {"value": 1 / 3},
        {"value": 2 / 3},
    ]
    console = plain()
    again = run_resumably(tasks(ran, [3, 2, 1]), ResultCache(tmp_path / "cache"), on_processes(2), console, "t")
    assert [one["value"] for one in again] == [1.0, 2 / 3, 1 / 3]
    assert len(list(ran.iterdir())) == 3
    assert "3 runs, 2 of them known" in printed(console)
    cache.forget()
    run_resumably(tasks(ran, [1]), cache, on_processes(1), plain(), "t")
    assert len(list(ran.iterdir())) == 4


def test_a_run_that_fails_is_named_and_those_that_ended_are_kept(tmp_path: Path, ran: Path) -> None:
    cache = ResultCache(tmp_path / "cache")
    with pytest.raises(ValueError, match="-1") as found:
        run_resumably(tasks(ran, [1, -1]), cache, on_processes(1), plain(), "t")
    assert found.value.__notes__[-1] == "in run -1"
    ended, failed = tasks(ran, [1, -1])
    assert cache.find(ended.cache_key) == {"value": 1 / 3}
    assert cache.find(failed.cache_key) is None


def test_a_run_by_other_arithmetic_is_another(tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ResultCache(tmp_path / "cache")
    run_resumably(tasks(ran, [1]), cache, on_processes(1), plain(), "t")
    for name in arithmetic():
        monkeypatch.setattr("eval.resume.arithmetic", lambda name=name: {**arithmetic(), name: "another"})
        assert cache.find(tasks(ran, [1])[0].cache_key) is None, name


def test_a_worker_of_another_kind_is_refused(tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.resume.arithmetic", lambda: {**arithmetic(), "blas": "openblas 0.3.30 Elsewhere"})
    with pytest.raises(EngineError, match=r"Elsewhere.*OPENBLAS_CORETYPE"):
        run_resumably(tasks(ran, [1]), ResultCache(tmp_path / "cache"), on_processes(1), plain(), "t")
    assert not (tmp_path / "cache").exists(), "what it made is not kept"


def test_results_name_versions_kernels_and_instructions() -> None:
    found = arithmetic()
    assert set(found) == {"python", "numpy", "scipy", "numba", "blas", "simd"}
    assert all(found.values())
    assert found.items() <= Machine.here().packages.items()


def slow(folder: Path, number: int) -> dict[str, float]:
    (folder / str(os.getpid())).touch()
    time.sleep(LONG_S)
    return recorded(folder, number)


def test_a_run_that_fails_ends_those_that_run_or_wait(tmp_path: Path, ran: Path) -> None:
    failing = Task(digest("run", -1), "run -1", recorded, (ran, -1))
    waiting = [Task(digest("slow", number), f"slow {number}", slow, (ran, number)) for number in range(20)]
    started = time.monotonic()
    with pytest.raises(ValueError, match="-1"):
        run_resumably([waiting[0], failing, *waiting[1:]], ResultCache(tmp_path / "cache"), on_processes(2), plain(), "t")
    assert time.monotonic() - started < LONG_S
    assert not list(ran.glob("ran-*"))
    assert not active_children()


START = """
import signal, sys
from pathlib import Path
from rich.console import Console
from eval.resume import ResultCache, run_resumably
from eval.workers import on_processes
from tests.unit.eval.test_resume import Task, slow
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
folder = Path(sys.argv[1])
several = [Task(str(number), str(number), slow, (folder, number)) for number in range(20)]
run_resumably(several, ResultCache(folder / "cache"), on_processes(2), Console(quiet=True), "t")
"""


def test_sigterm_ends_the_runs_too(ran: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", START, str(ran)], cwd=ROOT) as process:
        until = time.monotonic() + LONG_S
        while len(list(ran.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(LONG_S) == 128 + signal.SIGTERM
    running = [int(path.name) for path in ran.iterdir()]
    assert len(running) == 2
    assert not [pid for pid in running if Path(f"/proc/{pid}").exists()]


def test_a_result_that_was_cut_off_is_none(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    cache.store("key", {"a": 1.0})
    (tmp_path / "key.json").write_text('{"a": 1')
    assert cache.find("key") is None


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    cache.store("key", {"a": float("inf")})
    assert cache.find("key") == {"a": float("inf")}


def test_progress_is_a_line_now_and_then_without_a_terminal(tmp_path: Path, ran: Path) -> None:
    console = plain()
    run_resumably(tasks(ran, list(range(40))), ResultCache(tmp_path / "cache"), on_processes(2), console, "t")
    lines = printed(console).splitlines()
    assert len(lines) == 11
    assert lines[-1].startswith("t: 40 of 40 runs")


def test_progress_is_a_bar_on_a_terminal(tmp_path: Path, ran: Path) -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    run_resumably(tasks(ran, [1, 2]), ResultCache(tmp_path / "cache"), on_processes(1), console, "t")
    assert "2/2" in printed(console)


def test_a_digest_follows_what_is_imported_and_nothing_else(tmp_path: Path) -> None:
    package = tmp_path / "lib"
    package.mkdir()
    (package / "__init__.py").write_text("from lib import c")
    (package / "a.py").write_text("from lib.b import thing\nimport json")
    (package / "b.py").write_text("thing = 1")
    (package / "c.py").write_text("other = 1")
    assert set(imported_sources(["lib.a"], root=tmp_path)) == {"lib.a", "lib.b"}
    before = source_digest(["lib.a"], root=tmp_path)
    (package / "c.py").write_text("other = 2")
    assert source_digest(["lib.a"], root=tmp_path) == before
    (package / "b.py").write_text('"""Things."""\n\nthing = (1)  # of them\n"""One."""\n')
    assert source_digest(["lib.a"], root=tmp_path) == before, "comments, docstrings and layout do nothing"
    (package / "b.py").write_text("thing = 2")
    assert source_digest(["lib.a"], root=tmp_path) != before
    (package / "a.py").write_text("from lib import b")
    assert set(imported_sources(["lib.a"], without=["lib.b"], root=tmp_path)) == {"lib.a", "lib"} | {"lib.c"}


def test_the_sources_of_a_claim_include_the_simulator() -> None:
    found = imported_sources(["eval.gpu.claims.hermes"], root=ROOT)
    assert {"beamer.sim.gpu", "beamer.engines.simulated", "beamer.gpu.model", "eval.gpu.searches"} <= set(found)


def test_a_folders_digest_follows_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_text("1")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one").write_text("1")
    assert folder_digest(tmp_path / "a") == folder_digest(tmp_path / "b")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a").symlink_to(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert folder_digest(tmp_path / "linked") != folder_digest(tmp_path / "empty")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "one").write_text("2")
    assert folder_digest(tmp_path / "c") != folder_digest(tmp_path / "a")
