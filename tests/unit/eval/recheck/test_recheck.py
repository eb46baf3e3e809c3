"""Cells that are run again: which tables have some, what is said of a difference, and how a table's age is known."""

import json
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from beamer.errors import InputError
from eval.committed import RESULTS
from eval.origin import MADE_WITH, RESTS_ON, made_with, sources_digest
from eval.recheck import age, command
from eval.recheck.base import NOTHING_GIVEN, CommittedCell, MissingInput, RecheckInputs
from eval.recheck.coverage import WHOLE, lacking
from eval.recheck.tables import NOT_RUN_AGAIN, RECHECKED, RecheckedTable
from eval.resume import ROOT, imported_sources
from eval.studies import AWAITED
from tests.support.tiers import few

NEED_INPUTS = ("gpu", "gpu-tuning", "gpu-regions", "peers")


def test_every_committed_file_is_run_again_or_named_with_its_reason() -> None:
    committed = {path.stem for path in RESULTS.glob("*.json")}
    awaited = {one.command for one in AWAITED}
    assert committed | awaited == {*RECHECKED, *NOT_RUN_AGAIN} == {*RESTS_ON}
    assert not RECHECKED.keys() & NOT_RUN_AGAIN.keys()
    assert all(NOT_RUN_AGAIN.values())
    assert set(ROOT.glob("eval/**/*.json")) == {*RESULTS.glob("*.json")}, "there are no others"


@pytest.mark.parametrize("name", RESTS_ON)
def test_what_a_table_rests_on_exists(name: str) -> None:
    assert set(RESTS_ON[name]) <= imported_sources(RESTS_ON[name]).keys()


@pytest.mark.parametrize(
    "name", few((name for name in RECHECKED if name != "peers"), RECHECKED.keys() - {"joint", "network", "emulation"})
)
def test_a_table_has_cells_with_figures_that_are_run_again(name: str) -> None:
    cells = list(RECHECKED[name].cells(RecheckInputs(ROOT, {})))
    assert cells
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.committed for cell in cells)


@pytest.mark.parametrize("name", NEED_INPUTS)
def test_a_table_says_what_it_needs(name: str) -> None:
    with pytest.raises(MissingInput, match="--"):
        RECHECKED[name].cells(NOTHING_GIVEN)


def test_figures_differ_beyond_the_digits_that_files_keep() -> None:
    committed = {
        "same": 1 / 3,
        "rounded": 0.3333333,
        "zero": 0.0,
        "never": math.inf,
        "none": math.nan,
        "other": 2.0,
        "gone": 1.0,
    }
    now = {"same": 1 / 3, "rounded": 1 / 3, "zero": 0.0, "never": math.inf, "none": math.nan, "other": 2.1, "new": 5.0}
    found = list(CommittedCell("c", committed, lambda: now).differences())
    assert [one.figure for one in found] == ["other", "gone"]
    assert str(found[0]) == "c: other is 2, now 2.1, +5.00%"


def run(monkeypatch: pytest.MonkeyPatch, now: float, *arguments: str) -> Result:
    def needs(inputs: RecheckInputs) -> list[CommittedCell]:
        raise MissingInput("--data, a folder")

    def cells(inputs: RecheckInputs) -> list[CommittedCell]:
        return [CommittedCell("a cell", {"x_s": 1.0}, lambda: {"x_s": now})]

    monkeypatch.setattr(command, "RECHECKED", {"one": RecheckedTable(cells, "the rest"), "other": RecheckedTable(needs)})
    monkeypatch.setattr(command, "older_tables", lambda: {"one": "2 files have changed since: a, b"})
    monkeypatch.setattr(command, "lacking", lambda: {"other": ["new-policy"]})
    app = typer.Typer()
    app.command()(command.recheck)
    return CliRunner().invoke(app, list(arguments))


def test_a_difference_is_printed_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, 2.0)
    assert result.exit_code == 1
    assert "one: a cell: x_s is 1, now 2, +100.00%" in result.output
    assert "1 of 1 cells differ" in result.output


def test_what_is_the_same_ends_with_0_and_names_what_was_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, 1.0)
    assert result.exit_code == 0
    assert "one: older than what it rests on: 2 files" in result.output
    assert "one: 1 cells run again; not: the rest" in result.output
    assert "other: not run again: it needs --data, a folder" in result.output
    assert "blas" in result.output


def test_older_tables_are_listed_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, 2.0, "--older")
    assert (result.exit_code, result.output.count("\n")) == (0, 2)
    assert "other: no figures of new-policy" in result.output


def test_what_was_registered_since_is_missing_and_nothing_else_is() -> None:
    has, known = {"fifo"}, ["fifo", "new-policy"]
    assert lacking({"whole": (lambda: known, known), "engines": (lambda: has, known)}) == {"engines": ["new-policy"]}


@pytest.mark.parametrize("table", WHOLE)
def test_of_what_is_registered_a_table_has_something(table: str) -> None:
    read, known = WHOLE[table]
    assert {*read()} & {*known}, "nothing was read"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tables", "other"], "also --data, a folder"),
        (["--tables", "on"], "did you mean 'one'"),
        (["--tables", "faults"], "make each fault happen"),
        (["--cells", "absent"], "none was run again"),
    ],
)
def test_nothing_run_again_is_no_success(monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    result = run(monkeypatch, 1.0, *arguments)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


def test_the_history_says_what_has_changed_since(tmp_path: Path) -> None:
    table, source, other = (tmp_path / name for name in ("table.json", "source.py", "other.py"))
    for path in (table, source, other):
        path.write_text("{}")
    assert age.changed_since(table, [source], tmp_path) is None, "there is no history"
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    assert age.changed_since(table, [source], tmp_path) == []
    source.write_text("{}  # the same")
    assert age.changed_since(table, [source], tmp_path) == []
    source.write_text("{1}")
    assert age.changed_since(table, [source, other], tmp_path) == ["source.py"]
    git(tmp_path, "commit", "-qam", "second")
    assert age.changed_since(table, [source, other], tmp_path) == ["source.py"]
    table.write_text("{2}")
    git(tmp_path, "commit", "-qam", "third")
    assert age.changed_since(table, [source, other], tmp_path) == []


def test_a_recorded_digest_says_whether_a_table_is_older(tmp_path: Path) -> None:
    def reasons(document: Mapping[str, object]) -> list[str]:
        (tmp_path / "rates.json").write_text(json.dumps(document))
        return list(age._reasons("rates", tmp_path / "rates.json", tmp_path))

    made = made_with("rates")
    assert made[MADE_WITH]["sources"] == sources_digest("rates") != sources_digest("trials")
    assert reasons(made) == []
    assert reasons({MADE_WITH: {"sources": "0"}}) == ["its sources have another digest now"]
    assert reasons({"claims": {"a": made, "b": {MADE_WITH: {"sources": "0"}}}}) == [
        "its sources have another digest now, of 1 parts"
    ]
    assert reasons({}) == ["no digest is recorded in it, and there is no history to compare with"]
    assert made_with("faults") == {}, "parts of it may be older"
