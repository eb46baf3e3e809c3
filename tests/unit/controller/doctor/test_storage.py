"""What is said of a journal and of compiled kernels."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.doctor.findings import CheckVerdict, Finding
from beamer.errors import InputError, NewerError, PlatformError, SilentError
from beamer.studies.journal.store import Journal
from controller.doctor.storage import JournalFacts, KernelCache, judge_journal, judge_kernels, read_journal, read_kernels

URL = "sqlite:////var/lib/beamer/journal.db"


def judged(facts: JournalFacts) -> Finding:
    (found,) = judge_journal(facts)
    return found


def test_a_journal_is_opened_and_not_changed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    absent = read_journal(url)
    assert absent == JournalFacts(url, exists=False)
    assert list(tmp_path.iterdir()) == []
    Journal(url).close()
    before = (tmp_path / "journal.db").read_bytes()
    assert read_journal(url) == JournalFacts(url)
    assert (tmp_path / "journal.db").read_bytes() == before
    assert [judged(one).verdict for one in (absent, read_journal(url))] == [CheckVerdict.OK, CheckVerdict.OK]


def test_a_directory_that_is_absent_and_another_database_are_named(tmp_path: Path) -> None:
    absent = judged(read_journal(f"sqlite:///{tmp_path}/absent/journal.db"))
    assert (absent.verdict, absent.fix) == (CheckVerdict.FAULT, f"install -d -o beamer {tmp_path}/absent")
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (c)").connection.close()
    assert judged(read_journal(f"sqlite:///{tmp_path}/other.db")).verdict is CheckVerdict.WARNING
    (tmp_path / "text.db").write_text("no database" * 100)
    assert judged(read_journal(f"sqlite:///{tmp_path}/text.db")).verdict in (CheckVerdict.WARNING, CheckVerdict.FAULT)
    assert judged(read_journal("mysql://h/d")).verdict is CheckVerdict.WARNING


@pytest.mark.parametrize(
    ("facts", "verdict", "fix"),
    [
        (JournalFacts(URL, True, Path("/var/lib/beamer")), CheckVerdict.FAULT, "chown beamer /var/lib/beamer"),
        (JournalFacts(URL, error=NewerError("schema", "9", "3")), CheckVerdict.FAULT, "install the newer Beamer"),
        (JournalFacts(URL, error=InputError("journal", URL, "a journal")), CheckVerdict.WARNING, f"beamer journal check {URL}"),
        (JournalFacts(URL, error=SilentError("it is silent", "start it")), CheckVerdict.FAULT, "start it"),
        (JournalFacts(URL, error=PlatformError("no driver", "install it")), CheckVerdict.FAULT, "install it"),
    ],
)
def test_each_obstacle_has_its_fix(facts: JournalFacts, verdict: CheckVerdict, fix: str) -> None:
    found = judged(facts)
    assert (found.verdict, found.fix) == (verdict, fix if "Beamer" not in fix else found.fix)
    assert fix in found.fix


def test_compiled_kernels_are_counted_where_this_user_keeps_them() -> None:
    found = read_kernels()
    assert found.path is not None
    assert found.problem == ""
    assert found.user


KERNELS = KernelCache("beamer", Path("/cache"), 90)


@pytest.mark.parametrize(
    ("kernels", "verdict", "said"),
    [
        (KERNELS, CheckVerdict.OK, "90 compiled kernels are in /cache"),
        (replace(KERNELS, compiled=0), CheckVerdict.WARNING, "the first start of user beamer takes a minute"),
        (replace(KERNELS, compiled=0, is_writable=False), CheckVerdict.FAULT, "user beamer may not write there"),
        (KernelCache("beamer", problem="no locator"), CheckVerdict.FAULT, "no locator"),
    ],
)
def test_kernels_that_are_not_kept_are_a_fault(kernels: KernelCache, verdict: CheckVerdict, said: str) -> None:
    (found,) = judge_kernels(kernels)
    assert found.verdict is verdict
    assert said in found.found
    assert ("NUMBA_CACHE_DIR" in found.fix) == (verdict is CheckVerdict.FAULT)
