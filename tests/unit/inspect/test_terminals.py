"""The commands on a terminal: the table that follows what runs, and the question before a study is ended."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.testing.fabrics import star
from tests.support.checkout import ROOT
from tests.support.inspected import STUDY, get, place, put, register
from tests.support.served_controller import Served, served
from tests.support.terminals import Terminal


def terminal(url: str, *arguments: str, columns: int = 80, lines: int = 24) -> Terminal:
    environment = {**os.environ, "BEAMER_URL": url, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    return Terminal([sys.executable, "-m", "beamer.cli", *arguments], environment, columns, lines)


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
        asked.press("n\n")
        assert asked.until("nothing was changed")
        assert asked.ended() == 1
    assert get(controller, STUDY)["status"] == "active"
    with terminal(controller.url, "study", "end", "mnist") as asked:
        assert asked.until("End it? [y/N]")
        asked.press("y\n")
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
