"""Searches by the real Optuna at a real controller, which knows of each what Optuna's storage knows, and nothing more.

The stock example is among them, with the two lines by which docs/tuners/optuna.md tells Beamer of it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

from optuna.trial import TrialState  # noqa: E402

from beamer.client import RUN_VARIABLE  # noqa: E402
from beamer.integrations import optuna as integration  # noqa: E402
from beamer.integrations.optuna import BeamerCallback  # noqa: E402
from beamer.studies.model import StudyStatus, TrialStatus  # noqa: E402
from beamer.studies.records import StudyRecord  # noqa: E402
from tests.processes.optuna_program import STEPS  # noqa: E402
from tests.processes.site import until  # noqa: E402
from tests.support.checkout import ROOT  # noqa: E402
from tests.support.here import fabric_here  # noqa: E402
from tests.support.optuna_pruners import PRUNERS  # noqa: E402
from tests.support.pages import added_lines, with_diff  # noqa: E402
from tests.support.served_controller import Served, served  # noqa: E402
from tests.support.tiers import long  # noqa: E402

STOCK = (ROOT / "examples" / "optuna_pruning.py").read_text("utf-8")
PAGE = (ROOT / "docs" / "tuners" / "optuna.md").read_text("utf-8")
TIMEOUT_S = 240
LEASE_S = 2.0
STATUS = {
    TrialState.COMPLETE: TrialStatus.FINISHED,
    TrialState.PRUNED: TrialStatus.KILLED,
    TrialState.FAIL: TrialStatus.FAILED,
}


@pytest.fixture
def beamer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    monkeypatch.setenv("BEAMER_AGENT", str(tmp_path / "agent.sock"))
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    with served(fabric_here(), tmp_path / "journal.db") as running:
        monkeypatch.setenv("BEAMER_URL", running.url)
        yield running
        for search in list(integration._searches):
            search.end()
            search._client.close(TIMEOUT_S)
    optuna.logging.set_verbosity(optuna.logging.INFO)


def over(beamer: Served, study: Any) -> StudyRecord:
    """Return what the controller knows of a study that is over: its trials ended as Optuna's did, and nothing is waited for."""
    name = study.study_name
    assert beamer.until(lambda runtime: runtime.tracker.studies[name].status is StudyStatus.ENDED), "it has not ended"
    record: StudyRecord = beamer.ask(lambda runtime: runtime.tracker.studies[name])
    assert {trial.name: trial.status for trial in record.trials.values()} == {
        f"trial-{trial.number}": STATUS[trial.state] for trial in study.trials if trial.datetime_start is not None
    }
    first_end = min(trial.datetime_complete for trial in study.trials if trial.state is TrialState.COMPLETE)
    for trial in study.trials:
        known = record.trials[f"trial-{trial.number}"]
        assert known.done == (trial.last_step or 0), known.name
        assert known.unreached == []
        if any(target.reached_s is None for target in known.targets) and trial.state is not TrialState.FAIL:
            assert trial.state is not TrialState.PRUNED, f"{known.name} was judged at its last milestone"
            assert trial.datetime_start <= first_end, f"{known.name} was known to end before its last milestone"
        if trial.last_step is not None:
            assert known.loss == pytest.approx(trial.intermediate_values[trial.last_step])
        (attempt,) = known.attempts.values()
        assert [worker.host for worker in attempt.workers] == [fabric_here().hosts[0].name]
        assert attempt.ended_s is not None
    assert record.stages == {}
    assert not beamer.ask(lambda runtime: [one.key for one in runtime.tracker.running if one.study == name])
    return record


def leave(study: Any) -> None:
    """Let this process leave a study as if it ended."""
    search = integration.observer_of(study)
    search.end()
    assert search._client.flush(TIMEOUT_S)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts a program that takes part in a study."""
    started: list[subprocess.Popen[str]] = []

    def starting(**options: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.processes.optuna_program", json.dumps(options)]
        started.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield starting
    for process in started:
        with process:
            process.kill()


def ended(process: "subprocess.Popen[str]") -> None:
    """Wait for a program, which must succeed; nothing is refused."""
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    # A machine that stalls may let a request take longer than its time: it is sent again.
    assert [line for line in said.splitlines() if "does not answer" not in line] == []


@pytest.mark.parametrize("pruner", ["short hyperband", *long("halving", "early median")])
def test_three_processes_on_one_storage_are_one_study(pruner: str, beamer: Served, start: Start, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/studies.db"
    study = optuna.create_study(study_name=pruner, storage=storage)
    # Each waits in its first trial for those of the others: none may be through before another one begins.
    processes = [start(storage=storage, study=pruner, pruner=pruner, trials=4, together=3) for _ in range(3)]
    for process in processes:
        ended(process)
    assert len(study.trials) == 12
    record = over(beamer, study)
    assert not beamer.ask(lambda runtime: runtime.tracker.past_runs(pruner)), "all took part in one run"
    targets = {target.step for trial in record.trials.values() for target in trial.targets}
    assert targets - {11} == ({2, 5, 8} if pruner == "early median" else {1, 3, 9}), (
        "11 may come before a trial has ended with step 9"
    )


def test_threads_of_one_process(beamer: Served) -> None:
    study = optuna.create_study(study_name="threads", pruner=PRUNERS["halving"]())
    study.optimize(objective, n_trials=12, n_jobs=2, callbacks=[BeamerCallback(study)])
    leave(study)
    assert len(over(beamer, study).trials) == 12


def objective(trial: Any) -> float:
    rate: float = trial.suggest_float("rate", 0.0, 1.0)
    for step in range(1, STEPS + 1):
        trial.report(rate + 1 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return rate


@pytest.mark.parametrize("kind", ["in memory", "journal"])
def test_trials_that_are_enqueued_pruned_and_failed(kind: str, beamer: Served, tmp_path: Path) -> None:
    backend = optuna.storages.journal.JournalFileBackend(f"{tmp_path}/study.log")
    storage = optuna.storages.JournalStorage(backend) if kind == "journal" else None
    study = optuna.create_study(study_name="kinds", storage=storage, pruner=PRUNERS["halving"]())
    study.enqueue_trial({"rate": 0.25})
    BeamerCallback(study)

    def failing(trial: Any) -> float:
        if trial.number == 2:
            raise ValueError("on purpose")
        return objective(trial)

    study.optimize(failing, n_trials=2)
    study.enqueue_trial({"rate": 0.5})
    study.optimize(failing, n_trials=6, catch=ValueError)
    study.enqueue_trial({"rate": 0.75})  # Nobody ever runs this one.
    leave(study)
    study_trials = study.trials
    assert study_trials[-1].state is TrialState.WAITING
    assert [trial.number for trial in study_trials if trial.state is TrialState.FAIL] == [2]
    del study_trials[-1]
    record = over(beamer, _Finished(study.study_name, study_trials))
    assert record.trials["trial-0"].loss == pytest.approx(0.25 + 1 / record.trials["trial-0"].done)
    assert "trial-8" not in record.trials


class _Finished:
    """A study without its trials that wait."""

    def __init__(self, study_name: str, trials: list[Any]) -> None:
        self.study_name = study_name
        self.trials = trials


def test_an_interrupted_search_ends_with_its_process(beamer: Served) -> None:
    study = optuna.create_study(study_name="interrupted", pruner=PRUNERS["halving"]())

    def interrupted(trial: Any) -> float:
        if trial.number == 1:
            raise KeyboardInterrupt
        return objective(trial)

    with pytest.raises(KeyboardInterrupt):
        study.optimize(interrupted, n_trials=3, callbacks=[BeamerCallback(study)])
    leave(study)
    assert over(beamer, study).trials["trial-1"].status is TrialStatus.FAILED, "as Optuna itself has it"


def test_a_killed_process_loses_its_trial_and_another_one_retries_it(beamer: Served, start: Start, tmp_path: Path) -> None:
    options = {"storage": f"sqlite:///{tmp_path}/study.db", "study": "killed", "pruner": "halving", "heartbeat": True}
    study = optuna.create_study(study_name="killed", storage=options["storage"])
    trial = "killed", "trial-0"
    hold = tmp_path / "hold"
    hold.touch()
    victim = start(**options, trials=3, hold=str(hold), lease_s=LEASE_S)
    try:
        until(hold.with_suffix(".held").exists, "the trial to be held")
        # What the process has not delivered yet is lost with it.
        assert beamer.until(lambda runtime: runtime.tracker.studies[trial[0]].trials[trial[1]].done == 1)
    finally:
        victim.kill()
        victim.communicate(timeout=TIMEOUT_S)
    assert study.trials[0].state is TrialState.RUNNING
    assert beamer.until(lambda runtime: runtime.tracker.studies[trial[0]].trials[trial[1]].status is TrialStatus.SILENT)
    assert beamer.ask(lambda runtime: runtime.tracker.studies["killed"].status) is StudyStatus.SILENT
    time.sleep(3.5)  # longer than the grace period of Optuna's heartbeats
    ended(start(**options, trials=4))
    assert [trial.state for trial in study.trials[:1]] == [TrialState.FAIL]
    assert study.trials[1].system_attrs["failed_trial"] == 0
    record = over(beamer, study)
    assert len(record.trials) == 5
    assert record.trials["trial-0"].status is TrialStatus.FAILED
    assert not beamer.ask(lambda runtime: runtime.tracker.past_runs("killed")), (
        "the second process went on with the first's run"
    )


@pytest.mark.long
def test_a_search_that_was_left_goes_on(beamer: Served, start: Start, tmp_path: Path) -> None:
    options = {"storage": f"sqlite:///{tmp_path}/study.db", "study": "again", "pruner": "early median", "trials": 2}
    study = optuna.create_study(study_name="again", storage=options["storage"])
    for trials in (2, 4):
        ended(start(**options))
        assert len(over(beamer, study).trials) == trials
    assert not beamer.ask(lambda runtime: runtime.tracker.past_runs("again")), "it is the same run"


def test_two_lines_differ_and_one_but_for_the_import() -> None:
    added = added_lines(PAGE, STOCK)
    assert len(added) == 2
    assert len([line for line in added if not line.lstrip().startswith(("import ", "from "))]) == 1


def test_the_example_runs_and_the_controller_knows_its_search(beamer: Served, tmp_path: Path) -> None:
    program = tmp_path / "search.py"
    program.write_text(with_diff(PAGE, STOCK))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("20 trials")
    study = beamer.ask(lambda runtime: runtime.tracker.studies["descent"])
    assert study.status is StudyStatus.ENDED
    assert len(study.trials) == 20
    assert {trial.status for trial in study.trials.values()} == {TrialStatus.FINISHED, TrialStatus.KILLED}
    assert {target.step for trial in study.trials.values() for target in trial.targets} <= {1, 3, 9, 27}
    assert max(trial.done for trial in study.trials.values()) == 27
