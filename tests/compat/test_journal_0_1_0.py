"""Journals that programs of 0.1.0 wrote: read, led to the same state, and gone on with. `recorded/0.1.0/journals/README.md`."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from beamer.client import Client
from beamer.engines.local.supervisor.ports import kept_port
from beamer.gpu.ledger import GpuLedger
from beamer.joint.convergence import converged_step
from beamer.network.fabric import Fabric
from beamer.network.ledger import NetworkLedger
from beamer.studies import events
from beamer.studies.events import Event, StudyRegistered, TrialEnded, decode, encode
from beamer.studies.journal.store import Journal
from beamer.studies.model import TrialStatus
from beamer.studies.tracker import Tracker
from beamer.studies.versions import present_parts
from controller.commands.journal import check, compact, repair
from controller.journal.leadership import Follower
from controller.journal.replay import PARTS, recover
from controller.limits import Limits
from controller.liveness.leases import LEASES, Leases
from tests.processes.site import until
from tests.support import plain_http
from tests.support.tiers import few

RECORDED = Path(__file__).parent / "recorded" / "0.1.0" / "journals"
CONTROLLERS = ("network", "shared", "compacted")
KINDS = [json.loads(line) for line in (RECORDED / "kinds.jsonl").read_text().splitlines()]
CHANGED_FIELDS: Mapping[str, frozenset[str]] = {}
"""By kind, the fields that a version after 0.1.0's has given another meaning or another type."""
RENAMED_KEYS = {"set_aside": "quarantined"}
"""The keys of answers that a version after 0.1.0's has renamed."""
ADDED_KEYS = frozenset(
    ("members", "trial_counts", "decision", "sent_bytes", "counted_s", "connected", "owned_by_agents", "held_bytes")
)
"""What answers have had since 0.1.0."""

KINDS_OF_0_1_0 = 27
LIMITS = Limits()


class Recording:
    """A journal of 0.1.0 in a database of its own, and what 0.1.0 said of it."""

    def __init__(self, name: str, directory: Path) -> None:
        self.file = directory / f"{name}.db"
        with closing(sqlite3.connect(self.file)) as database:
            database.executescript((RECORDED / f"{name}.sql").read_text())
        self.url = f"sqlite:///{self.file}"
        self.fabric_file = RECORDED / f"{name}.fabric.json"

    @property
    def fabric(self) -> Fabric:
        return Fabric.from_dict(json.loads(self.fabric_file.read_text()))

    @property
    def content(self) -> list[str]:
        with closing(sqlite3.connect(self.file)) as database:
            return list(database.iterdump())


@pytest.fixture(params=CONTROLLERS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def recording(name: str, tmp_path: Path) -> Recording:
    return Recording(name, tmp_path)


@pytest.fixture
def said(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize("stored", KINDS, ids=[f"{number}-{stored['kind']}" for number, stored in enumerate(KINDS)])
def test_every_kind_of_event_reads_as_it_was_written(stored: Mapping[str, Any]) -> None:
    event = decode(stored["kind"], stored["content"])
    assert type(event).__name__ == stored["kind"]
    for field, value in stored["values"].items():
        if field not in CHANGED_FIELDS.get(stored["kind"], ()):
            assert repr(getattr(event, field)) == value
    if event.versioned.version == 1:
        assert encode(event) == (stored["kind"], stored["content"]), "0.1.0 reads it, too"


def test_every_kind_of_0_1_0_was_recorded_and_is_still_read() -> None:
    recorded = {stored["kind"] for stored in KINDS}
    assert len(recorded) == KINDS_OF_0_1_0
    assert recorded <= events._KINDS.keys()


def test_a_journal_leads_to_the_state_that_it_led_to(recording: Recording, said: Mapping[str, Any]) -> None:
    with closing(Journal(recording.url, writes=False)) as journal:
        recovered = recover(journal, recording.fabric, 1.0, LIMITS.kept)
    network, gpus = NetworkLedger(recording.fabric, converged_step), GpuLedger()
    tracker, leases = Tracker(network, gpus, kept=LIMITS.kept), Leases(recording.fabric, 1.0)
    parts = {part: json.dumps(value) for part, value in said["state"].items()}
    state = present_parts(parts, PARTS)
    tracker.restore(state)
    leases.restore(state[LEASES.stored_name])
    assert recovered.tracker == tracker
    assert json.loads(recovered.leases.state()) == json.loads(leases.state())
    assert recovered.link.number == said["events"]


def test_the_command_says_the_same_of_it(
    recording: Recording, said: Mapping[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    check(recording.url, recording.fabric_file)
    assert capfd.readouterr().out == said["check"]
    before = recording.content
    repair(recording.url)
    assert "nothing was changed" in capfd.readouterr().out
    assert [line for line in recording.content if "head" not in line] == [line for line in before if "head" not in line]


def test_a_follower_reads_what_its_leader_writes_under_the_schema_of_0_1_0(recording: Recording) -> None:
    follower = Follower(recording.url, recording.fabric, 1.0, LIMITS.kept)
    try:
        with closing(Journal(recording.url)) as leader:
            leader.append(StudyRegistered(follower.recovered.tracker.now_s + 1.0, "later"))
        follower.follow()
        assert "later" in follower.recovered.tracker.studies
    finally:
        follower.close()


def test_a_journal_is_compacted(recording: Recording, said: Mapping[str, Any]) -> None:
    with closing(Journal(recording.url, writes=False)) as journal:
        before = recover(journal, recording.fabric, 1.0, LIMITS.kept)
    compact(recording.url, recording.fabric_file)
    with closing(Journal(recording.url, writes=False)) as journal:
        assert list(journal.replay()) == []
        after = recover(journal, recording.fabric, 1.0, LIMITS.kept)
    assert after.tracker == before.tracker
    assert after.link == before.link


@contextmanager
def controller(recording: Recording, options: list[str]) -> Iterator[str]:
    """Run a controller on a journal; return its URL."""
    with kept_port() as port:
        command = [sys.executable, "-m", "controller.cli", f"--fabric={recording.fabric_file}", f"--journal={recording.url}"]
        command += [f"--http=127.0.0.1:{port}", "--openflow=127.0.0.1:0", *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            yield f"http://127.0.0.1:{port}"
            assert process.poll() is None, process.stderr.read()
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


def renamed(answer: Any) -> Any:
    """Return an answer of 0.1.0 with its keys as they are named now."""
    if isinstance(answer, list):
        return [renamed(one) for one in answer]
    if isinstance(answer, dict):
        return {RENAMED_KEYS.get(key, key): renamed(one) for key, one in answer.items()}
    return answer


def _without(answer: Any, keys: frozenset[str]) -> Any:
    if isinstance(answer, list):
        return [_without(one, keys) for one in answer]
    if isinstance(answer, dict):
        return {key: _without(one, keys) for key, one in answer.items() if key not in keys}
    return answer


def get(url: str) -> Any:
    """Return what a controller answers once it listens."""

    def asked() -> httpx.Response | None:
        try:
            answer = plain_http.get(url)
        except httpx.TransportError:
            return None
        return answer if answer.status_code == 200 else None

    return until(asked, url).json()


@pytest.mark.parametrize("name", few(CONTROLLERS, ["shared"]))
def test_a_controller_answers_as_the_one_of_0_1_0_did_and_goes_on(recording: Recording, said: Mapping[str, Any]) -> None:
    with controller(recording, said["options"]) as url:
        for path, answer in said["answers"].items():
            assert _without(get(url + path), ADDED_KEYS) == renamed(answer)
        client = Client(url)
        with client.study("later", run="1") as study, study.trial("t", budget=2) as trial:
            trial.start([host.name for host in recording.fabric.hosts[:2]], sync_bytes=1_000_000)
            trial.progress(1, 0.5)
        client.close(10.0)
    with controller(recording, said["options"]) as url:
        found = get(f"{url}/v1/studies/later")
        assert (found["status"], [trial["status"] for trial in found["trials"]]) == ("ended", ["finished"])
    check(recording.url, recording.fabric_file)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a search's directory as 0.1.0 left it."""
    made = Recording("search", tmp_path)
    for name in ("train.py", "search.yaml"):
        shutil.copy(RECORDED / name, tmp_path)
    directory = tmp_path / "dir"
    shutil.copytree(RECORDED / "search-directory", directory)
    for path in directory.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if path.is_file():
            path.write_text(path.read_text().replace("@ROOT@", str(tmp_path)).replace("@PYTHON@", sys.executable))
    made.file.rename(directory / "journal.db")
    return directory


def test_a_search_continues(directory: Path, tmp_path: Path) -> None:
    def journaled(holds: Callable[[Event], bool]) -> list[Event]:
        with closing(Journal(f"sqlite:///{directory / 'journal.db'}", writes=False)) as journal:
            return [event for event in journal.replay() if holds(event)]

    before = journaled(lambda event: True)
    command = [sys.executable, "-m", "beamer.cli", "schedule", "--dir", str(directory), "--policy", "tiresias", "--quiet"]
    done = subprocess.run([*command, "--json", str(tmp_path / "figures.json")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert journaled(lambda event: True)[: len(before)] == before
    ends = {event.trial: event.status for event in journaled(lambda event: isinstance(event, TrialEnded))}  # type: ignore[attr-defined]
    assert sorted(ends.values()) == [TrialStatus.FINISHED, TrialStatus.FINISHED, TrialStatus.KILLED]
    rows = json.loads((tmp_path / "figures.json").read_text())["configurations"]
    assert sorted((row["status"], row["iterations"]) for row in rows) == [("finished", 90), ("finished", 90), ("killed", 30)]
