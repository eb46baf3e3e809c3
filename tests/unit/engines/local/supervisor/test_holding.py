"""Where a supervisor holds ranks that were started ahead: programs that print nothing, and files that stand for devices."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import RanksState
from beamer.engines.local.supervisor import control
from beamer.engines.local.supervisor.messages import Accepted, End, Kill, Launch, Resume, Suspend
from tests.unit.engines.local.supervisor.test_supervisor import PATIENCE_S, status_of, wait_until_listening

FOREGROUND = """
import os, sys
from beamer.engines.local.supervisor import __main__ as program
from beamer.engines.local.supervisor import devices, supervisor

program._detach = lambda directory: os.open(os.devnull, os.O_WRONLY)
supervisor.HOLD_S = float(os.environ["HOLD_S"])
supervisor.uses_gpu = lambda processes: devices.uses_gpu(processes, (os.environ["DEVICES"],))
program.main(sys.argv[1:])
"""
OPENS = "import pathlib, time\nfile = open({device!r})\ntime.sleep(1)\npathlib.Path({used!r}).touch()\ntime.sleep(1000)"
SILENT = "import time; time.sleep(1000)"


@contextmanager
def holding(directory: Path, program: str, hold_s: float = 1000.0, park_after_s: float | None = None) -> Iterator[None]:
    """Run a supervisor with a rank that is to be held. hold_s: how long it may print nothing."""
    command = [sys.executable, "-c", FOREGROUND, str(directory), "--group", "signals"]
    environment = {**os.environ, "HOLD_S": str(hold_s), "DEVICES": str(directory / "gpu")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            wait_until_listening(directory, process)
            spec = LaunchSpec((sys.executable, "-c", program))
            launch = Launch(1, spec, (0,), ("",), 1, "127.0.0.1", 4711, 1, holds=True, park_after_s=park_after_s)
            assert isinstance(control.ask(directory, launch, PATIENCE_S), Accepted)
            yield
            assert isinstance(control.ask(directory, End(), PATIENCE_S), Accepted)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def becomes(directory: Path, state: RanksState) -> None:
    while (run := status_of(directory).run).state is not state:
        assert run.state.is_live, run


def test_a_rank_is_held_when_it_opens_a_device_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "gpu0").touch()
    used = tmp_path / "used"
    with holding(tmp_path, OPENS.format(device=str(tmp_path / "gpu0"), used=str(used))):
        becomes(tmp_path, RanksState.SUSPENDED)
        assert status_of(tmp_path).run.held
        assert not used.exists()
        assert isinstance(control.ask(tmp_path, Suspend(PATIENCE_S), PATIENCE_S), Accepted)
        assert isinstance(control.ask(tmp_path, Resume(PATIENCE_S), PATIENCE_S), Accepted)
        while not used.exists():
            assert status_of(tmp_path).run.state is RanksState.RUNNING
        assert not status_of(tmp_path).run.held


def test_a_rank_that_says_nothing_is_held_all_the_same(tmp_path: Path) -> None:
    with holding(tmp_path, SILENT, hold_s=0.2):
        becomes(tmp_path, RanksState.SUSPENDED)
        run = status_of(tmp_path).run
        assert (run.ran_s, run.held) == (0.0, True)


def test_what_was_before_a_rank_is_let_go_is_no_time_on_a_gpu(tmp_path: Path) -> None:
    with holding(tmp_path, SILENT):
        begun_s = status_of(tmp_path).now_s
        while (status := status_of(tmp_path)).run.ran_s < 0.5:
            assert status.run.state is RanksState.RUNNING
        assert isinstance(control.ask(tmp_path, Resume(PATIENCE_S), PATIENCE_S), Accepted)
        status = status_of(tmp_path)
        assert max(status.run.ran_s, status.run.quiet_s) < status.now_s - begun_s - 0.4


def test_a_rank_that_is_killed_on_its_way_has_had_no_time_on_a_gpu(tmp_path: Path) -> None:
    with holding(tmp_path, SILENT):
        while status_of(tmp_path).run.ran_s < 0.3:
            pass
        assert isinstance(control.ask(tmp_path, Kill(), PATIENCE_S), Accepted)
        run = status_of(tmp_path).run
        assert (run.state, run.ran_s, run.quiet_s, run.held) == (RanksState.STOPPED, 0.0, 0.0, False)


def test_a_rank_that_is_held_for_as_long_as_it_may_is_ended_without_a_word(tmp_path: Path) -> None:
    with holding(tmp_path, SILENT, hold_s=0.0, park_after_s=0.2):
        becomes(tmp_path, RanksState.SUSPENDED)
        while (run := status_of(tmp_path).run).state is not RanksState.STOPPED:
            assert run.state is RanksState.SUSPENDED
        assert (run.note, run.exit) == ("", "")
