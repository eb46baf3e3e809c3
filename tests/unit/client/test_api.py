"""The client and the controller's HTTP API understand each other, over a socket."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from beamer.client import RUN_VARIABLE, Client, Role, Rung, Worker
from beamer.studies.model import StageStatus, StudyStatus, TrialStatus
from tests.support.checkout import ROOT
from tests.support.pages import blocks
from tests.support.served_controller import PATIENCE_S, Served, served
from topologies.single import build

FABRIC = build(hosts=2)
HOSTS = [host.name for host in FABRIC.hosts]
README = ROOT / "README.md"


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    monkeypatch.setenv("BEAMER_AGENT", str(tmp_path / "nobody.sock"))


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [message for message in messages if "no Beamer agent" not in message]


def test_a_search_arrives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(FABRIC, tmp_path / "journal.db") as beamer, Client(beamer.url, timeout_s=PATIENCE_S) as client:
        with client.study("s", weight=2.0, rungs=[Rung("r", 2, 3)]) as study:
            with study.stage("r") as stage:
                pair = [Worker(0, HOSTS[0]), Worker(1, HOSTS[1], Role.SERVER)]
                with study.trial("ps", budget=3) as trial:
                    stage.add(trial, step=3)
                    trial.start(pair, sync_bytes=10, collective="parameter-server")
                    trial.attach(0, pid=77)
                    trial.progress(2, loss=float("nan"))
                lost = study.trial("lost")
                stage.add(lost, step=3)
                lost.kill()
            stage.add(study.trial("late"), step=3)
            assert stage.wait(PATIENCE_S)
            assert not client.wait_stage("s", "r", 0.05, run="another")
        assert client.flush(PATIENCE_S)
    tracker = beamer.runtime.tracker
    search = tracker.studies["s"]
    assert (search.weight, search.run, search.status) == (2.0, study.run, StudyStatus.ENDED)
    assert search.stages["r"].status is StageStatus.DONE
    ended = tracker.trials["s/ps"]
    assert (ended.status, ended.done, str(ended.loss), ended.budget) == (TrialStatus.FINISHED, 2, "nan", 3)
    assert tracker.trials["s/lost"].status is TrialStatus.KILLED
    (refused,) = refusals(caplog)
    assert refused.startswith("Beamer refused s/late/target: stage: got 'r', expected an open stage")


def test_a_process_of_a_replaced_run_changes_nothing_and_is_told_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(FABRIC, tmp_path / "journal.db") as beamer, Client(beamer.url, timeout_s=PATIENCE_S) as client:
        old = client.study("s", run="old").trial("t")
        old.start(HOSTS)
        client.study("s", run="new").trial("t").start(HOSTS)
        old.progress(7)
        old.finish()
        client.study("s", run="old")
        assert client.flush(PATIENCE_S)
    trial = beamer.runtime.tracker.trials["s/t"]
    assert (trial.status, trial.done) == (TrialStatus.RUNNING, 0)
    assert beamer.runtime.tracker.past_runs("s")[0].trials["t"].status is TrialStatus.KILLED
    warned, told = refusals(caplog)
    assert "it replaces and ends run old" in warned
    assert "run: got 'old', expected new, the present run of s" in told


def test_what_was_declared_may_change_and_more_may_be_asked_of_a_trial(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    with served(FABRIC, tmp_path / "journal.db") as beamer, Client(beamer.url, timeout_s=PATIENCE_S) as client:
        study = client.study("s", weight=1.0, rungs=[Rung("r0", 2, 20)])
        trial = study.trial("t", budget=20)
        trial.milestone(20)
        trial.start(HOSTS, sync_bytes=10)
        trial.progress(20)
        study.trial("t", budget=50)
        trial.milestone(50)
        trial.progress(21)
        study.declare(weight=5.0)
        study.declare(rungs=[Rung("r0", 2, 20), Rung("r1", 1, 50)])
        trial.start(HOSTS[:1], sync_bytes=20)
        assert client.flush(PATIENCE_S)
    record = beamer.runtime.tracker.trials["s/t"]
    assert (record.done, record.budget, [target.step for target in record.unreached]) == (21, 50, [50])
    assert [attempt.profile.sync_bytes for attempt in record.attempts.values()] == [10, 20]
    declared = beamer.runtime.tracker.studies["s"]
    assert (declared.weight, [rung.name for rung in declared.rungs]) == (5.0, ["r0", "r1"])
    assert refusals(caplog) == []


def shown(url: str) -> tuple[str, str]:
    """Return the README's scripts of a tuner and of a worker, for a controller at `url`."""
    section = README.read_text("utf-8").partition("\n## Use it\n")[2].partition("\n## ")[0]
    tuner, worker = (block.code for block in blocks(section) if block.language == "python")
    return tuner.replace("http://10.0.0.1:8657", url), worker.replace("http://10.0.0.1:8657", url)


def run(script: str) -> None:
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "refused" not in ended.stderr


def test_the_documented_scripts_run_and_a_second_time_they_begin_anew(tmp_path: Path) -> None:
    def search(beamer: Served) -> None:
        tuner, worker = shown(beamer.url)
        tuning = subprocess.Popen([sys.executable, "-c", tuner], stderr=subprocess.PIPE, text=True)
        try:
            assert beamer.until(lambda runtime: any(trial.done == 0 for trial in runtime.tracker.running))
            run(worker)
            _, complaints = tuning.communicate(timeout=120)
        finally:
            tuning.kill()
            tuning.wait()
        assert (tuning.returncode, complaints) == (0, "")

    with served(FABRIC, tmp_path / "journal.db") as beamer:
        for number in range(2):
            search(beamer)
            [study] = beamer.runtime.tracker.studies.values()
            assert study.status is StudyStatus.ENDED
            assert [stage.status for stage in study.stages.values()] == [StageStatus.DONE]
            [trial] = study.trials.values()
            assert (trial.status, trial.done) == (TrialStatus.FINISHED, 20)
            assert len(beamer.runtime.tracker.past_runs(study.name)) == number
