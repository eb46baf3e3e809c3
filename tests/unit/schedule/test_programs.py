"""A program that is missing: it is found before a search begins, and known from how a run has failed."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.gpu.engine import RunState
from beamer.schedule.file import parse
from beamer.schedule.programs import check_programs, missing_program
from beamer.studies.events import TrialEnded
from tests.support.flawed_engines import Flaw, FlawedCluster
from tests.support.schedule_inputs import changed
from tests.unit.schedule.test_session import FLOORS, Commands, halving


def search_of(base: Path, **job: Any) -> Any:
    (base / "code").mkdir(exist_ok=True)
    return parse(changed(lambda d: d["job"].update(job)), base)


def test_programs_that_are_there_are_found(tmp_path: Path) -> None:
    check_programs(search_of(tmp_path), os.environ)
    check_programs(search_of(tmp_path, command=["sh", "{lr}"]), {"PATH": os.defpath})
    (tmp_path / "code" / "own").write_text("#!/bin/sh\n")
    (tmp_path / "code" / "own").chmod(0o755)
    check_programs(search_of(tmp_path, command=["./own", "{lr}"]), {})
    check_programs(search_of(tmp_path, command=["own", "{lr}"], env={"PATH": str(tmp_path / "code")}), {})


@pytest.mark.parametrize(
    ("job", "field", "expected"),
    [
        ({"python": "venv/bin/python"}, "job.python", "a file that can be executed"),
        ({"python": "no-such-python"}, "job.python", "a program on PATH, /usr/bin"),
        ({"command": ["no-such-program", "{lr}"]}, "job.command", "a program on PATH, /usr/bin"),
        ({"command": ["./data", "{lr}"]}, "job.command", "a file that can be executed"),
        ({"cwd": "elsewhere"}, "job.cwd", "a directory that exists"),
    ],
)
def test_what_is_missing_is_named_with_its_key(tmp_path: Path, job: Any, field: str, expected: str) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "data").write_text("no program")
    with pytest.raises(InputError, match=expected) as caught:
        check_programs(search_of(tmp_path, **job), {"PATH": "/usr/bin"})
    assert caught.value.field == field


def test_python_is_relative_to_the_search_file_and_its_links_are_kept(tmp_path: Path) -> None:
    (tmp_path / "venv").symlink_to("/usr")
    search = search_of(tmp_path, python="venv/bin/python3")
    assert {launch.command[0] for job in search.jobs.values() for launch in job.launches.values()} == {
        f"{tmp_path}/venv/bin/python3"
    }
    assert search.python == f"{tmp_path}/venv/bin/python3"
    assert search_of(tmp_path).python == ""


@pytest.mark.parametrize("words", [["no-such-program"], ["./data"], ["./script"]])
def test_a_run_without_its_program_is_told_from_others(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "data").write_text("not executable")
    (tmp_path / "script").write_text("no format")
    (tmp_path / "script").chmod(0o755)
    with pytest.raises(OSError, match="Errno") as caught:
        subprocess.run(words, cwd=tmp_path, check=True)
    assert missing_program(f"{words[0]} cannot be started: {caught.value}")
    assert not missing_program(f"{words[0]} cannot be started: {OSError(11, 'Resource temporarily unavailable')}")
    assert not missing_program("rank 0 has exited with code 2: [Errno 2] No such file or directory: 'data'")


def test_a_search_whose_program_is_missing_starts_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.flawed_engines.REASON", "x cannot be started: [Errno 2] No such file or directory: 'x'")
    commands = Commands(halving(), "fifo")
    flaws = {f"s/{name}": Flaw((0.5,), always=True) for name in FLOORS}
    engine = FlawedCluster(commands.engine.nodes(), commands.engine.jobs, lambda key: commands.session.target(key), flaws)
    commands.engine = engine
    session = commands.session = commands.opened()
    session.start(0.0)
    for _ in range(50):
        session.step(engine.now)
        if session.missing_program:
            break
        engine.advance(engine.next_s())
    assert session.missing_program.startswith("x cannot be started")
    failed = len(session.ledger.failures("s/a")) + len(session.ledger.failures("s/b"))
    engine.advance(engine.now + 100.0)
    session.step(engine.now)
    assert sum(len(session.ledger.failures(f"s/{name}")) for name in FLOORS) <= failed + 1, "none is started again"
    assert not [event for event in commands.journal if isinstance(event, TrialEnded)]
    assert [one.state for one in engine.report().values() if one.state is RunState.RUNNING] == []
