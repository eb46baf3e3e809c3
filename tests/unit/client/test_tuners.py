"""What tuners do with a real controller: joining and leaving, going back, names and numbers as they come, hosts by any name."""

import gc
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beamer.client import RUN_VARIABLE, Client, membership, values
from beamer.client.stops import STOPS
from beamer.client.urls import URL_VARIABLE
from beamer.network.fabric import Fabric
from beamer.studies.model import EndReason, StageStatus, StudyStatus, TrialStatus
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star
from tests.support import plain_http
from tests.support.fake_controller import PATIENCE_S, warnings
from tests.support.served_controller import Served, served

FABRIC: Fabric = star(3)


@pytest.fixture
def beamer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("BEAMER_AGENT", str(tmp_path / "none.sock"))
    with served(FABRIC, tmp_path / "journal.db") as controller:
        monkeypatch.setenv(URL_VARIABLE, controller.url)
        yield controller


@pytest.fixture
def client(beamer: Served) -> Iterator[Client]:
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    yield client
    client.close(PATIENCE_S)


@pytest.fixture
def tracker(beamer: Served) -> Tracker:
    return beamer.runtime.tracker


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.02)


def test_another_attempt_may_begin_at_an_earlier_step(client: Client, tracker: Tracker) -> None:
    with client.study("s", barriers=False) as study:
        trial = study.trial("t")
        trial.start("h1")
        trial.milestone(10)
        trial.progress(10, 0.5)
        trial.start("h2", step=5)
        trial.milestone(8)
        assert client.flush(PATIENCE_S)
        known = tracker.trials["s/t"]
        assert (known.done, known.loss) == (5, None)
        assert [target.step for target in known.unreached] == [8]
        trial.progress(8, 0.25)
        assert client.flush(PATIENCE_S)
    assert (known.done, known.loss, known.unreached) == (8, 0.25, [])
    assert [(target.step, target.reached_s is not None) for target in known.targets] == [(10, True), (8, True)]


def test_the_first_report_of_an_attempt_says_where_it_begins(client: Client, tracker: Tracker) -> None:
    study = client.study("s", barriers=False)
    trial = study.trial("t")
    trial.start("h1")
    trial.progress(10, 0.5)
    trial.milestone(20)
    trial.start("h1")
    trial.progress(5, 0.3)
    trial.milestone(8)
    assert client.flush(PATIENCE_S)
    assert (tracker.trials["s/t"].done, [target.step for target in tracker.trials["s/t"].unreached]) == (5, [8])


def test_a_step_back_inside_an_attempt_is_refused_and_logged_once(
    client: Client, tracker: Tracker, caplog: pytest.LogCaptureFixture
) -> None:
    trial = client.study("s").trial("t")
    trial.start("h1")
    for step in (4, 2, 2):
        trial.progress(step)
        assert client.flush(PATIENCE_S)
    assert tracker.trials["s/t"].done == 4
    (refused,) = warnings(caplog)[-1:]
    assert "s/t/progress: step: got 2, expected at least 4, which its attempt has come to" in refused
    assert len([line for line in warnings(caplog) if "progress" in line]) == 1


def test_what_is_set_before_the_first_report_of_an_attempt_waits_for_that(client: Client, tracker: Tracker) -> None:
    study = client.study("s", barriers=False)
    trial, stage = study.trial("t"), study.stage("r")
    trial.start("h1")
    trial.progress(10)
    trial.milestone(12)
    assert client.flush(PATIENCE_S)
    trial.start("h1")
    trial.milestone(8)
    trial.milestone(8)
    stage.add(trial, 4)
    stage.seal()
    assert client.flush(PATIENCE_S)
    assert sorted(target.step for target in tracker.trials["s/t"].unreached) == [4, 8, 12]
    trial.progress(2)
    assert client.flush(PATIENCE_S)
    assert sorted(target.step for target in tracker.trials["s/t"].unreached) == [4, 8]
    trial.progress(5)
    assert client.flush(PATIENCE_S)
    assert tracker.studies["s"].stages["r"].status is StageStatus.DONE
    assert [target.step for target in tracker.trials["s/t"].unreached] == [8]


def test_an_attempt_that_goes_on_has_reached_what_lies_behind_it(client: Client, tracker: Tracker) -> None:
    trial = client.study("s", barriers=False).trial("t")
    trial.start("h1")
    trial.progress(10)
    assert client.flush(PATIENCE_S)
    trial.start("h1")
    trial.milestone(8)
    trial.progress(10)
    assert client.flush(PATIENCE_S)
    assert tracker.trials["s/t"].unreached == []


def test_a_stage_waits_for_a_trial_that_went_back(client: Client, tracker: Tracker) -> None:
    study = client.study("s")
    trial, stage = study.trial("t"), study.stage("r")
    stage.add(trial, 10)
    trial.start("h1")
    trial.progress(7)
    trial.start("h2", step=2)
    stage.seal()
    assert client.flush(PATIENCE_S)
    assert (tracker.trials["s/t"].done, tracker.studies["s"].stages["r"].missing) == (2, {"t"})
    trial.progress(10)
    assert stage.wait(PATIENCE_S)


MEMBER = """
import sys
from beamer.client import Client, membership
membership.LEASE_S = float(sys.argv[3])
with Client(timeout_s=30) as client, client.study("s", barriers=False) as study:
    trial = study.trial(sys.argv[1])
    trial.start("h1")
    trial.progress(1)
    client.flush(30)
    print("runs", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "finish":
        trial.finish()
    client.flush(30)
"""


def member(name: str, end: str, lease_s: float = membership.LEASE_S) -> "subprocess.Popen[str]":
    """Start a process of a search; return when its trial runs. It leaves upon a line."""
    command = [sys.executable, "-c", MEMBER, name, end, str(lease_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    return process


def test_leaving_ends_what_a_process_began_and_the_last_one_ends_the_study(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "shared")
    with member("a", "finish") as a, member("b", "") as b, member("c", "finish") as c:
        study = tracker.studies["s"]
        assert len(study.members) == 3
        b.communicate("\n", PATIENCE_S)
        assert {name: trial.status.value for name, trial in study.trials.items()} == {
            "a": "running",
            "b": "killed",
            "c": "running",
        }
        a.communicate("\n", PATIENCE_S)
        assert (study.status, study.trials["c"].status) == (StudyStatus.ACTIVE, TrialStatus.RUNNING)
        c.communicate("\n", PATIENCE_S)
    assert study.status is StudyStatus.ENDED
    assert {name: trial.status.value for name, trial in study.trials.items()} == {
        "a": "finished",
        "b": "killed",
        "c": "finished",
    }


def test_a_process_that_comes_after_the_last_has_left_goes_on_with_the_run(
    client: Client, tracker: Tracker, caplog: pytest.LogCaptureFixture
) -> None:
    with client.study("s", run="shared", barriers=False) as study:
        study.trial("a").finish()
    assert client.flush(PATIENCE_S)
    assert tracker.studies["s"].status is StudyStatus.ENDED
    with client.study("s", run="shared", barriers=False) as study:
        study.trial("b").start("h1")
        assert client.flush(PATIENCE_S)
        assert tracker.studies["s"].status is StudyStatus.ACTIVE
    study = client.study("s", run="shared")
    study.end()
    assert client.flush(PATIENCE_S)
    assert [line for line in warnings(caplog) if "refused" in line] == []
    client.study("s", run="shared")
    assert client.flush(PATIENCE_S)
    assert "run: got 'shared', expected another run of s: this one has ended" in warnings(caplog)[-1]


def test_leaving_ends_no_study_that_others_work_on_without_being_members(
    client: Client, beamer: Served, tracker: Tracker
) -> None:  # fmt: skip
    study = client.study("s", run="r", barriers=False)
    study.trial("own")
    assert client.flush(PATIENCE_S)
    plain_http.put(f"{beamer.url}/v1/studies/s/trials/old", json={}).raise_for_status()  # A client of version 1 says no more.
    plain_http.put(f"{beamer.url}/v1/studies/s/members/nobody/leave").raise_for_status()
    assert tracker.studies["s"].status is StudyStatus.ACTIVE
    study.leave()
    assert client.flush(PATIENCE_S)
    assert (tracker.studies["s"].status, tracker.trials["s/own"].status) == (StudyStatus.ACTIVE, TrialStatus.KILLED)
    assert tracker.trials["s/old"].status is TrialStatus.WAITING


def test_handles_of_one_process_are_one_member_until_the_last_leaves(client: Client, tracker: Tracker) -> None:
    before = sum(thread.name == "beamer-member" for thread in threading.enumerate())
    first = client.study("s", run="r")
    for _ in range(50):
        client.study("s", run="r")
    gc.collect()
    assert sum(thread.name == "beamer-member" for thread in threading.enumerate()) == before + 1
    second = client.study("s", run="r")
    first.leave()
    assert client.flush(PATIENCE_S)
    assert (tracker.studies["s"].status, len(tracker.studies["s"].members)) == (StudyStatus.ACTIVE, 1)
    second.leave()
    assert client.flush(PATIENCE_S)
    assert (tracker.studies["s"].status, len(tracker.studies["s"].members)) == (StudyStatus.ENDED, 0)


def test_a_member_that_joins_after_the_last_has_left_goes_on(client: Client, beamer: Served, tracker: Tracker) -> None:
    client.study("s", run="r").leave()
    assert client.flush(PATIENCE_S)
    assert tracker.studies["s"].status is StudyStatus.ENDED
    plain_http.put(f"{beamer.url}/v1/studies/s/members/late?run=r", json={}).raise_for_status()
    assert tracker.studies["s"].status is StudyStatus.ACTIVE
    plain_http.put(f"{beamer.url}/v1/studies/s/members/late/leave?run=r").raise_for_status()
    assert tracker.studies["s"].status is StudyStatus.ENDED


def test_a_trial_stays_with_the_member_that_began_it(client: Client, beamer: Served, tracker: Tracker) -> None:
    client.study("s", run="r").trial("t").start("h1")
    assert client.flush(PATIENCE_S)
    member = f"{beamer.url}/v1/studies/s/members/reader"
    plain_http.put(member, json={}).raise_for_status()
    plain_http.put(f"{beamer.url}/v1/studies/s/trials/t", json={"member": "reader"}).raise_for_status()
    plain_http.put(f"{member}/leave").raise_for_status()
    assert tracker.trials["s/t"].status is TrialStatus.RUNNING


def test_a_run_that_replaces_one_that_others_take_part_in_is_warned(
    client: Client, tracker: Tracker, caplog: pytest.LogCaptureFixture
) -> None:
    with member("a", "finish") as a:
        before = tracker.studies["s"].run
        client.study("s", run="mine")
        assert client.flush(PATIENCE_S)
        a.communicate("\n", PATIENCE_S)
    (warned,) = warnings(caplog)
    assert f"Beamer on s: it replaces and ends run {before}, which a process takes part in" in warned
    assert "BEAMER_RUN" in warned
    assert tracker.past_runs("s")[0].trials["a"].status is TrialStatus.KILLED


def test_a_tuner_that_is_killed_leaves_nothing_that_counts(beamer: Served, tracker: Tracker) -> None:
    with member("a", "finish", lease_s=1.0) as killed:
        time.sleep(2.0)  # It renews its lease meanwhile.
        assert (tracker.studies["s"].status, len(tracker.studies["s"].members)) == (StudyStatus.ACTIVE, 1)
        killed.kill()
        killed.communicate(timeout=PATIENCE_S)
    eventually(lambda: tracker.studies["s"].status is StudyStatus.SILENT)
    trial = tracker.studies["s"].trials["a"]
    assert (trial.status, tracker.studies["s"].members) == (TrialStatus.SILENT, {})
    assert trial.attempt is not None
    assert trial.attempt.reason is EndReason.SILENT


def test_a_tuner_that_was_cut_off_goes_on(client: Client, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LEASE_S", 1.0)
    study = client.study("s", barriers=False)
    trial = study.trial("t")
    trial.start("h1")
    assert client.flush(PATIENCE_S)
    study.disconnect()
    eventually(lambda: tracker.studies["s"].status is StudyStatus.SILENT)
    study.join()
    trial.progress(2)
    assert client.flush(PATIENCE_S)
    assert (tracker.studies["s"].status, tracker.trials["s/t"].status) == (StudyStatus.ACTIVE, TrialStatus.RUNNING)
    study.leave()
    assert client.flush(PATIENCE_S)
    assert (tracker.studies["s"].status, tracker.trials["s/t"].status) == (StudyStatus.ENDED, TrialStatus.KILLED)


def class_of(package: str, name: str) -> type[Exception]:
    """Return a subclass, in a user's program, of a library's class."""
    stop = type(name, (Exception,), {"__module__": f"{package}.exceptions"})
    own: type[Exception] = type("Own", (stop,), {"__module__": "__main__"})
    return own


@pytest.mark.parametrize(("package", "name"), sorted(STOPS))
def test_exceptions_that_stop_a_trial_report_it_killed(client: Client, tracker: Tracker, package: str, name: str) -> None:
    study = client.study("s")
    for trial, kind in (("t", class_of(package, name)), ("u", class_of("another", name))):
        with pytest.raises(kind), study.trial(trial):
            raise kind
    assert client.flush(PATIENCE_S)
    assert [tracker.trials[key].status for key in ("s/t", "s/u")] == [TrialStatus.KILLED, TrialStatus.FAILED]


def test_a_worker_that_is_stopped_on_purpose_detaches_and_one_that_fails_does_not(client: Client, tracker: Tracker) -> None:
    trial = client.study("s").trial("t")
    trial.start("h1")
    for kind, left in ((class_of(*min(STOPS)), []), (ZeroDivisionError, [77])):
        with pytest.raises(kind), trial.attach(0, pid=77):
            raise kind
        assert client.flush(PATIENCE_S)
        attempt = tracker.trials["s/t"].attempt
        assert attempt is not None
        assert [process.pid for process in attempt.processes.values()] == left


def test_progress_of_a_trial_that_did_not_start_is_remarked_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    study = client.study("s", barriers=False)
    for step in (1, 2):
        study.trial("t").progress(step)
        assert client.flush(PATIENCE_S)
    study.trial("t").finish()
    trial = study.trial("paused")
    trial.start("h1")
    trial.pause()
    trial.progress(3)
    assert client.flush(PATIENCE_S)
    first, end, paused = warnings(caplog)
    assert "Beamer on s/t/progress: trial t has not started" in first
    assert "trial t finishes, and has not started" in end
    assert "trial paused is paused, so that its traffic has no class" in paused


def test_a_rank_ahead_of_the_next_run_attaches_to_that(client: Client, tracker: Tracker) -> None:
    with client.study("s", run="first") as study, study.trial("t") as trial:
        trial.start("h1")
    assert client.flush(PATIENCE_S)
    with Client(timeout_s=PATIENCE_S) as early:  # Another process's: it waits for what it names.
        early.trial("s", "t").attach(0, pid=77)
        time.sleep(0.3)  # It is refused at least once meanwhile.
        again = client.study("s", run="second").trial("t")
        again.start("h1")
        assert client.flush(PATIENCE_S)
        assert early.flush(PATIENCE_S)
    attempt = tracker.trials["s/t"].attempt
    assert attempt is not None
    assert [process.pid for process in attempt.processes.values()] == [77]
    assert tracker.studies["s"].run == "second"


@pytest.mark.parametrize("url", ["nonsense://x", "http://host:port", "http://", "ftp://x"])
def test_a_url_of_the_environment_that_cannot_be_ends_no_training(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    with Client() as client, client.study("s") as study, study.trial("t") as trial, study.stage("r") as stage:
        trial.start("h1")
        trial.progress(1, 0.5)
        assert not stage.wait(5.0)
        assert not client.flush(5.0)
    (logged,) = caplog.records
    assert logged.levelno == logging.ERROR
    assert f"url: got '{url}'" in logged.getMessage()


def test_a_url_of_the_environment_may_lack_its_scheme(
    beamer: Served, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv(URL_VARIABLE, beamer.url.removeprefix("http://"))
    with Client(timeout_s=PATIENCE_S) as client:
        client.study("s")
        assert client.flush(PATIENCE_S)
    assert "s" in tracker.studies


@pytest.mark.parametrize(
    "name", ["train_fn_1a2b3_00000_lr=0.1,bs=32", "my trial", "a/b", "50%", "%2F", "größer", "a?b#c&d", "..."]
)
def test_names_that_tuners_make_are_taken_as_they_are(
    client: Client, beamer: Served, tracker: Tracker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with client.study(f"study {name}", barriers=False) as study, study.stage(name), study.trial(name) as trial:
        trial.start("h1", attempt=name)
        trial.progress(1, 0.5)
        trial.attach(0, pid=77)
    assert client.flush(PATIENCE_S)
    assert warnings(caplog)[1:] == [], "but for the agent that is not there"
    known = tracker.studies[f"study {name}"]
    assert ([*known.trials], [*known.stages], known.status) == ([name], [name], StudyStatus.ENDED)
    assert tracker.trial(known.trials[name].key).done == 1
    listed = plain_http.get(f"{beamer.url}/v1/studies").json()["studies"]
    assert [one["trials"][0]["name"] for one in listed] == [name]
    assert json.dumps(listed)


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "\x00", ".", "..", "*", "x" * 121, "\ud800"])
def test_names_that_nothing_can_have_are_refused(client: Client, name: str, caplog: pytest.LogCaptureFixture) -> None:
    client.study(name)
    assert client.flush(PATIENCE_S)
    assert "expected a name of 1 to 120 printable characters" in warnings(caplog)[0]


def test_a_key_that_agents_would_refuse_is_refused(client: Client, tracker: Tracker, caplog: pytest.LogCaptureFixture) -> None:
    study = client.study("s" * 100)
    study.trial("t" * 26)
    study.trial("t" * 27)
    study.trial("/" * 9)
    assert client.flush(PATIENCE_S)
    assert [*tracker.studies["s" * 100].trials] == ["t" * 26]
    assert all("expected at most 26 characters" in line for line in warnings(caplog))
    assert len(warnings(caplog)) == 2


@pytest.mark.parametrize("host", ["h2", FABRIC.hosts[1].ip, "h2.example.org", "localhost", "127.0.0.1", socket.gethostname()])
def test_a_host_is_understood_by_any_of_its_names(
    client: Client, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(values, "_own_addresses", lambda: ["192.168.0.7", FABRIC.hosts[1].ip])
    client.study("s").trial("t").start([host])
    assert client.flush(PATIENCE_S)
    attempt = tracker.trials["s/t"].attempt
    assert attempt is not None
    assert [worker.host for worker in attempt.workers] == ["h2"]


def test_a_machine_that_is_no_host_is_told_so(
    client: Client, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(values, "_own_addresses", lambda: ["192.168.0.7"])
    client.study("s").trial("t").start("localhost")
    assert client.flush(PATIENCE_S)
    assert tracker.trials["s/t"].attempt is None
    expected = (
        "workers[0].host: got 'localhost', expected a host of the fabric; this machine is none, by its addresses (192.168.0.7)"
    )
    assert expected in warnings(caplog)[0]


def test_global_ipv6_addresses_are_among_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = tmp_path / "if_inet6"
    listed.write_text(
        "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fd000000000000000000000000000002 04 40 00 82     eth0\n"
    )
    monkeypatch.setattr(values, "_ADDRESSES", tmp_path / "missing")
    monkeypatch.setattr(values, "_IPV6_ADDRESSES", listed)
    assert values._own_addresses() == ["fd00::2"]


def test_the_addresses_of_this_machine_are_the_kernels() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for address in values._own_addresses():
            sock.bind((address, 0))  # It can be bound to one's own address only.
            break


def numbers() -> dict[str, Any]:
    import numpy as np

    return {"int": 3, "numpy": np.int64(3), "float": 3.0, "numpy float": np.float32(3), "array": np.array([3.0])}


@pytest.mark.parametrize("kind", numbers())
def test_a_step_is_understood_in_any_form(client: Client, tracker: Tracker, kind: str) -> None:
    trial = client.study("s").trial("t")
    trial.start("h1", sync_bytes=1e8)  # type: ignore[arg-type]
    trial.progress(numbers()[kind])
    assert client.flush(PATIENCE_S)
    known = tracker.trials["s/t"]
    assert known.attempt is not None
    assert (known.done, known.attempt.profile.sync_bytes) == (3, 100_000_000)
