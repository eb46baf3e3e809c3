"""The directory of a search: what it continues with, which process holds it, and what is refused there, with nothing made."""

import json
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamer.cli import main
from beamer.engines.local import LaunchSpec
from beamer.engines.local.record import Record
from beamer.engines.local.states import Phase
from beamer.errors import InputError, TakenError
from beamer.gpu.engine import Placement
from beamer.gpu.events import NodesSeen
from beamer.schedule.command import schedule
from beamer.schedule.directory import SearchDirectory
from beamer.schedule.file import Search, parse
from beamer.studies.journal.store import Journal
from tests.support.commands import run_here
from tests.support.schedule_inputs import BASE, SEARCH, changed, set_request


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_here(main, "schedule", *arguments)


def test_bad_input_ends_in_one_line_with_the_file_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text(yaml.safe_dump(changed(set_request("gpus", 9))))
    done = run(str(file), "--dir", str(tmp_path / "dir"))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"beamer: {file}: job.request: got ")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"json_file": "{}/no/such/f.json"}, "--json: got '{0}/no/such/f.json', expected .*: {0}/no/such does not"),
        ({"journal": "sqlite:///{}/no/x.db"}, "--journal: got 'sqlite:///{0}/no/x.db', expected .*: {0}/no does not"),
        ({"journal": "sqlite:///:memory:"}, "--journal: got 'sqlite:///:memory:', expected a file's path"),
        ({"journal": "sqlite://"}, "--journal: got 'sqlite://', expected a file's path"),
        ({"journal": "sqlite:///file:x?mode=memory&uri=true"}, "--journal: got .*, expected a file's path"),
        ({"journal": "x.db"}, "--journal: got 'x.db', expected a database URL"),
    ],
)
def test_what_cannot_be_written_or_would_not_last_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    types = {"json_file": Path, "journal": str}
    given: dict[str, Any] = {name: types[name](value.format(tmp_path)) for name, value in arguments.items()}
    with pytest.raises(InputError, match=message.format(tmp_path)):
        schedule(directory=tmp_path / "dir", **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["f1?x", "a%41#b", "plain"])
def test_all_of_a_search_lies_in_its_directory_whatever_its_name(tmp_path: Path, name: str) -> None:
    with SearchDirectory(tmp_path / name) as directory, closing(Journal(directory.journal)) as journal:
        journal.append(NodesSeen(0.0, ()))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {"journal.db", "lock"} <= {path.name for path in (tmp_path / name).iterdir()}
    with SearchDirectory(tmp_path / name) as directory, closing(Journal(directory.journal)) as journal:
        assert list(journal.replay()) == [NodesSeen(0.0, ())]


def test_nothing_is_stopped_where_nothing_was_begun(tmp_path: Path) -> None:
    done = run("--dir", str(tmp_path / "dir"), "--stop")
    assert done.returncode == 2
    assert "a directory in which a search was started" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_place_is_held_by_one_command_at_a_time(tmp_path: Path) -> None:
    journal = f"sqlite:///{tmp_path}/j.db"
    with SearchDirectory(tmp_path / "a", journal) as first, closing(Journal(first.journal)):
        with pytest.raises(InputError, match=r"--dir: got .*no other command uses: process"), SearchDirectory(tmp_path / "a"):
            pass
        with SearchDirectory(tmp_path / "b", journal) as second, pytest.raises(TakenError, match="written by another process"):
            Journal(second.journal)
    with SearchDirectory(tmp_path / "a", journal):
        pass


def test_a_place_goes_on_with_the_search_that_was_begun_there_alone(tmp_path: Path) -> None:
    search = parse(SEARCH, BASE)
    with SearchDirectory(tmp_path) as directory:
        assert directory.started_search() is None
        with pytest.raises(InputError, match=r"--dir: got .*the journal holds"):
            directory.start(search, journal_holds=True)
        directory.start(search, journal_holds=False)
        assert directory.started_search() == search
        moved = parse(changed(lambda d: d["nodes"][0].update(gpus=3)), BASE)
        directory.start(moved, journal_holds=True)
        assert directory.started_search() == moved
        patient = parse(changed(lambda d: (d["nodes"][0].update(gpus=3), d.update(retries=9, silent_s=60))), BASE)
        directory.start(patient, journal_holds=True)
        assert directory.started_search() == patient, "what it bears may change"
        with pytest.raises(InputError, match=r"^job: got .*was started"):
            directory.start(parse(changed(set_request("epoch", 5)), BASE), journal_holds=True)
        (tmp_path / "jobs" / "one").mkdir(parents=True)
        with pytest.raises(InputError, match=r"--journal: got .*the journal of the search"):
            directory.start(moved, journal_holds=False)


def test_a_search_that_was_started_before_it_could_be_limited_goes_on(tmp_path: Path) -> None:
    with SearchDirectory(tmp_path) as directory:
        directory.start(parse(SEARCH, BASE), journal_holds=False)
        known = json.loads((tmp_path / "search").read_text())
        for key in ("retries", "timeout_s", "silent_s", "collective_timeout_s"):
            del known["content"][key]
        (tmp_path / "search").write_text(json.dumps(known))
        assert directory.started_search() == parse(SEARCH, BASE)
        directory.start(parse(SEARCH, BASE), journal_holds=True)


def recorded(directory: Path, node: str, nodes: tuple[str, ...]) -> Path:
    """Write down a job as the engine does that runs on a node and may have supervisors on others."""
    path = directory / "jobs" / "one" / "job"
    path.parent.mkdir(parents=True)
    Record("s/slow", LaunchSpec(("true",)), Placement(((node, 0),)), nodes, Phase.PARKED).save(path)
    return path


def test_nodes_with_supervisors_of_a_search_stay_where_they_are(tmp_path: Path) -> None:
    with SearchDirectory(tmp_path) as directory:
        directory.start(parse(SEARCH, BASE), journal_holds=False)
        recorded(tmp_path, "n", ("n",))
        renamed = parse(changed(lambda d: d["nodes"][0].update(name="m")), BASE)
        with pytest.raises(InputError, match=r"^nodes: got \['m'\], expected 'n' among them.*s/slow.*--stop without"):
            directory.start(renamed, journal_holds=True)
        moved = parse(changed(lambda d: d["nodes"][0].update(root="/elsewhere")), BASE)
        with pytest.raises(InputError, match=r"^nodes\.n\.root: got '/elsewhere', expected ''.*--stop without"):
            directory.start(moved, journal_holds=True)
        assert directory.started_search() == parse(SEARCH, BASE), "what --stop goes by"
        directory.start(parse(changed(lambda d: d["nodes"].append({"name": "m", "gpus": 1})), BASE), journal_holds=True)


def test_nodes_that_no_supervisor_is_left_on_may_go(tmp_path: Path) -> None:
    with SearchDirectory(tmp_path) as directory:
        directory.start(parse(SEARCH, BASE), journal_holds=False)
        path = recorded(tmp_path, "n", ("n",))
        assert parse(SEARCH, BASE).engine.retire(tmp_path / "jobs") == [], "none answers: none is there"
        assert path.exists(), "what is known of the job stays"
        directory.start(parse(changed(lambda d: d["nodes"][0].update(name="m")), BASE), journal_holds=True)


@pytest.mark.parametrize("content", ["{}", "[1]", "{", '{"spec": {}}'])
def test_a_job_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    with SearchDirectory(tmp_path) as directory:
        directory.start(parse(SEARCH, BASE), journal_holds=False)
        path = recorded(tmp_path, "n", ())
        path.write_text(content)
        with pytest.raises(InputError, match=f"^--dir: got '{path}', expected what this command has written there of a job"):
            directory.start(parse(SEARCH, BASE), journal_holds=True)


@pytest.mark.parametrize(("name", "expected"), [("jobs", "a directory"), ("checkpoints", "a directory"), ("lock", "a file")])
def test_what_is_in_the_way_in_a_place_is_named(tmp_path: Path, name: str, expected: str) -> None:
    if name == "lock":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    with (
        pytest.raises(InputError, match=f"^--dir: got '{tmp_path / name}', expected {expected} that can be written"),
        SearchDirectory(tmp_path) as directory,
    ):
        directory.start(parse(SEARCH, BASE), journal_holds=False)


def test_a_truncated_search_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "search").write_text('{"base": "/base", "cont')
    for stop in (False, True):
        with pytest.raises(InputError, match=f"--dir: got '{tmp_path / 'search'}', expected what this command has written"):
            schedule(directory=tmp_path, stop=stop)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("content", ["[1]", "{}", "{", '{"base": 1, "content": {}}'])
def test_a_place_in_which_others_have_written_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "search").write_text(content)
    with SearchDirectory(tmp_path) as directory, pytest.raises(InputError, match=r"--dir: got .*what this command has written"):
        directory.started_search()


def refused(path: Path, keep: bool = False, other: str = "") -> None:
    """Begin a search in a directory, and have it refused."""
    with suppress(InputError), SearchDirectory(path) as directory, closing(Journal(directory.journal)):
        directory.start(parse(SEARCH, BASE), journal_holds=False)
        if keep:
            directory.keep()
        if other:
            (path / other).write_text("")
        raise InputError("controller", "refused", "one that serves the search")


def test_a_search_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    refused(tmp_path / "runs" / "mine")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs").mkdir()
    refused(tmp_path / "runs" / "mine")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("other", ["notes", "jobs/one"])
def test_what_runs_or_is_not_its_own_stays(tmp_path: Path, other: str) -> None:
    refused(tmp_path / "mine", keep=True)
    assert (tmp_path / "mine" / "search").exists()
    refused(tmp_path / "mine")
    assert (tmp_path / "mine" / "search").exists(), "it was there before"
    refused(tmp_path / "other", other=other)
    assert (tmp_path / "other" / other).exists()


def test_configurations_keep_the_names_that_they_were_started_with(tmp_path: Path) -> None:
    search = parse(changed(lambda d: d.update(configurations=None, grid={"lr": ["a/b", 0.1], "batch": [8]})), BASE)
    names = [trial.name for trial in search.trials]
    with SearchDirectory(tmp_path / "dir") as directory:
        directory.start(search, False)
        written = json.loads((tmp_path / "dir" / "search").read_text())
        assert written.pop("names") == names
        (tmp_path / "dir" / "search").write_text(json.dumps(written))  # as 0.1.0 wrote it
        first = ["lr-a-b_batch-8", "lr-0.1_batch-8"]
        assert first != names
        assert [trial.name for trial in directory.named(search).trials] == first
        directory.start(directory.named(search), True)
        known = directory.started_search()
        assert known is not None
        assert [trial.name for trial in known.trials] == first
        other = parse(changed(lambda d: d.update(configurations=None, grid={"lr": [0.1], "batch": [8]})), BASE)
        assert directory.named(other) is other


def test_a_search_that_0_1_0_began_with_the_freezer_goes_on_with_the_best_group(tmp_path: Path) -> None:
    search = parse(SEARCH, BASE)
    with SearchDirectory(tmp_path / "dir") as directory:
        directory.start(search, False)
        file = tmp_path / "dir" / "search"
        written = json.loads(file.read_text())
        file.write_text(json.dumps({**written, "content": {**written["content"], "group": "cgroup1"}}))
        known = directory.started_search()
        assert known is not None
        assert known.content["group"] == "auto"
        directory.start(search, True)


def test_a_search_of_0_1_0_gives_programs_the_numbers_that_it_began_with(tmp_path: Path) -> None:
    def with_values(*values: object) -> Search:
        return parse(changed(lambda d: d.update(configurations=None, grid={"lr": list(values), "batch": [8]})), BASE)

    with SearchDirectory(tmp_path / "dir") as directory:
        directory.start(with_values(0.0001, 0.1, True), False)
        path = tmp_path / "dir" / "search"
        written = json.loads(path.read_text())
        del written["names"]
        written["content"]["timeout_s"] = 1e9  # This field had no bound then.
        path.write_text(json.dumps(written))
        again = directory.named(with_values("1.0e-4", "0.10", "true"))
        assert [trial.values["lr"] for trial in again.trials] == ["0.0001", "0.1", "True"]
        directory.start(again, True)
        other = with_values("1.0e-4", "0.10", "false")
        with pytest.raises(InputError, match="grid"):
            directory.start(directory.named(other), True)
