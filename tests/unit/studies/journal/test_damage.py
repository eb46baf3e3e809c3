"""Journals that were damaged, that two want to write, that are compacted: what is said, and what is kept."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from beamer.cli import main
from beamer.errors import InputError, PlatformError, TakenError
from beamer.studies.events import StudyRegistered
from beamer.studies.journal.store import MAX_TERM, Journal, JournalSnapshot
from beamer.testing.fabrics import star
from controller.commands.journal import JournalAction, check, journal, repair
from controller.journal.replay import recover
from controller.limits import Limits
from tests.support.commands import run_here
from tests.support.journal_damage import BEYOND_REPAIR, DAMAGES, EVENTS
from tests.support.journal_damage import damage as damage_journal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with closing(Journal(_url(path))) as journal:
        journal.append(*EVENTS[:2])
        journal.append(*EVENTS[2:])
    return path


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


def _read(path: Path) -> list[object]:
    with closing(Journal(_url(path))) as journal:
        return list(journal.replay())


WHOLE = {"the head lost", "the head set back", "one added", "the term set back", "the term below zero"}
"""The damages that no event is lost by."""

ROWS_LEFT = {"an event lost": 5, "the first lost": 5, "the last lost": 5, "all lost": 0, "one added": 7}
"""By damage, where that is not all of them."""


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_journal_is_named_with_a_remedy(file: Path, damage: Sequence[str]) -> None:
    damage_journal(file, damage)
    with pytest.raises(InputError, match="beamer journal"):
        _read(file)


@pytest.mark.parametrize("name", sorted(DAMAGES.keys() - BEYOND_REPAIR))
def test_repair_keeps_what_comes_before_the_damage(file: Path, name: str) -> None:
    damage_journal(file, DAMAGES[name])
    with pytest.raises(InputError, match="beamer journal"):
        check(_url(file))
    repair(_url(file))
    kept = _read(file)
    assert kept == list(EVENTS[: len(kept)])
    check(_url(file))
    assert (len(kept) == len(EVENTS)) == (name in WHOLE)
    removed = [json.loads(row)["number"] for row in file.with_name("journal.db.removed.jsonl").read_text().splitlines()]
    assert len(kept) + len(removed) == ROWS_LEFT.get(name, 6)


@pytest.mark.parametrize("name", sorted(BEYOND_REPAIR))
def test_what_is_beyond_repair_is_left_as_it_is(file: Path, name: str) -> None:
    damage_journal(file, DAMAGES[name])
    with closing(sqlite3.connect(file)) as database:
        before = list(database.iterdump())
    with pytest.raises(InputError):
        repair(_url(file))
    with closing(sqlite3.connect(file)) as database:
        assert list(database.iterdump()) == before


@pytest.mark.parametrize("name", sorted(DAMAGES.keys() - BEYOND_REPAIR))
def test_terms_never_go_back_by_a_repair(file: Path, name: str) -> None:
    for _ in range(5):
        with closing(Journal(_url(file))) as journal:
            before = journal.term
    damage_journal(file, DAMAGES[name])
    repair(_url(file))
    with closing(Journal(_url(file))) as journal:
        assert journal.term > before


def test_a_term_that_was_heard_of_is_kept(file: Path) -> None:
    with closing(Journal(_url(file))) as journal:
        own = journal.term
        journal.raise_term(57)
        assert journal.term == 57
        journal.raise_term(3)
        assert journal.term == 57 > own
        journal.append(EVENTS[0])
        with pytest.raises(InputError, match="term: got"):
            journal.raise_term(MAX_TERM + 1)
    check(_url(file))
    with closing(Journal(_url(file))) as journal:
        assert journal.term == 58
        assert len(list(journal.replay())) == len(EVENTS) + 1


@pytest.mark.parametrize("kind", ["a symbolic link", "a link to the folder", "a hard link"])
def test_a_journal_has_one_writer_by_whatever_name(file: Path, tmp_path: Path, kind: str) -> None:
    other = tmp_path / "elsewhere" / "other.db"
    if kind == "a link to the folder":
        other.parent.symlink_to(tmp_path)
        other = other.with_name(file.name)
    else:
        other.parent.mkdir()
        (other.symlink_to if kind == "a symbolic link" else other.hardlink_to)(file)
    with closing(Journal(_url(file))) as first:
        with pytest.raises(TakenError, match=rf"written by another process \(process {os.getpid()}\); stop that one"):
            Journal(_url(other))
        first.append(EVENTS[0])
    with closing(Journal(_url(other))) as second, pytest.raises(TakenError):
        Journal(_url(file))
    assert second.term == first.term + 1


def test_what_is_not_damaged_is_not_repaired(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    repair(_url(file))
    assert "nothing was changed" in capfd.readouterr().out
    assert not file.with_name("journal.db.removed.jsonl").exists()
    assert _read(file) == list(EVENTS)


def test_what_was_removed_before_is_not_written_over(file: Path) -> None:
    file.with_name("journal.db.removed.jsonl").write_text("precious")
    damage_journal(file, DAMAGES["an event lost"])
    with pytest.raises(InputError, match="--removed: got"):
        repair(_url(file))
    assert file.with_name("journal.db.removed.jsonl").read_text() == "precious"


@pytest.mark.parametrize(
    ("limits", "kept"), [(None, Limits().past_runs), ("past_runs: 3", 3)], ids=["the defaults", "of the controller's file"]
)
def test_what_is_compacted_keeps_as_much_as_the_controller_does(tmp_path: Path, limits: str | None, kept: int) -> None:
    file, fabric, given = tmp_path / "journal.db", tmp_path / "fabric.json", tmp_path / "limits.yaml"
    fabric.write_text(json.dumps(star(2).to_dict()))
    given.write_text(limits or "{}")
    with closing(Journal(_url(file))) as written:
        written.append(*(StudyRegistered(float(i), "s", f"{i}") for i in range(Limits().past_runs + 5)))
    journal(JournalAction.COMPACT, _url(file), fabric, limits=given if limits else None)
    with closing(Journal(_url(file), writes=False)) as compacted:
        recovered = recover(compacted, star(2), 1.0, Limits().kept)
    assert (recovered.growth.events, len(recovered.tracker.past_runs("s"))) == (0, kept)


@pytest.mark.parametrize(
    ("action", "option"),
    [("check", "removed"), ("repair", "fabric"), ("repair", "limits"), ("compact", "removed")],
)
def test_an_option_of_another_action_is_refused(file: Path, tmp_path: Path, action: str, option: str) -> None:
    with pytest.raises(InputError, match=f"--{option}: got .*expected no such option beside {action}"):
        journal(JournalAction(action), _url(file), **{option: tmp_path / "file"})


@pytest.mark.parametrize("action", ["check", "compact"])
def test_limits_say_nothing_without_the_network(file: Path, tmp_path: Path, action: str) -> None:
    with pytest.raises(InputError, match="--fabric: got None"):
        journal(JournalAction(action), _url(file), limits=tmp_path / "limits.yaml")


def test_the_command_tells_and_its_exit_code_too(file: Path) -> None:
    def run() -> "subprocess.CompletedProcess[str]":
        return run_here(main, "journal", "check", _url(file))

    sound = run()
    assert (sound.returncode, sound.stdout) == (0, "6 events, the last one of 6.000 s\n"), sound.stderr
    damage_journal(file, DAMAGES["kind altered"])
    damaged = run()
    assert damaged.returncode == 2
    assert "event 3 is not as it was written" in damaged.stderr


def test_a_file_that_is_cut_off_is_named(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises((InputError, PlatformError)):
        _read(file)


def test_a_journal_has_one_writer(file: Path) -> None:
    with closing(Journal(_url(file))) as first:
        with pytest.raises(PlatformError, match=r"written by another process \(process \d+\); stop that one"):
            Journal(_url(file))
        with closing(Journal(_url(file), writes=False)) as reader:
            assert list(reader.replay()) == list(EVENTS)
            first.append(EVENTS[-1])
            assert len(list(reader.replay())) == len(EVENTS) + 1
    with closing(Journal(_url(file))) as second:
        second.append(EVENTS[-1])


def test_a_snapshot_takes_the_place_of_events(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamer.studies.journal.store._DELETED_AT_ONCE", 2)
    with closing(Journal(_url(file))) as journal:
        *_, (link, _) = ((link, event) for link, event in journal.entries() if link.number <= 4)
        journal.compact(JournalSnapshot(link, "what they led to"))
        assert journal.snapshot() == JournalSnapshot(link, "what they led to")
        assert list(journal.replay()) == list(EVENTS[4:])
        journal.append(EVENTS[0])
    assert _read(file) == [*EVENTS[4:], EVENTS[0]]
    with closing(Journal(_url(file))) as journal:
        head = journal.head
        assert head.number == 7
        journal.compact(JournalSnapshot(head, "all of it"))
        assert list(journal.replay()) == []
        journal.append(EVENTS[0])
        assert journal.head.number == 8
    damage_journal(file, ["UPDATE snapshots SET content = 'none of it'"])
    with pytest.raises(InputError, match="the snapshot at event 7 is not as it was written"):
        _read(file)
