"""The supervisor's loop over real ranks, in the orders in which their events may be seen."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import RanksState
from beamer.engines.local.supervisor import control, store
from beamer.engines.local.supervisor.messages import Accepted, End, GetStatus, Kill, Launch, Status, Stop

PATIENCE_S = 30.0
# Rank 0 ends at once, after a line; rank 1 when rank 0 has been gone for a while.
COMMAND = ("sh", "-c", 'echo rank $RANK; [ "$RANK" = 0 ] || sleep 1')
# A supervisor that sees all events of a rank at once, its end before what it wrote.
ENDS_FIRST = """
import os, selectors, sys, time
from beamer.engines.local.supervisor import __main__ as program
from beamer.engines.local.supervisor.ranks import Rank

class EndsFirst(selectors.EpollSelector):
    def select(self, timeout=None):
        ready = super().select(timeout)
        if any(isinstance(key.data, Rank) for key, _ in ready):
            time.sleep(0.3)  # for the rest of what the rank does
            ready = super().select(0)
        return sorted(ready, key=lambda event: not (isinstance(event[0].data, Rank) and event[0].fd == event[0].data.pidfd))

selectors.DefaultSelector = EndsFirst
program._detach = lambda directory: os.open(os.devnull, os.O_WRONLY)
program.main([sys.argv[1], "--group", "signals"])
"""


FOREGROUND = """
import os, sys
from beamer.engines.local.supervisor import __main__ as program

program._detach = lambda directory: os.open(os.devnull, os.O_WRONLY)
program.main(sys.argv[1:])
"""
SLOW = r"((a|aa)+$)|(?P<iteration>\d+)/\d+ loss (?P<loss>\S+)"
COSTLY = r"(?P<iteration>\d+)/\d+.*loss: (?P<loss>\S+)"
# Each prints for ever: lines on which the pattern is slow, but not too slow; one line; lines that are written over.
FLOODS = {
    "costly lines": "import sys\nwhile True: print('1/1 ' * 4000)",
    "one line": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "colours": "import sys\nwhile True: sys.stdout.write('\\x1b[32m1/20\\x1b[0m\\r')",
    "backspaces": "import sys\nwhile True: sys.stdout.write('\\b' * 60 + '1/20')",
    "short lines": "import sys\nwhile True: print(1)",
}


def wait_until_listening(directory: Path, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it does not listen"
        try:
            store.connect(directory, PATIENCE_S).close()
        except (FileNotFoundError, ConnectionRefusedError):  # the socket exists before the supervisor listens
            time.sleep(0.02)
        else:
            return


@contextmanager
def supervised(directory: Path, spec: LaunchSpec) -> Iterator[None]:
    """Run a supervisor with a rank."""
    command = [sys.executable, "-c", FOREGROUND, str(directory), "--group", "signals"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until_listening(directory, process)
            launch = Launch(1, spec, (0,), ("",), 1, "127.0.0.1", 4711, 1)
            assert isinstance(control.ask(directory, launch, PATIENCE_S), Accepted)
            yield
            assert isinstance(control.ask(directory, End(), PATIENCE_S), Accepted)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def status_of(directory: Path) -> Status:
    status = control.ask(directory, GetStatus(), PATIENCE_S)
    assert isinstance(status, Status)
    return status


def end_of(directory: Path) -> Status:
    while (status := status_of(directory)).run.state.is_live:
        time.sleep(0.05)
    return status


def test_a_run_whose_pattern_is_too_slow_fails_and_says_so(tmp_path: Path) -> None:
    program = "print('1/20 loss 0.5', flush=True)\nprint('a' * 60 + '!', flush=True)\nimport time\ntime.sleep(1000)"
    with supervised(tmp_path, LaunchSpec((sys.executable, "-c", program), progress=SLOW, iterations=20)):
        status = end_of(tmp_path)
    assert status.run.state is RanksState.FAILED
    assert "the progress pattern" in status.run.exit
    assert "took longer than" in status.run.exit
    assert [report.iteration for report in status.reports] == [1.0]


def test_a_slow_pattern_on_the_last_line_of_a_program_fails_it_too(tmp_path: Path) -> None:
    with supervised(tmp_path, LaunchSpec((sys.executable, "-c", "print('a' * 60 + '!')"), progress=SLOW, iterations=20)):
        status = end_of(tmp_path)
    assert (status.run.state, "took longer than" in status.run.exit) == (RanksState.FAILED, True)


@pytest.mark.parametrize("flood", FLOODS)
def test_whatever_is_printed_requests_are_answered_between_lines(tmp_path: Path, flood: str) -> None:
    spec = LaunchSpec((sys.executable, "-c", FLOODS[flood]), progress=COSTLY, grace_s=PATIENCE_S)
    with supervised(tmp_path, spec):
        for _ in range(5):
            assert status_of(tmp_path).run.state is RanksState.RUNNING
        output = tmp_path / "output"
        assert isinstance(control.ask(tmp_path, Stop(PATIENCE_S), PATIENCE_S), Accepted)
        assert end_of(tmp_path).run.state is RanksState.STOPPED
        assert isinstance(control.ask(tmp_path, Kill(), PATIENCE_S), Accepted)
        output.unlink()


def test_all_that_a_program_printed_before_its_end_is_read(tmp_path: Path) -> None:
    program = "for i in range(1, 2001): print(f'{i}/2000 ' + '1/1 ' * 5 + 'loss: 0.5')\nprint('2000/2000 loss: 0.25', end='')"
    with supervised(tmp_path, LaunchSpec((sys.executable, "-c", program), progress=COSTLY, iterations=2001)):
        status = end_of(tmp_path)
    assert status.run.state is RanksState.FINISHED
    assert status.run.progress.done == 2000.0
    assert len(status.reports) == 2000


def test_a_refused_last_line_is_a_report_of_its_own(tmp_path: Path) -> None:
    program = "for i in range(1, 21): print('{\"iteration\": %d, \"loss\": %s}' % (i, 'n/a' if i == 20 else 0.5))"
    with supervised(tmp_path, LaunchSpec((sys.executable, "-c", program), iterations=20)):
        status = end_of(tmp_path)
    assert status.run.state is RanksState.FINISHED
    assert [report.iteration for report in status.reports] == list(range(1, 21))
    assert str(status.reports[-1].loss) == "nan"
    assert status.run.unread == ""


@pytest.mark.parametrize("where", ["stdout", "stderr"])
def test_a_run_of_which_no_line_was_read_shows_the_last_ones(tmp_path: Path, where: str) -> None:
    program = f"import sys\nfor i in range(20): print('Epoch', i, file=sys.{where})"
    with supervised(tmp_path, LaunchSpec((sys.executable, "-c", program), iterations=20)):
        status = end_of(tmp_path)
    assert status.run.unread.startswith("none of its 20 lines was read as progress: none is JSON such as")
    assert status.run.unread.endswith("\n  Epoch 18\n  Epoch 19")


def test_a_rank_whose_end_is_seen_before_its_last_lines_ends_no_other(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDS_FIRST, str(tmp_path)], stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until_listening(tmp_path, process)
            launch = Launch(1, LaunchSpec(COMMAND), (0, 1), ("", ""), 2, "127.0.0.1", 4711, 1)
            assert isinstance(control.ask(tmp_path, launch, PATIENCE_S), Accepted)
            while True:
                assert process.poll() is None, process.communicate()[1]
                status = control.ask(tmp_path, GetStatus(), PATIENCE_S)
                assert isinstance(status, Status)
                if not status.run.state.is_live:
                    break
                time.sleep(0.05)
            assert status.run.state is RanksState.FINISHED, status.run
            assert isinstance(control.ask(tmp_path, End(), PATIENCE_S), Accepted)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
