"""`beamer schedule` whose supervisors do not answer, or whose policy never returns: what is left is named, and can be ended."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import beamer.schedule.command as schedule_command
from beamer.cli import main
from beamer.engines.local import LaunchSpec, LocalCluster, LocalNode
from beamer.engines.local import retire as retiring
from beamer.engines.local.record import Record, load
from beamer.engines.local.states import Phase
from beamer.engines.local.supervisor import control
from beamer.gpu.engine import Placement
from tests.processes.site import of_directory, read, until
from tests.processes.test_schedule import TIMEOUT_S, ScheduleCommand, command, packages
from tests.support.commands import run_here
from tests.support.documented import register

__all__ = ["command", "packages"]  # the fixtures

SPINNING = """
from pathlib import Path

from beamer.gpu.policies.fifo import Fifo

class Spinning(Fifo):
    name = "spinning"

    def allocate(self, state, cluster, jobs, now, rng):
        if any(job.reports for job in jobs):
            Path(__file__).with_suffix(".spins").touch()
            while True:
                pass
        return super().allocate(state, cluster, jobs, now, rng)
"""


def supervisors(command: ScheduleCommand) -> list[int]:
    return [pid for pid in command.jobs() if b"beamer.engines.local.supervisor" in read(pid, "cmdline")]


def stopped(command: ScheduleCommand, *options: str) -> "subprocess.CompletedProcess[str]":
    return run_here(main, "schedule", "--dir", str(command.directory), "--policy", "fifo", *options)


def test_what_does_not_answer_is_named_and_killed_on_request(command: ScheduleCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_command, "PARK_TIMEOUT_S", 0.5)
    command.search(40, grace_s=0.5)
    command.hold(20)
    process = command.start("fifo")
    until(lambda: command.steps("a") and command.steps("b"), "two to have started")
    process.kill()
    process.wait()
    silent = supervisors(command)
    for pid in silent:
        os.kill(pid, signal.SIGSTOP)
    done = stopped(command, "--stop")
    assert done.returncode == 1
    for name, pid in zip("ab", sorted(silent), strict=True):
        line = re.search(rf"left running: s/{name} on here: supervisor (\d+); processes (\d+)", done.stderr)
        assert line, done.stderr
        assert int(line[1]) in silent, pid
        assert b"beamer.testing.trainer" in read(int(line[2]), "cmdline")
    assert f"to end it: beamer schedule --dir {command.directory} --kill\n" in done.stderr
    assert set(silent) < set(command.jobs())
    done = stopped(command, "--kill")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("killed: ")] == ["killed: s/a", "killed: s/b"]
    until(lambda: not command.jobs(), "all to have ended")
    command.release()
    assert command.run("fifo").returncode == 0
    assert {row["status"] for row in command.figures().values()} == {"finished"}


def test_a_supervisor_without_ranks_that_does_not_answer_is_left_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retiring, "END_S", 0.5)
    path = tmp_path / "s_a-1" / "job"
    path.parent.mkdir()
    Record("s/a", LaunchSpec(("true",)), Placement((("here", 0),)), ("here",), Phase.PARKED).save(path)
    cluster = LocalCluster((LocalNode("here", 1),))
    subprocess.run(control.supervisor_command(str(path.parent / "here"), "signals", sys.executable), check=True)
    (pid,) = of_directory(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    (left,) = retiring.retire(cluster, tmp_path)
    assert (left.processes.pids, left.node) == ((pid,), "here")
    assert "TimeoutError" in left.problem
    assert retiring.retire(cluster, tmp_path, kill=True) == []
    until(lambda: not of_directory(tmp_path), "it to have ended")
    record = load(path)
    assert record is not None
    assert record.nodes == ()


def is_ended_by(process: "subprocess.Popen[str]", number: signal.Signals) -> bool:
    """Send a signal, as one that comes while the same one is pending is lost, and say whether the process has ended."""
    process.send_signal(number)
    return process.poll() is not None


def test_the_third_signal_ends_a_command_whose_policy_never_returns(command: ScheduleCommand, packages: Path) -> None:
    (packages / "spinning.py").write_text(SPINNING)
    register("spinning", "beamer.gpu_policies", {"spinning": "spinning:Spinning"}, packages)
    command.search(100_000, grace_s=5.0)
    process = command.start("spinning")
    until(lambda: command.steps("a") and command.steps("b"), "two to have started")
    until((packages / "spinning.spins").exists, "the policy to be asked again")
    for _ in range(3):
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    until(partial(is_ended_by, process, signal.SIGTERM), "the third signal to end it", max_pause_s=0.2)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended by the third signal" in output
    for name in "ab":
        assert re.search(rf"left running: s/{name} on here: supervisor \d+; processes \d+", output), output
    assert f"to end it: beamer schedule --dir {command.directory} --stop, or --kill where that does not suffice" in output
    assert len(command.jobs()) >= len("ab"), "they run on"
    done = stopped(command, "--stop")
    assert done.returncode == 0, done.stderr
    assert command.jobs() == []
