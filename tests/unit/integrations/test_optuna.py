"""What the callback tells of Optuna's trials, what it costs, and that nothing of it reaches the user's program."""

import copy
import gc
import logging
import multiprocessing
import multiprocessing.util
import os
import pickle
import socket
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

from optuna.trial import TrialState  # noqa: E402

from beamer.client import RUN_VARIABLE, TrialHandle, lease  # noqa: E402
from beamer.integrations import optuna as integration  # noqa: E402
from beamer.integrations import optuna_storage  # noqa: E402
from beamer.integrations.optuna import BeamerCallback, study_name  # noqa: E402
from beamer.studies.model import MAX_KEY_CHARACTERS, check_name, trial_key  # noqa: E402
from tests.support.fake_controller import FakeBeamer, raw_server, warnings  # noqa: E402

NOBODY = "http://127.0.0.1:9"  # where no controller listens
PATIENCE_S = 60.0
MAX_P99_S = 0.001
REPORTS = 2000


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    monkeypatch.setenv(lease.AGENT_VARIABLE, str(tmp_path / "agent.sock"))
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    yield
    optuna.logging.set_verbosity(optuna.logging.INFO)
    for search in list(integration._searches):
        search.end()
        search._client.close(0.0)


@pytest.fixture
def beamer() -> Iterator[FakeBeamer]:
    fake = FakeBeamer()
    yield fake
    fake.stop()


def told(beamer: FakeBeamer, study: Any) -> list[tuple[str, Any]]:
    """Return what the controller was told of a study, without the attempts' names."""
    search = optuna_storage.observer_of(study)
    assert search._client.flush(PATIENCE_S)
    parts = [(path.removeprefix("/v1/studies/").partition("/attempts/"), body) for path, body in beamer.received]
    return [(f"{before}{'/attempts' if found else ''}", body) for (before, found, _), body in parts]


def steps_of(path: str, requests: list[tuple[str, Any]]) -> list[Any]:
    return [(body["step"], body.get("loss")) if "loss" in body else body["step"] for one, body in requests if one == path]


def test_a_trial_is_told_from_its_start_to_its_end(beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch) -> None:
    study = optuna.create_study(study_name="s", pruner=optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=4))
    now: list[list[str]] = []

    def objective(trial: Any) -> float:
        for step in range(6):
            trial.report(1.0 / (1 + step), step)
            assert not trial.should_prune()
            told(beamer, study)  # Otherwise newer progress may take the place of this one.
            now.append(beamer.paths())
        return 0.5

    study.optimize(objective, n_trials=1, callbacks=[BeamerCallback(study, beamer.url)])
    requests = told(beamer, study)
    assert now[0][-1] == "/v1/studies/s/trials/trial-0/progress", "it is told as it happens"
    assert [path for path, _ in requests if not path.endswith("progress")] == [
        *("s", "s/trials/trial-0", "s/trials/trial-0/attempts", "s/trials/trial-0/target"),
        *("s/trials/trial-0/target", "s/trials/trial-0/target", "s/trials/trial-0/status"),
    ]
    bodies = dict(requests)
    assert bodies["s"] == {"run": bodies["s"]["run"], "barriers": False}
    assert [worker["host"] for worker in bodies["s/trials/trial-0/attempts"]["workers"]] == [socket.gethostname()]
    assert steps_of("s/trials/trial-0/progress", requests) == [(step, 1.0 / (1 + step)) for step in range(6)]
    assert steps_of("s/trials/trial-0/target", requests) == [1, 4, 16]
    assert bodies["s/trials/trial-0/status"] == {"status": "finished"}


def test_the_loss_of_what_is_maximized_is_negative(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s", direction="maximize", pruner=optuna.pruners.NopPruner())
    BeamerCallback(study, beamer.url)
    trial = study.ask()
    trial.report(0.75, 1)
    assert steps_of("s/trials/trial-0/progress", told(beamer, study)) == [(1, -0.75)]


def test_several_objectives_have_trials_without_progress(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s", directions=["minimize", "maximize"])
    study.optimize(lambda trial: (0.0, 1.0), n_trials=1, callbacks=[BeamerCallback(study, beamer.url)])
    assert [path for path, _ in told(beamer, study)][1:] == [
        *("s/trials/trial-0", "s/trials/trial-0/attempts", "s/trials/trial-0/status"),
    ]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_steps_in_any_order_are_counted_where_the_pruner_takes_them_so(beamer: FakeBeamer) -> None:
    done = {}
    for pruner in (optuna.pruners.WilcoxonPruner(), optuna.pruners.NopPruner()):
        study = optuna.create_study(study_name=type(pruner).__name__, pruner=pruner)
        BeamerCallback(study, beamer.url)
        trial = study.ask()
        for step in (7, 3, 9):
            trial.report(float(step), step)
            told(beamer, study)
        done[study.study_name] = steps_of(f"{study.study_name}/trials/trial-0/progress", told(beamer, study))
    assert done == {"WilcoxonPruner": [(1, 7.0), (2, 3.0), (3, 9.0)], "NopPruner": [(7, 7.0), (9, 9.0)]}


def test_no_milestone_beyond_the_longest_trial(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s", pruner=optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=4))

    def objective(trial: Any) -> float:
        for step in range(1, 11):
            trial.report(0.0, step)
            trial.should_prune()
        return 0.0

    study.optimize(objective, n_trials=2, callbacks=[BeamerCallback(study, beamer.url)])
    requests = told(beamer, study)
    assert steps_of("s/trials/trial-0/target", requests) == [1, 4, 16], "nobody knows yet how long a trial is"
    assert steps_of("s/trials/trial-1/target", requests) == [1, 4]


def test_a_later_call_goes_on_and_joins_again_after_a_while(beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch) -> None:
    study = optuna.create_study(study_name="s")
    for _ in range(2):
        study.optimize(lambda trial: 0.0, n_trials=1, callbacks=[BeamerCallback(study, beamer.url)])
    assert [path for path, _ in told(beamer, study)].count("s") == 1
    monkeypatch.setattr(integration, "LINGER_S", 0.0)
    study.optimize(lambda trial: 0.0, n_trials=1)
    until(lambda: has_left(beamer, "s"))
    study.optimize(lambda trial: 0.0, n_trials=1)
    runs = [body["run"] for path, body in told(beamer, study) if path == "s"]
    assert len(runs) == 2
    assert len(set(runs)) == 1


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_left(beamer: FakeBeamer, study: str) -> bool:
    return any(path.startswith(f"/v1/studies/{study}/") and path.endswith(("/end", "/leave")) for path in beamer.paths())


def test_two_objects_of_a_study_in_one_process_are_one_member(beamer: FakeBeamer) -> None:
    storage = optuna.storages.InMemoryStorage()
    studies = [optuna.create_study(study_name="s", storage=storage, load_if_exists=True) for _ in range(2)]
    for study in studies:
        BeamerCallback(study, beamer.url)
        study.ask()
    searches = [optuna_storage.observer_of(study) for study in studies]
    for search, is_over in zip(searches, (False, True), strict=True):
        search.end()
        assert search._client.flush(PATIENCE_S)
        assert has_left(beamer, "s") == is_over


def test_what_optimize_leaves_running_is_killed(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s")

    def objective(trial: Any) -> float:
        raise SystemExit

    with pytest.raises(SystemExit):
        study.optimize(objective, n_trials=1, callbacks=[BeamerCallback(study, beamer.url)])
    assert study.trials[0].state == TrialState.RUNNING
    assert dict(told(beamer, study))["s/trials/trial-0/status"] == {"status": "killed"}


def test_a_trial_of_another_process_is_reported_on_and_left_running(
    beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = optuna.storages.InMemoryStorage()
    begun = optuna.create_study(study_name="s", storage=storage).ask()  # as in a process that has its own callback
    study = optuna.load_study(study_name="s", storage=storage)
    BeamerCallback(study, beamer.url)
    optuna.Trial(study, begun._trial_id).report(0.5, 1)
    optuna_storage.observer_of(study).end()
    requests = told(beamer, study)
    assert steps_of("s/trials/trial-0/progress", requests) == [(1, 0.5)]
    assert has_left(beamer, "s")
    assert "s/trials/trial-0/status" not in dict(requests)
    monkeypatch.setattr(integration, "LINGER_S", 0.0)
    optuna.Trial(study, begun._trial_id).report(0.25, 2)
    study.optimize(lambda trial: 0.0, n_trials=1)
    until(lambda: beamer.paths().count("/v1/studies/s/members/M/leave") == 2)
    assert "s/trials/trial-0/status" not in dict(told(beamer, study))


def test_a_trial_of_another_process_is_ended_as_it_is_told(beamer: FakeBeamer) -> None:
    storage = optuna.storages.InMemoryStorage()
    begun = optuna.create_study(study_name="s", storage=storage).ask()
    study = optuna.load_study(study_name="s", storage=storage)
    BeamerCallback(study, beamer.url)
    study.tell(begun.number, 0.5)
    assert dict(told(beamer, study))["s/trials/trial-0/status"] == {"status": "finished"}


def test_a_study_that_nobody_holds_is_left(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s")
    BeamerCallback(study, beamer.url)
    study.ask()
    search = optuna_storage.observer_of(study)
    told(beamer, study)
    assert not has_left(beamer, "s")
    del study
    gc.collect()
    assert search._client.flush(PATIENCE_S)
    assert has_left(beamer, "s")
    assert ("/v1/studies/s/trials/trial-0/status", {"status": "killed"}) in beamer.received


def test_a_study_is_collected_while_another_one_joins_or_leaves(beamer: FakeBeamer) -> None:
    studies = [optuna.create_study(study_name="s")]
    BeamerCallback(studies[0], beamer.url)
    studies[0].ask()

    def collect() -> None:
        with integration._counting:  # where a collection may come
            studies.clear()
            gc.collect()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(10.0)
    is_stuck = thread.is_alive()
    if is_stuck:
        integration._counting.release()
    assert not is_stuck
    until(lambda: has_left(beamer, "s"))


class Awaited:
    """A lock that says when a timer waits for it."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.timers: list[threading.Thread] = []

    def __enter__(self) -> None:
        if isinstance(threading.current_thread(), threading.Timer):
            self.timers.append(threading.current_thread())
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_who_comes_back_as_the_time_is_up_stays(beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "LINGER_S", 0.0)
    study = optuna.create_study(study_name="s")
    callback = BeamerCallback(study, beamer.url)
    search = optuna_storage.observer_of(study)
    search._changing = changing = Awaited(search._changing)
    with changing:
        study.optimize(lambda trial: 0.0, n_trials=1, callbacks=[callback])
        until(lambda: len(changing.timers) == 1)
        study.ask()
    changing.timers[0].join(PATIENCE_S)
    assert "s/trials/trial-1/attempts" in dict(told(beamer, study))
    assert not has_left(beamer, "s")


def test_a_forked_child_ends_nothing_of_its_parents(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s")
    BeamerCallback(study, beamer.url)
    study.ask()
    before = told(beamer, study)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            integration._leave_at_exit()
            code = 0 if optuna_storage.observer_of(study)._client.flush(PATIENCE_S) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told(beamer, study) == before


def test_trials_run_on_the_host_that_is_given(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s")
    BeamerCallback(study, beamer.url, host="h7")
    study.ask()
    (worker,) = dict(told(beamer, study))["s/trials/trial-0/attempts"]["workers"]
    assert worker["host"] == "h7"


def test_a_run_of_the_environment_is_taken(beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "mine")
    study = optuna.create_study(study_name="s")
    BeamerCallback(study, beamer.url)
    study.ask()
    assert dict(told(beamer, study))["s"]["run"] == "mine"


def test_a_trial_attaches_this_process_where_it_has_it_for_itself(
    beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "agent.sock").touch()
    attached: list[tuple[str, int]] = []
    monkeypatch.setattr(lease, "attach", lambda study, trial, rank, run: attached.append((trial, rank)))
    study = optuna.create_study(study_name="s")
    study.optimize(lambda trial: 0.0, n_trials=2, callbacks=[BeamerCallback(study, beamer.url)])
    assert attached == [("trial-0", 0), ("trial-1", 0)]
    assert "s/trials/trial-1/workers/0/detach" in dict(told(beamer, study))
    study.optimize(lambda trial: 0.0, n_trials=2, n_jobs=2)
    study.tell(study.ask(), 0.0)
    assert len(attached) == 2, "threads share their process, and after `ask` a trial may run anywhere"


def test_an_attachment_that_breaks_leaves_the_next_trial_its_own(
    beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "agent.sock").touch()
    attached: list[str] = []

    class Breaking:
        def __exit__(self, *error: object) -> None:
            raise RuntimeError("a defect")

    def attach(trial: Any, rank: int) -> Any:
        attached.append(trial.name)
        if trial.name == "trial-0":
            raise RuntimeError("a defect")
        return Breaking()

    monkeypatch.setattr(TrialHandle, "attach", attach)
    study = optuna.create_study(study_name="s")
    study.optimize(lambda trial: 0.0, n_trials=3, callbacks=[BeamerCallback(study, beamer.url)])
    assert attached == ["trial-0", "trial-1", "trial-2"]
    ends = [path for path, body in told(beamer, study) if body == {"status": "finished"}]
    assert ends == [f"s/trials/trial-{number}/status" for number in range(3)]


def optimize_and_end(url: str) -> None:
    study = optuna.create_study(study_name="s")
    study.optimize(reporting, n_trials=1, callbacks=[BeamerCallback(study, url)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks beside threads
def test_a_child_of_multiprocessing_tells_its_last_before_it_ends(method: str, beamer: FakeBeamer) -> None:
    child = multiprocessing.get_context(method).Process(target=optimize_and_end, args=(beamer.url,))
    child.start()
    child.join(PATIENCE_S)
    assert child.exitcode == 0
    assert ("/v1/studies/s/trials/trial-0/status", {"status": "finished"}) in beamer.received
    assert has_left(beamer, "s")


def test_a_child_of_multiprocessing_keeps_nothing_of_what_it_has_left(
    beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", threading.current_thread)  # anything but None
    monkeypatch.setattr(integration, "_finalizer", None)
    monkeypatch.setattr(integration, "_of_child", set())
    before = set(multiprocessing.util._finalizer_registry)  # type: ignore[attr-defined]
    searches = []
    for _ in range(3):
        study = optuna.create_study(study_name="s")
        BeamerCallback(study, beamer.url)
        for _ in range(2):
            study.ask()
            optuna_storage.observer_of(study).end()
        told(beamer, study)
        searches.append(weakref.ref(optuna_storage.observer_of(study)))
    added = multiprocessing.util._finalizer_registry.keys() - before  # type: ignore[attr-defined]
    for key in added:
        multiprocessing.util._finalizer_registry[key].cancel()  # type: ignore[attr-defined]
    del study
    gc.collect()
    assert [search() for search in searches] == [None] * 3
    assert len(added) == 1
    assert len(integration._of_child) == 1, "that of the last one"
    assert not integration._taking_part


def test_without_a_controller_one_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    study = optuna.create_study()
    study.optimize(reporting, n_trials=5, callbacks=[BeamerCallback(study, NOBODY)])
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 5
    until(lambda: warnings(caplog))
    assert len(warnings(caplog)) == 1
    assert "does not answer" in warnings(caplog)[0]


def reporting(trial: Any) -> float:
    trial.report(0.0, 1)
    return 0.0


@pytest.mark.parametrize("broken", ["_STORAGE", "_LOCAL"])
def test_a_study_that_is_kept_otherwise_is_optimized_without_beamer(
    broken: str, beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(optuna_storage, broken, "_moved")
    study = optuna.create_study()
    study.optimize(reporting, n_trials=1, callbacks=[BeamerCallback(study, beamer.url)])
    assert study.trials[0].state == TrialState.COMPLETE
    assert beamer.received == []
    (warning,) = warnings(caplog)
    assert optuna.__version__ in warning
    assert "_moved" in warning


def test_a_pruner_that_is_kept_otherwise_leaves_trials_without_milestones(
    beamer: FakeBeamer, caplog: pytest.LogCaptureFixture
) -> None:
    class Moved(optuna.pruners.SuccessiveHalvingPruner):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def prune(self, study: Any, trial: Any) -> bool:
            return False

    study = optuna.create_study(study_name="s", pruner=Moved())
    study.optimize(reporting, n_trials=3, callbacks=[BeamerCallback(study, beamer.url)])
    requests = dict(told(beamer, study))
    assert "s/trials/trial-2/progress" in requests
    assert "s/trials/trial-2/target" not in requests
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "Moved is not what it was" in record.getMessage()
    assert record.exc_info is not None
    assert "_min_resource" in str(record.exc_info[1])


def test_a_defect_reaches_no_program(
    beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study = optuna.create_study()
    callback = BeamerCallback(study, beamer.url)

    def broken(*_: Any) -> Any:
        raise RuntimeError("a defect")

    for name in ("_join", "_adopt", "_end", "_end_left_trials"):
        monkeypatch.setattr(integration._Search, name, broken)
    study.optimize(reporting, n_trials=2, callbacks=[callback])
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    assert len(warnings(caplog)) == len(set(warnings(caplog))) == 4
    monkeypatch.undo()


def test_an_invalid_url_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    study = optuna.create_study()
    study.optimize(reporting, n_trials=1, callbacks=[BeamerCallback(study, "ftp://nowhere")])
    assert len(study.trials) == 1
    assert "ftp://nowhere" in warnings(caplog)[0]


def test_a_callback_is_copied_with_its_study(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s")
    callback = BeamerCallback(study, beamer.url, host="elsewhere")
    for again in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        (copied, url, host) = again._given
        assert copied is not study
        assert (url, host) == (beamer.url, "elsewhere")
        assert optuna_storage.observer_of(copied) is not None


def hang(connection: socket.socket, request: bytes) -> None:
    time.sleep(PATIENCE_S)


@pytest.mark.parametrize("controller", ["there", "absent", "hanging"])
@pytest.mark.parametrize("pruner", ["SuccessiveHalvingPruner", "HyperbandPruner", "MedianPruner"])
def test_a_report_costs_below_a_millisecond(controller: str, pruner: str, beamer: FakeBeamer) -> None:
    def measure(url: str) -> float:
        study = optuna.create_study(pruner=getattr(optuna.pruners, pruner)())
        BeamerCallback(study, url)
        trial = study.ask()
        search = optuna_storage.observer_of(study)
        took_s = []
        for step in range(REPORTS):
            began_s = time.perf_counter()
            search.reported(trial._trial_id, step, 0.5)
            took_s.append(time.perf_counter() - began_s)
            if step % 20 == 0:
                time.sleep(0.001)  # as for the other threads of a trainer
        search.end()
        search._client.close(0.0)
        return statistics.quantiles(took_s, n=100)[-1]

    def least(url: str) -> float:
        return min(measure(url) for _ in range(3))  # Others may have the processor for a while.

    if controller == "hanging":
        with raw_server(hang) as url:
            p99_s = least(url)
    else:
        p99_s = least({"there": beamer.url, "absent": NOBODY}[controller])
    assert p99_s < MAX_P99_S


@pytest.mark.parametrize("name", ["lr=0.1, depth/2", "x" * 101, "/" * 50, "two\nlines", " spaces "])
def test_a_study_may_be_called_as_optuna_allows(name: str, beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name=name)
    BeamerCallback(study, beamer.url)
    study.ask()
    told(beamer, study)
    (known,) = {search._name for search in integration._searches if search.is_of(study)}
    assert check_name(known, "study") == known == study_name(name)
    assert beamer.paths()[-1].startswith(f"/v1/studies/{quote(known, safe='')}/trials/trial-0/")
    assert len(trial_key(known, "trial-1000000")) <= MAX_KEY_CHARACTERS
    assert (known == name) == (name == "lr=0.1, depth/2")
    assert beamer.received


def test_threads_of_one_study_are_told_apart(beamer: FakeBeamer) -> None:
    study = optuna.create_study(study_name="s", pruner=optuna.pruners.NopPruner())
    both: Callable[[], int] = threading.Barrier(2).wait

    def objective(trial: Any) -> float:
        both()
        trial.report(float(trial.number), 1 + trial.number)
        both()
        return 0.0

    study.optimize(objective, n_trials=4, n_jobs=2, callbacks=[BeamerCallback(study, beamer.url)])
    requests = told(beamer, study)
    for number in range(4):
        assert steps_of(f"s/trials/trial-{number}/progress", requests) == [(1 + number, float(number))]
        assert (f"s/trials/trial-{number}/status", {"status": "finished"}) in requests
