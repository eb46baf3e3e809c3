"""Journals that a newer Beamer wrote: refused as such by whatever reads them, and never cut."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from beamer.errors import InputError, NewerError
from beamer.schedule.directory import SearchDirectory
from beamer.schedule.file import load, shipped
from beamer.studies.events import EncodedEvent, StudyRegistered
from beamer.studies.journal.store import Journal, JournalSnapshot
from beamer.studies.registry import Retention
from beamer.testing.fabrics import star
from controller.commands.journal import JournalAction, check, compact, journal, repair
from controller.journal.leadership import Follower
from controller.journal.replay import recover, snapshot
from tests.support.journal_damage import DAMAGES, EVENTS
from tests.support.journal_damage import damage as damage_journal

LATER = ("Progressed@2", '{"at_s": 7.0, "trial": "s/t", "step": 1, "epoch": 1}')
UNKNOWN = ("RackMoved", '{"at_s": 7.0}')
NEWER = [pytest.param(LATER, "Progressed@2, not Progressed up to version 1", id="a version")]
NEWER += [pytest.param(UNKNOWN, "RackMoved, not one of ", id="a kind")]
FABRIC = star(2)


def _url(file: Path) -> str:
    return f"sqlite:///{file}"


def _content(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as database:
        return [line for line in database.iterdump() if '"head"' not in line]  # The table `head` counts writers.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with closing(Journal(_url(path))) as written:
        written.append(*EVENTS)
    return path


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(FABRIC.to_dict()))
    return path


def _append(file: Path, *events: EncodedEvent) -> None:
    with closing(Journal(_url(file))) as written:
        written.append_encoded(events)


def _message(what: str) -> str:
    return f"journal: got 'sqlite:///.*', expected a journal that this Beamer reads: {what}.*see docs/upgrading.md"


@pytest.mark.parametrize(("event", "what"), NEWER)
def test_newer_events_are_refused_and_not_called_damage(file: Path, fabric: Path, event: EncodedEvent, what: str) -> None:
    _append(file, event)

    def replay() -> None:
        with closing(Journal(_url(file))) as opened:
            list(opened.replay())

    def lead() -> None:
        with closing(Journal(_url(file))) as opened:
            recover(opened, FABRIC, 1.0, Retention())

    readers: list[Callable[[], object]] = [replay, lead, lambda: Follower(_url(file), FABRIC, 1.0, Retention())]
    readers += [lambda: check(_url(file)), lambda: check(_url(file), fabric), lambda: compact(_url(file), fabric)]
    before = _content(file)
    for read in readers:
        with pytest.raises(NewerError, match=_message(f"event 7 is {what}")) as raised:
            read()
        assert "repair" not in str(raised.value)
    assert _content(file) == before


@pytest.mark.parametrize(("event", "what"), NEWER)
def test_repair_does_not_cut_what_is_only_newer(file: Path, event: EncodedEvent, what: str) -> None:
    _append(file, event)
    before = _content(file)
    with pytest.raises(NewerError, match=_message(f"event 7 is {what}")):
        repair(_url(file))
    assert _content(file) == before
    assert not file.with_name("journal.db.removed.jsonl").exists()


@pytest.mark.parametrize("damage", ["the head lost", "the head set back", "the term set back"])
def test_repair_does_not_cut_newer_events_for_damage_elsewhere(file: Path, damage: str) -> None:
    _append(file, LATER)
    damage_journal(file, DAMAGES[damage])
    before = _content(file)
    with pytest.raises(NewerError, match=_message("event 7 is Progressed@2")):
        repair(_url(file))
    assert _content(file) == before
    assert not file.with_name("journal.db.removed.jsonl").exists()


def test_repair_cuts_newer_events_that_come_after_the_damage(file: Path) -> None:
    _append(file, LATER)
    damage_journal(file, DAMAGES["kind altered"])
    repair(_url(file))
    removed = [json.loads(row) for row in file.with_name("journal.db.removed.jsonl").read_text().splitlines()]
    assert (removed[-1]["kind"], removed[-1]["content"]) == LATER


def test_a_follower_refuses_what_its_newer_leader_writes(file: Path) -> None:
    follower = Follower(_url(file), FABRIC, 1.0, Retention())
    try:
        _append(file, LATER)
        with pytest.raises(NewerError, match=_message("event 7 is Progressed@2")):
            follower.follow()
    finally:
        follower.close()


@pytest.mark.parametrize(
    ("name", "what"), [("GpuLedger@2", "GpuLedger@2, not GpuLedger up to version 1"), ("Racks", "Racks, not one of studies, ")]
)
def test_a_newer_snapshot_is_refused_and_not_called_damage(file: Path, fabric: Path, name: str, what: str) -> None:
    with closing(Journal(_url(file))) as opened:
        made = snapshot(opened, FABRIC, Retention())
        state = json.loads(made.content)
        state[name] = state.pop("GpuLedger")
        opened.compact(JournalSnapshot(made.link, json.dumps(state)))
    before = _content(file)
    follows: Callable[[], object] = lambda: Follower(_url(file), FABRIC, 1.0, Retention())  # noqa: E731
    for read in (follows, lambda: check(_url(file)), lambda: check(_url(file), fabric), lambda: compact(_url(file), fabric)):
        with pytest.raises(NewerError, match=_message(f"the snapshot at event 6 holds {what}")):
            read()
    assert _content(file) == before


def test_a_newer_schema_is_refused_and_not_called_damage(file: Path) -> None:
    damage_journal(file, ["UPDATE alembic_version SET version_num = '0099'"])
    before = _content(file)
    for opened in (lambda: Journal(_url(file)), lambda: Journal(_url(file), writes=False), lambda: repair(_url(file))):
        with pytest.raises(NewerError, match=_message("its schema is .*0099")):
            opened()
    assert _content(file) == before


def test_a_schema_that_no_release_had_is_not_called_newer(file: Path) -> None:
    damage_journal(file, ["UPDATE alembic_version SET version_num = '0002'"])
    with pytest.raises(InputError, match="expected a journal of a released Beamer: its schema is 0002, not 0003") as raised:
        Journal(_url(file))
    assert not isinstance(raised.value, NewerError)


def test_a_search_is_not_continued_from_a_newer_journal(tmp_path: Path) -> None:
    search, directory = load(shipped()), tmp_path / "dir"
    with SearchDirectory(directory) as begun:
        begun.start(search, journal_holds=False)
        begun.keep()
    file = directory / "journal.db"
    with closing(Journal(_url(file))) as written:
        written.append(StudyRegistered(1.0, search.name, rungs=search.rungs))
    _append(file, LATER)
    before = _content(file)
    command = [sys.executable, "-m", "beamer.cli", "schedule", "--dir", str(directory)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(_message("event 2 is Progressed@2"), " ".join(done.stderr.split()))
    assert _content(file) == before


def test_a_controller_does_not_start_on_a_newer_journal(file: Path, fabric: Path) -> None:
    _append(file, LATER)
    before = _content(file)
    command = [sys.executable, "-m", "controller.cli", f"--fabric={fabric}", f"--journal={_url(file)}"]
    command += ["--http=127.0.0.1:0", "--openflow=127.0.0.1:0"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert re.search(_message("event 7 is Progressed@2"), " ".join(done.stderr.split()))
    assert "Traceback" not in done.stderr
    assert _content(file) == before


def test_the_command_ends_with_a_sentence(file: Path) -> None:
    _append(file, LATER)
    command = [sys.executable, "-m", "beamer.cli", "journal", "repair", _url(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a newer Beamer wrote it: upgrade this one" in done.stderr


def test_what_is_damaged_is_no_newer_beamers(file: Path) -> None:
    damage_journal(file, DAMAGES["kind altered"])
    with pytest.raises(InputError) as raised:
        journal(JournalAction.CHECK, _url(file))
    assert not isinstance(raised.value, NewerError)
