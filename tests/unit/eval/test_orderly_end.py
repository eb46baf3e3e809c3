"""How a program that an experiment waits for ends: by itself, and when the experiment is interrupted or it takes too long."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eval.orderly_end import completed

CHILD = """
import signal, sys, time
from pathlib import Path
def end(number, frame):
    Path(sys.argv[1], "ended").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
Path(sys.argv[1], "begun").touch()
time.sleep(60)
"""
PARENT = """
import signal, sys
from eval.orderly_end import completed
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
completed([sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""


def until(file: Path) -> None:
    deadline = time.monotonic() + 30.0
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} is not there"
        time.sleep(0.01)


def test_a_program_that_ends_says_how() -> None:
    done = completed([sys.executable, "-c", "import sys; print('no', file=sys.stderr); sys.exit(3)"])
    assert (done.returncode, done.stderr) == (3, "no\n")
    with pytest.raises(subprocess.CalledProcessError):
        done.check_returncode()


def test_a_program_ends_in_its_own_way_when_who_waits_for_it_is_told_to_end(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), CHILD]) as parent:
        until(tmp_path / "begun")
        parent.terminate()
        assert parent.wait(timeout=30) == 128 + signal.SIGTERM
    assert (tmp_path / "ended").exists()


def test_a_program_ends_in_its_own_way_when_it_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        completed([sys.executable, "-c", CHILD, str(tmp_path)], timeout_s=3.0)
    assert (tmp_path / "begun").exists() == (tmp_path / "ended").exists()
