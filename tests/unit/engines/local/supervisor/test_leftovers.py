"""What is left of a job is found by the locks that it holds and by its mark, and killed without asking it."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.engines.local.supervisor.leftovers import Leftovers, find, kill, main
from beamer.engines.local.supervisor.processes import lock_holders
from beamer.engines.local.supervisor.supervisor import mark

HOLDING = "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.flock(file, 2)\nprint('held', flush=True)\nsys.stdin.read()"


def holding(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[Path, int, int]]:
    """Return a directory, a process that holds its lock but answers nothing, and a descendant that only its mark betrays."""
    name, _, value = mark(tmp_path).partition("=")
    stray = subprocess.Popen(["sleep", "1000"], env={**os.environ, name: value})
    supervisor = holding(tmp_path / "lock")
    supervisor.send_signal(signal.SIGSTOP)
    yield tmp_path, supervisor.pid, stray.pid
    for process in (supervisor, stray):
        process.kill()
        process.communicate()


def test_the_holder_of_a_lock_is_found_and_who_merely_opened_its_file_is_not(tmp_path: Path) -> None:
    path, other = tmp_path / "lock", tmp_path / "other"
    with open(path, "w") as opened:
        assert lock_holders([path, other]) == {path: [], other: []}
        fcntl.flock(opened, fcntl.LOCK_EX)
        assert lock_holders([path, other]) == {path: [os.getpid()], other: []}


def test_what_does_not_answer_is_found_and_killed(job: tuple[Path, int, int]) -> None:
    directory, supervisor, stray = job
    link = directory / "link"
    link.symlink_to(directory)
    left = Leftovers((supervisor,), (stray,))
    assert [find(path) for path in (directory, link, directory / "none")] == [left, left, Leftovers()]
    assert kill(directory, 30.0) == Leftovers()
    assert find(directory) == Leftovers()


def test_the_command_kills_when_it_is_told_to(job: tuple[Path, int, int], capsys: pytest.CaptureFixture[str]) -> None:
    directory, supervisor, stray = job
    main([str(directory)])
    assert json.loads(capsys.readouterr().out) == {"supervisors": [supervisor], "ranks": [stray]}
    main([str(directory), "--kill"])
    assert json.loads(capsys.readouterr().out) == {"supervisors": [], "ranks": []}
