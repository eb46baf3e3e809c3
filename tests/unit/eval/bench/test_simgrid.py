"""What the driver of SimGrid is told and what it answers, without SimGrid."""

import re
from pathlib import Path

import numpy as np
import pytest

from beamer.errors import InputError, PlatformError
from eval.bench import bench
from eval.bench.simgrid import program
from eval.bench.simgrid.comparison import AGREEMENT, differ
from eval.bench.simgrid.description import describe
from tests.support.loads import SyntheticJob, block
from tests.support.reference.network import Flow


def test_a_description_has_what_moves() -> None:
    path, other = {0: 1.0, 2: 1.0}, {1: 1.0}
    first = SyntheticJob(((Flow(path, 0.1), Flow({}, 9.0)), (), (Flow(other, 2.0), Flow(path, 3.0))), 4, 0.3, 0.25)
    second = SyntheticJob(((Flow(other, 0.0),),))
    assert describe(np.array([1e9, 2e9, 0.5]), block([first, second]), np.array([0.0, 1.5])).split("\n") == [
        "largest 9.0",
        "links 3",
        "1000000000.0 2000000000.0 0.5",
        "paths 2",
        "2 0 2",
        "1 1",
        "jobs 2",
        "0.0 4 0.3 0.25 2",
        "1 0 0.1",
        "2 1 2.0 0 3.0",
        "1.5 1 0.0 0.0 0",
        "",
    ]


def test_a_flow_that_loads_links_unlike_its_rate_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.5"):
        describe(np.ones(1), block([SyntheticJob(((Flow({0: 0.5}, 1.0),),))]), np.zeros(1))


def test_what_the_driver_prints_is_read() -> None:
    outcome = program.parse("cpu 0.25\n1.5\n0.10000000000000001\n")
    assert outcome.cpu_s == 0.25
    assert outcome.end_s.tolist() == [1.5, 0.1]
    assert program.parse("cpu 0.0\n").end_s.size == 0


@pytest.mark.parametrize("output", ["", "1.5\n", "cpu\n", "cpu 1.0\nlate\n"])
def test_what_the_driver_does_not_print_is_refused(output: str) -> None:
    with pytest.raises(ValueError, match=r"driver|convert"):
        program.parse(output)


def test_versions_are_found_among_macros() -> None:
    assert program.version_of("#define SIMGRID_VERSION_MINOR 32\n#define SIMGRID_VERSION_MAJOR 3\n") == (3, 32)
    assert program.version_of("#define OTHER 1\n") == ()


def compiler(folder: Path, script: str) -> str:
    """Write a `g++` that does what `script` says; return its folder."""
    path = folder / "g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 1", "libsimgrid-dev"),
        ("echo '#define SIMGRID_VERSION_MAJOR 3'; echo '#define SIMGRID_VERSION_MINOR 36'", r"SimGrid is 3\.36 here"),
        (
            'case "$*" in *-dM*) echo "#define SIMGRID_VERSION_MAJOR 3"; echo "#define SIMGRID_VERSION_MINOR 32";;\n'
            "*) echo no library >&2; exit 1;; esac",
            "cannot be built: no library",
        ),
    ],
)
def test_why_there_is_no_driver_is_said(script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{compiler(tmp_path, script)}:/usr/bin:/bin")
    with pytest.raises(PlatformError, match=reason):
        program.build(tmp_path / "cache")
    assert not list(tmp_path.glob("cache/simgrid-driver-*"))


def test_the_bench_fails_where_it_cannot_compare_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match=f"^g\\+\\+ is not installed; {re.escape(program.REMEDY)}$"):
        bench(peer="simgrid")


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(InputError, match="simgrid"):
        bench(peer="ns3")


def test_a_job_that_never_ends_there_is_no_agreement() -> None:
    assert not differ(np.array([1.0, 2.0]), np.array([1.0, np.nan])) <= AGREEMENT
    assert differ(np.array([1.0, 2.0]), np.array([1.0, 2.5])) == 0.25
