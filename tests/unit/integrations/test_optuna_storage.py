"""The view of a study's storage tells what is written as it is written, and is the storage in everything else."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

from beamer.integrations.optuna_storage import observe, observer_of, shared_run, storage_of  # noqa: E402

MAKE: dict[str, Callable[[Path], BaseStorage]] = {
    "in memory": lambda path: InMemoryStorage(),
    "SQLite": lambda path: RDBStorage(f"sqlite:///{path}/study.db"),
    "journal": lambda path: JournalStorage(JournalFileBackend(f"{path}/study.log")),
}
SHARED = ["SQLite", "journal"]
PATIENCE_S = 60.0


class Noted:
    """An observer that keeps what it is told, trials by their numbers."""

    def __init__(self, study: Any) -> None:
        self.study = study
        self.told: list[tuple[Any, ...]] = []

    def number(self, trial_id: int) -> int:
        number: int = self.study._storage.get_trial_number_from_id(trial_id)
        return number

    def started(self, trial_id: int) -> None:
        self.told.append(("started", self.number(trial_id)))

    def reported(self, trial_id: int, step: int, value: float) -> None:
        self.told.append((self.number(trial_id), step, value))

    def ended(self, trial_id: int, state: TrialState) -> None:
        self.told.append((state.name, self.number(trial_id)))

    def optimizing(self, is_within: bool) -> None:
        self.told.append(("within", is_within))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    yield
    optuna.logging.set_verbosity(optuna.logging.INFO)


@pytest.fixture(params=MAKE)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> BaseStorage:
    return MAKE[request.param](tmp_path)


def noted(study: Any) -> Noted:
    observer = Noted(study)
    observe(study, observer)
    return observer


def test_starts_reports_and_ends_are_told_in_order(storage: BaseStorage) -> None:
    study = optuna.create_study(storage=storage)
    observer = noted(study)
    study.add_trial(optuna.create_trial(value=1.0))
    study.tell(study.ask(), state=TrialState.FAIL)
    del observer.told[:]
    study.enqueue_trial({"x": 0.25})
    assert observer.told == [], "a trial that waits does not run"
    study.optimize(lambda trial: objective_of(trial, {2: 0, 3: 1, 4: 2}), n_trials=3, catch=ValueError)
    within, outside = ("within", True), ("within", False)
    assert observer.told == [
        *(within, ("started", 2), (2, 1, 0.5), ("COMPLETE", 2)),
        *(("started", 3), (3, 1, 0.5), ("PRUNED", 3)),
        *(("started", 4), (4, 1, 0.5), ("FAIL", 4)),
        outside,
    ]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL", "COMPLETE", "PRUNED", "FAIL"]
    assert study.trials[2].params == {"x": 0.25}


def objective_of(trial: Any, kinds: dict[int, int]) -> float:
    trial.suggest_float("x", 0.0, 1.0)
    trial.report(0.5, 1)
    kind = kinds[trial.number]
    if kind == 1:
        raise optuna.TrialPruned
    if kind == 2:
        raise ValueError("on purpose")
    return 1.0


def test_an_exception_ends_optimize_too(storage: BaseStorage) -> None:
    study = optuna.create_study(storage=storage)
    observer = noted(study)
    with pytest.raises(ValueError, match="on purpose"):
        study.optimize(lambda trial: objective_of(trial, {0: 2}), n_trials=1)
    assert observer.told[-2:] == [("FAIL", 0), ("within", False)]


def test_a_view_is_the_storage_in_everything_else(storage: BaseStorage) -> None:
    study = optuna.create_study(storage=storage)
    given = study._storage
    noted(study)
    view = study._storage
    assert isinstance(view, type(given))
    assert view is not given
    assert view.__dict__ is given.__dict__
    assert optuna.storages.get_storage(view) is view
    assert storage_of(study) is given
    study.set_user_attr("a", 1)
    assert given.get_study_user_attrs(study._study_id) == {"a": 1}
    with pytest.raises(RuntimeError, match="Nested"):
        study.optimize(lambda trial: study.optimize(lambda _: 0.0, n_trials=1) or 0.0, n_trials=1)


def test_observing_again_takes_the_place_of_the_observer(storage: BaseStorage) -> None:
    study = optuna.create_study(storage=storage)
    first, second = noted(study), noted(study)
    assert observer_of(study) is second
    study.ask()
    assert (first.told, second.told) == ([], [("started", 0)])


def test_other_studies_on_the_storage_are_not_observed(storage: BaseStorage) -> None:
    observed, other = (optuna.create_study(storage=storage, study_name=name) for name in "ab")
    observer = noted(observed)
    other.tell(other.ask(), 1.0)
    assert observer.told == []
    assert observer_of(other) is None


def test_copies_are_not_observed(storage: BaseStorage) -> None:
    study = optuna.create_study(storage=storage)
    observer = noted(study)
    copies = [pickle.loads(pickle.dumps(study))]
    if not isinstance(storage, JournalStorage):  # whose locks of files cannot be copied, with Beamer or without
        copies.append(copy.deepcopy(study))
    for copied in copies:
        assert type(copied._storage) is type(storage_of(study))
        copied.optimize(lambda trial: 0.0, n_trials=1)
    assert observer.told == []


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_heartbeats_go_on_and_a_dead_trial_is_told(tmp_path: Path) -> None:
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=1)
    storage = RDBStorage(
        f"sqlite:///{tmp_path}/study.db", heartbeat_interval=1, grace_period=1, heartbeat_stale_trial_callback=retry
    )
    study = optuna.create_study(storage=storage, study_name="s")
    observer = noted(study)
    assert optuna.storages._heartbeat.is_heartbeat_enabled(study._storage)
    with pytest.warns(UserWarning, match="Heartbeat"):
        dead = study.ask()
    storage.record_heartbeat(dead._trial_id)
    threading.Event().wait(2.2)  # longer than the grace period, in whole seconds of SQLite
    study.optimize(lambda trial: 1.0, n_trials=1)
    assert [one for one in observer.told if one[0] != "within"] == [
        ("started", 0), ("FAIL", 0), ("started", 1), ("COMPLETE", 1)
    ]  # fmt: skip
    assert study.trials[1].system_attrs["failed_trial"] == 0


@pytest.mark.parametrize("enqueued", [0, 2])
@pytest.mark.parametrize("kind", SHARED)
def test_processes_of_a_study_share_its_run(kind: str, enqueued: int, tmp_path: Path) -> None:
    made = optuna.create_study(storage=MAKE[kind](tmp_path), study_name="s")
    for _ in range(enqueued):
        made.enqueue_trial({})
    begin, runs = threading.Barrier(4), []

    def join() -> None:
        study = optuna.load_study(storage=MAKE[kind](tmp_path), study_name="s")
        begin.wait(PATIENCE_S)
        study.ask()
        runs.append(shared_run(storage_of(study), study._study_id))

    threads = [threading.Thread(target=join) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(runs) == 4
    assert len(set(runs)) == 1
    made.tell(0, 1.0)
    assert shared_run(storage_of(made), made._study_id) == runs[0]


def test_another_study_has_another_run(storage: BaseStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = set()
    for _ in range(2):
        for name in "ab":
            study = optuna.create_study(storage=storage, study_name=name)
            study.ask()
            runs.add(shared_run(storage_of(study), study._study_id))
            optuna.delete_study(storage=storage, study_name=name)
        threading.Event().wait(1.1)  # Of a study that was deleted, another one may have the ids, but not the second.
    assert len(runs) == 4


def test_a_new_optuna_has_kept_what_a_view_rests_on() -> None:
    study = optuna.create_study()
    names = ("_storage", "_study_id", "_thread_local")
    broken = [f"Study.{name}" for name in names if not hasattr(study, name)]
    observer = noted(study)
    study.optimize(lambda trial: 1.0, n_trials=1)
    told = [("within", True), ("started", 0), ("COMPLETE", 0), ("within", False)]
    lost = [f"the storage or the loop no longer tells {one}" for one in told if one not in observer.told]
    assert broken + lost == [], f"Optuna {optuna.__version__}: beamer/integrations/optuna_storage.py has to see it otherwise"
