"""What is compiled is announced once, counted, and left out of measured times."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

import beamer.network.kernels.jit  # noqa: F401  # it reports what numba compiles
from beamer.compilation import COMPILATION, Compilation, Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_compiled_within_another_counts_once() -> None:
    clock = Clock()
    compilation = Compilation(clock)
    for spent_s in (2.0, 3.0):
        compilation.begin()
        clock.now_s += spent_s
        compilation.begin()
        clock.now_s += spent_s
        compilation.end()
        compilation.end()
        clock.now_s += 50.0
    assert compilation.seconds == 10.0


def test_what_is_being_compiled_counts_already() -> None:
    clock = Clock()
    compilation = Compilation(clock)
    compilation.begin()
    clock.now_s += 4.0
    assert compilation.seconds == 4.0


def test_it_is_announced_once_and_to_whom_it_concerns_now() -> None:
    compilation, said = Compilation(), list[str]()
    compilation.begin()  # nobody is told, and that is no fault
    compilation.end()
    for name in ("first", "second"):
        compilation.announce(lambda name=name: said.append(name))  # type: ignore[misc]
    for _ in range(3):
        compilation.begin()
        compilation.end()
    assert said == ["second"]


def test_a_stopwatch_leaves_out_what_was_compiled_since_it_was_started() -> None:
    clock = Clock()
    compilation = Compilation(clock)
    compilation.begin()
    clock.now_s += 5.0
    watch = Stopwatch(compilation, clock)
    clock.now_s += 7.0
    compilation.end()
    clock.now_s += 1.5
    assert watch.elapsed_s == 1.5


def test_numba_reports_what_it_compiles_and_not_what_it_has() -> None:
    said = list[str]()
    COMPILATION.announce(lambda: said.append("compiling"))
    before_s = COMPILATION.seconds
    increased = numba.njit(lambda number: number + 1)
    assert increased(1) == 2
    compiled_s = COMPILATION.seconds
    assert compiled_s > before_s
    assert increased(2) == 3
    assert COMPILATION.seconds == compiled_s
    assert said == ["compiling"]


@pytest.mark.long  # it compiles kernels anew
@pytest.mark.timeout(600)
def test_a_command_says_that_it_compiles_and_its_run_time_is_without_it(tmp_path: Path) -> None:
    trace, document = tmp_path / "trace.txt", tmp_path / "run.json"
    trace.write_text("2 1\n1 0 1 1 1 2:1\n")
    options = ["--format", "coflow-benchmark", "--rate", "1gbit", "--policies", "fair", "--json", str(document)]
    command = [sys.executable, "-m", "beamer.cli", "replay", str(trace), *options]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    began_s = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    took_s = time.perf_counter() - began_s
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("replay: compiling kernels") == 1
    assert json.loads(document.read_text())["runs"][0]["wall_s"] < took_s / 4  # nearly all of it is compiling
