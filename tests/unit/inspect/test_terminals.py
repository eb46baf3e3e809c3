"""The commands on a terminal: the table that follows what runs, and the question before a study is ended."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

import pytest

from beamer.testing.fabrics import star
from tests.support.checkout import ROOT
from tests.support.inspected import STUDY, get, place, put, register
from tests.support.served_controller import PATIENCE_S, Served, served

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Terminal:
    """A command on a terminal of its own."""

    process: "subprocess.Popen[bytes]"
    fd: int
    seen: str = ""

    def until(self, words: str) -> bool:
        """Read until some words have been printed since the last time; return whether they were."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        while words not in self.seen:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self.fd], [], [], left_s)[0]:
                return False
            try:
                read = os.read(self.fd, 1 << 16)
            except OSError:  # The command has ended, and all was read.
                return False
            self.seen += ESCAPES.sub("", read.decode())
        self.seen = self.seen.partition(words)[2]
        return True

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def ended(self) -> int:
        """Wait for its end, and return its exit code."""
        return self.process.wait(PATIENCE_S)


@contextmanager
def terminal(url: str, *arguments: str, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", lines, columns, 0, 0))
    command = [sys.executable, "-m", "beamer.cli", *arguments]
    environment = {**os.environ, "BEAMER_URL": url, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(star(4), tmp_path / "journal.db", policy="beamer") as started:
        register(started)
        yield started


def test_top_follows_what_runs_until_it_is_interrupted(controller: Served) -> None:
    with terminal(controller.url, "top", "--interval", "0.1", columns=60, lines=9) as shown:
        assert shown.until("1 waiting, 2 running")
        assert shown.until("0/20")
        put(controller, f"{STUDY}/trials/b/progress", {"step": 7})
        assert shown.until("7/20")
        for i in range(9):
            put(controller, f"{STUDY}/trials/t{i}", {})
            put(controller, f"{STUDY}/trials/t{i}/attempts/one", place("h3", "h4"))
        assert shown.until("11 running")
        assert shown.until("and 8 more"), "a table of three rows fits nine lines"
        os.kill(shown.process.pid, signal.SIGINT)
        assert shown.ended() == 0


def test_top_goes_on_while_the_controller_is_away(controller: Served) -> None:
    with terminal(controller.url, "top", "--interval", "0.1", columns=100) as shown:
        assert shown.until("2 running")
        controller.server.stop()
        assert shown.until("no controller that leads answers")
        assert shown.process.poll() is None


def test_a_study_is_ended_only_when_the_question_is_answered_with_yes(controller: Served) -> None:
    with terminal(controller.url, "study", "end", "mnist") as asked:
        assert asked.until("3 trials will count as killed: a, b, c; their processes are not stopped")
        assert asked.until("End it? [y/N]")
        asked.type("n\n")
        assert asked.until("nothing was changed")
        assert asked.ended() == 1
    assert get(controller, STUDY)["status"] == "active"
    with terminal(controller.url, "study", "end", "mnist") as asked:
        assert asked.until("End it? [y/N]")
        asked.type("y\n")
        assert asked.until("study mnist, run one has ended")
        assert asked.ended() == 0
    assert get(controller, STUDY)["status"] == "ended"


def test_watch_follows_a_study_until_it_ends(controller: Served) -> None:
    with terminal(controller.url, "study", "watch", "mnist", "--interval", "0.1", columns=200) as followed:
        assert followed.until("stage rung0 is sealed, 0 of 3 trials there, missing: a, b, c")
        assert followed.until("the study is active")
        put(controller, f"{STUDY}/trials/a/progress", {"step": 20})
        assert followed.until("stage rung0 is sealed, 1 of 3 trials there, missing: b, c")
        put(controller, f"{STUDY}/trials/a/status", {"status": "finished"})
        assert followed.until("trial a is finished at step 20")
        put(controller, f"{STUDY}/end")
        assert followed.until("stage rung0 is done")
        assert followed.until("the study is ended")
        assert followed.ended() == 0
