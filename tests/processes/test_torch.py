"""Trainings by the real PyTorch on gloo, and what a real controller knows of each: an end, a failure, an interruption."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from beamer.client.urls import LAUNCHER_VARIABLE, RUN_VARIABLE, STUDY_VARIABLE, TRIAL_VARIABLE
from beamer.studies.model import EndReason, StudyStatus, TrialStatus
from beamer.studies.records import StudyRecord, TrialRecord
from tests.processes.site import until
from tests.support.checkout import ROOT
from tests.support.here import fabric_here
from tests.support.served_controller import Served, served
from tests.support.tiers import long

TIMEOUT_S = 240
PROGRAM = str(ROOT / "tests" / "processes" / "torch_program.py")
STUDY = "torch_program"
"""The program's name, as nothing else names the study."""

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return what starts the program: by torchrun, with `ranks`; alone, where that is None. before: a command before it."""
    for name in (LAUNCHER_VARIABLE, RUN_VARIABLE, STUDY_VARIABLE, TRIAL_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BEAMER_AGENT", str(tmp_path / "agent.sock"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started: list[subprocess.Popen[str]] = []

    def starting(
        ranks: int | None, *options: str, before: tuple[str, ...] = (), program: str = PROGRAM, **task: Any
    ) -> "subprocess.Popen[str]":
        torchrun = () if ranks is None else ("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *options)
        command = [*before, sys.executable, *torchrun, program, json.dumps(task)]
        # What torchrun starts is of its session, and is ended with it.
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        return process

    yield starting
    for process in started:
        with process:
            for pid in ranks_of(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()


def ranks_of(session: int) -> list[int]:
    """Return the living processes of a session but for its leader."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != session:
            with suppress(OSError):
                if os.getsid(int(name)) == session:
                    found.append(int(name))
    return found


@pytest.fixture
def beamer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with served(fabric_here(), tmp_path / "journal.db") as running:
        monkeypatch.setenv("BEAMER_URL", running.url)
        yield running


def ended(process: "subprocess.Popen[str]", is_success: bool = True) -> str:
    """Wait for a program, and return what it has written on its standard error."""
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode == 0) is is_success, said
    return str(said)


def study_of(beamer: Served, name: str = STUDY) -> StudyRecord:
    """Return what the controller knows of a study that is over."""
    assert beamer.until(lambda runtime: name in runtime.tracker.studies), "it is not known"
    assert beamer.until(lambda runtime: runtime.tracker.studies[name].status is StudyStatus.ENDED), "it has not ended"
    record: StudyRecord = beamer.ask(lambda runtime: runtime.tracker.studies[name])
    return record


def trial_of(beamer: Served, status: TrialStatus, ranks: int) -> TrialRecord:
    """Return the study's one trial, which has ended so; its attempts ran on these ranks here."""
    (trial,) = study_of(beamer).trials.values()
    assert trial.status is status
    for attempt in trial.attempts.values():
        assert [(worker.rank, worker.host) for worker in attempt.workers] == [(i, socket.gethostname()) for i in range(ranks)]
        assert attempt.ended_s is not None
    return trial


@pytest.mark.parametrize("ranks", [None, 2, *long(1, 4)])
def test_a_training_that_ends(ranks: int | None, beamer: Served, start: Start) -> None:
    said = ended(start(ranks, steps=40))
    trial = trial_of(beamer, TrialStatus.FINISHED, ranks or 1)
    assert trial.done == 40, "gradients of two batches were accumulated in each step"
    assert len(trial.attempts) == 1
    assert "Beamer refused" not in said


@pytest.mark.parametrize(("end", "rank"), [("error", 1), *long(("error", 0), ("exit", 1), ("kill", 1))])
def test_a_rank_that_fails_fails_the_trial(end: str, rank: int, beamer: Served, start: Start) -> None:
    ended(start(2, steps=1000, end=end, rank=rank, at=30, pause_s=0.01), is_success=False)
    assert 0 < trial_of(beamer, TrialStatus.FAILED, 2).done <= 30


@pytest.mark.parametrize("ranks", [2, *long(None)])
def test_ctrl_c_kills_the_trial(ranks: int | None, beamer: Served, start: Start, tmp_path: Path) -> None:
    process = start(ranks, steps=10**6, pause_s=0.01, started=str(tmp_path / "started"))
    until((tmp_path / "started").exists, "the first step")
    assert beamer.until(lambda runtime: bool(runtime.tracker.running)), "it is not known to run"
    process.send_signal(signal.SIGINT)
    ended(process, is_success=False)
    trial_of(beamer, TrialStatus.KILLED, ranks or 1)


@pytest.mark.parametrize("end", ["error", *long("kill")])
def test_an_elastic_restart_is_another_attempt_of_the_trial(
    end: str, beamer: Served, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # PyTorch 2.13 keeps addresses of killed ranks otherwise.
    elastic = ("--max-restarts=1", "--rdzv-id=job7", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    ended(start(2, *elastic, steps=60, end=end, rank=1, at=30, pause_s=0.01))
    trial = trial_of(beamer, TrialStatus.FINISHED, 2)
    assert [attempt.reason for attempt in trial.attempts.values()] == [EndReason.LOST, EndReason.ENDED]
    assert (trial.name, study_of(beamer).run) == ("job7", "job7")
    assert trial.done == 60, "it has begun anew"
    assert not beamer.ask(lambda runtime: runtime.tracker.past_runs(STUDY))


@pytest.mark.parametrize(
    ("loop", "options"), [("fsdp", {}), ("plain", {}), *long(("by hand", {}), ("ddp", {"hook": True}))]
)  # fmt: skip
def test_steps_of_other_loops_are_counted(loop: str, options: dict[str, Any], beamer: Served, start: Start) -> None:
    ended(start(2, loop=loop, steps=25, **options))
    trial = trial_of(beamer, TrialStatus.FINISHED, 2)
    assert trial.done == 25
    assert (trial.loss is not None) == (loop == "by hand")


@pytest.mark.parametrize("ranks", [2, *long(3, 4)])
@pytest.mark.parametrize("hook", long(False, True))
def test_weights_are_bit_for_bit_those_without_beamer(
    ranks: int, hook: bool, beamer: Served, start: Start, tmp_path: Path
) -> None:
    for attach in (True, False):
        ended(start(ranks, steps=50, attach=attach, hook=hook, weights=str(tmp_path / f"{attach}.pt")))
    assert saved(tmp_path / "True.pt") == saved(tmp_path / "False.pt")
    assert trial_of(beamer, TrialStatus.FINISHED, ranks).done == 50


def saved(path: Path) -> dict[str, bytes]:
    """Return the bytes of the parameters in a file."""
    import torch

    return {name: value.numpy().tobytes() for name, value in torch.load(path).items()}


@pytest.mark.parametrize("kind", ["absent", *long("hanging")])
def test_training_goes_on_without_a_controller(
    kind: str, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        if kind == "hanging":
            taken: list[socket.socket] = []
            threading.Thread(target=take, args=(listener, taken), daemon=True).start()
        monkeypatch.setenv("BEAMER_URL", f"http://127.0.0.1:{listener.getsockname()[1] if kind == 'hanging' else 1}")
        said = [ended(start(2, steps=50, attach=attach, weights=str(tmp_path / f"{attach}.pt"))) for attach in (True, False)]
    assert saved(tmp_path / "True.pt") == saved(tmp_path / "False.pt")
    # Where the controller hangs, the process may end before its patience does.
    assert said[0].count("does not answer") in ((1,) if kind == "absent" else (0, 1))


def take(listener: socket.socket, taken: list[socket.socket]) -> None:
    """Accept connections, and never answer."""
    with suppress(OSError):
        while True:
            taken.append(listener.accept()[0])


def test_under_beamer_run_no_other_attempt_is_started(beamer: Served, start: Start) -> None:
    before = (sys.executable, "-m", "beamer.cli", "run", "--study", STUDY, "--trial", "mine", "--")
    ended(start(2, steps=30, before=before))
    trial = trial_of(beamer, TrialStatus.FINISHED, 1)
    assert (trial.name, trial.done, len(trial.attempts)) == ("mine", 30, 1)


def test_the_example_takes_two_lines(beamer: Served, start: Start) -> None:
    example = ROOT / "examples" / "torch_ddp.py"
    ended(start(2, program=str(example)))
    (trial,) = study_of(beamer, "torch_ddp").trials.values()
    assert (trial.status, trial.done) == (TrialStatus.FINISHED, 200)
    code = example.read_text("utf-8").partition('"""\n\n')[2].splitlines()
    assert sum("attach" in line or "beamer" in line for line in code) == 2
    assert len(code) <= 40


def test_a_launch_after_another_has_ended_is_a_run_of_its_own(beamer: Served, start: Start) -> None:
    for _ in range(2):
        ended(start(None, steps=3))
        assert [trial.status for trial in study_of(beamer).trials.values()] == [TrialStatus.FINISHED]
    assert len(beamer.ask(lambda runtime: runtime.tracker.past_runs(STUDY))) == 1
