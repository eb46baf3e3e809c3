"""What a controller is told of a search of Ray Tune, whose trials and scheduler are doubles here: no Ray is needed."""

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beamer.client import Client
from beamer.integrations.ray_tune.schedule import Barrier, Schedule
from beamer.integrations.ray_tune.search import CONTINUE, ERROR, PAUSE, RUNNING, STOP, TERMINATED, ReportedSearch
from beamer.integrations.ray_tune.values import loss_of, step_of, stop_step
from beamer.studies.model import Process
from beamer.studies.records import StudyRecord, TrialRecord
from tests.support.served_controller import Served, served
from topologies.single import build

NODE = [("127.0.0.3", "gpu-7")]
CLIENTS: list[Client] = []  # that are open


@dataclass(eq=False)
class Trial:
    trial_id: str
    status: str = "PENDING"
    stopping_criterion: dict[str, float] = field(default_factory=dict)


@dataclass
class Steps(Schedule):
    """A schedule whose trials are judged every `interval` steps, up to `max_step`; with members, they wait for each other."""

    interval: int
    max_step: int | None = None
    has_barriers: bool = False
    members: tuple[Trial, ...] = ()
    is_closed: bool = False
    step: int = 0

    def next_step(self, trial: Any, step: int) -> int | None:
        return None if self.has_barriers else step - step % self.interval + self.interval

    def state(self) -> object:
        return self.members, self.step, self.is_closed

    def barriers(self, is_search_over: bool) -> Iterable[Barrier]:
        closed = self.is_closed or is_search_over
        if self.members:
            yield Barrier(f"to-{self.step}", self.step, self.members, closed)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(build(hosts=2), tmp_path / "journal.db") as one:
        yield one
        while CLIENTS:
            CLIENTS.pop().close()


class Search:
    """A search and what a controller knows of it."""

    def __init__(self, controller: Served, schedule: Steps) -> None:
        self._controller = controller
        self._client = Client(controller.url)
        CLIENTS.append(self._client)
        self.tune = ReportedSearch(self._client, "s", schedule, "accuracy", "max", None, lambda node: "h1")

    def study(self) -> StudyRecord:
        assert self._client.flush(10)
        return self._controller.ask(lambda runtime: runtime.tracker.studies["s"])

    def trial(self, name: str) -> TrialRecord:
        return self.study().trials[name]

    def begin(self, trial: Trial, step: int = 0) -> None:
        trial.status = RUNNING
        self.tune.begin(trial, step)
        self.tune.start(trial, NODE, None)

    def report(self, trial: Trial, step: int, decision: str | None = CONTINUE, done: bool = False) -> None:
        self.tune.report(trial, {"training_iteration": step, "accuracy": 0.75, "done": done}, decision)


def milestones(trial: TrialRecord) -> list[int]:
    return [target.step for target in trial.unreached]


def test_milestones_go_ahead_of_a_trial_and_never_beyond_its_budget(controller: Served) -> None:
    search, trial = Search(controller, Steps(4)), Trial("a", stopping_criterion={"training_iteration": 6})
    search.begin(trial)
    assert (search.trial("a").budget, milestones(search.trial("a"))) == (6, [4])
    search.report(trial, 4)
    assert (search.trial("a").done, search.trial("a").loss, milestones(search.trial("a"))) == (4, -0.75, [6])
    search.report(trial, 6, None, done=True)
    search.tune.end(trial)
    assert search.trial("a").status.value == "finished"
    search.tune.close()
    assert (search.study().status.value, [target.step for target in search.trial("a").targets]) == ("ended", [4, 6])


def test_a_copy_begins_again_at_the_step_of_the_trial_that_it_copies(controller: Served) -> None:
    search, trial = Search(controller, Steps(4)), Trial("a")
    search.begin(trial)
    for step in range(1, 9):
        search.report(trial, step, "NOOP" if step == 8 else CONTINUE)
    trial.status = "PAUSED"
    search.tune.compare()
    assert (search.trial("a").status.value, milestones(search.trial("a"))) == ("paused", [])
    search.begin(trial, 4)
    assert (search.trial("a").done, milestones(search.trial("a"))) == (4, [8])
    search.report(trial, 5)
    assert (search.trial("a").done, len(search.trial("a").attempts)) == (5, 2)


@pytest.mark.parametrize(
    ("decision", "step", "status", "end"),
    [
        (STOP, 3, RUNNING, "killed"),
        (STOP, 9, RUNNING, "finished"),  # max_t of the scheduler
        (None, 3, RUNNING, "finished"),  # the trial said so, or a criterion of the Tuner
        (PAUSE, 3, "PAUSED", "killed"),
        (PAUSE, 9, "PAUSED", "finished"),
        (PAUSE, 3, RUNNING, "killed"),  # while it was being saved
    ],
)
def test_who_ended_a_trial(controller: Served, decision: str | None, step: int, status: str, end: str) -> None:
    search, trial = Search(controller, Steps(4, max_step=9)), Trial("a")
    search.begin(trial)
    search.report(trial, step, decision, done=decision != PAUSE)
    trial.status = status
    search.tune.end(trial)
    assert search.trial("a").status.value == end


def test_ends_for_which_tune_has_no_callback_are_seen(controller: Served) -> None:
    search, trials = Search(controller, Steps(4)), [Trial("a"), Trial("b"), Trial("c")]
    search.tune.add_new(trials)
    for trial in trials:
        search.begin(trial)
    trials[0].status, trials[1].status = TERMINATED, ERROR
    search.tune.compare()
    assert {name: trial.status.value for name, trial in search.study().trials.items()} == {
        "a": "killed",
        "b": "failed",
        "c": "running",
    }
    search.tune.close()
    assert search.trial("c").status.value == "killed"


def test_trials_are_registered_in_the_order_in_which_tune_adds_them(controller: Served) -> None:
    search, trials = Search(controller, Steps(4)), [Trial("a"), Trial("b")]
    search.tune.add_new(trials)
    trials = [trials[1], Trial("c"), trials[0]]  # the first is tried again
    search.tune.add_new(trials)
    search.tune.add_new(trials)
    assert list(search.study().trials) == ["a", "b", "c"]


def test_trials_that_had_ended_when_an_experiment_was_restored_are_not_registered(controller: Served) -> None:
    search = Search(controller, Steps(4))
    trials = [Trial("a", TERMINATED), Trial("b", ERROR), Trial("c"), Trial("d", "PAUSED")]
    search.tune.add_new(trials)
    search.tune.compare()
    assert list(search.study().trials) == ["c", "d"]
    search.tune.close()
    assert {name: trial.status.value for name, trial in search.study().trials.items()} == {"c": "killed", "d": "killed"}


def test_a_stage_waits_for_its_trials_and_is_sealed_when_none_joins(controller: Served) -> None:
    a, b = Trial("a"), Trial("b")
    schedule = Steps(4, has_barriers=True, members=(a,), step=4)
    search = Search(controller, schedule)
    search.tune.add_new([a])
    search.tune.update_stages(False)
    search.tune.add_new([a, b])
    schedule.members = (a, b)
    search.tune.update_stages(False)
    stage = search.study().stages["to-4"]
    assert (dict(stage.targets), stage.status.value) == ({"a": 4, "b": 4}, "open")
    for trial in (a, b):
        search.begin(trial)
        search.report(trial, 4, PAUSE)
    schedule.step, schedule.members, schedule.is_closed = 8, (a,), True
    search.tune.update_stages(False)
    stages = search.study().stages
    assert {name: (dict(stage.targets), stage.status.value) for name, stage in stages.items()} == {
        "to-4": ({"a": 4, "b": 4}, "done"),
        "to-8": ({"a": 8}, "sealed"),
    }
    search.tune.close()
    assert {stage.status.value for stage in search.study().stages.values()} == {"done"}


def test_the_process_of_a_trial_may_be_known_later_than_its_node(controller: Served) -> None:
    search, trial = Search(controller, Steps(4)), Trial("a")
    search.begin(trial)
    search.tune.start(trial, NODE, Process(4711, 12, 13))
    [attempt] = search.trial("a").attempts.values()
    assert [process.pid for process in attempt.processes.values()] == [4711]


def test_values_of_results() -> None:
    assert step_of({"training_iteration": 3}) == 3
    assert step_of({}) is None
    assert loss_of({"a": {"b": 2}}, "a/b", "min") == 2
    assert loss_of({"a/b": 2}, "a/b", "max") == -2
    assert [loss_of({"a": "x"}, "a", "min"), loss_of({}, "a", "min"), loss_of({"a": 1}, "a", None)] == [None] * 3
    both = SimpleNamespace(_stoppers=[SimpleNamespace(_max_iter=9), SimpleNamespace()])
    assert stop_step(Trial("a", stopping_criterion={"training_iteration": 12, "loss": 0.1}), both) == 9
    assert stop_step(Trial("a"), None) is None


@contextmanager
def away() -> Iterator[str]:
    """Yield the URL of a controller that is not there."""
    yield "http://127.0.0.1:9"


@contextmanager
def hanging() -> Iterator[str]:
    """Yield the URL of a controller that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("controller_that_fails", [away, hanging])
def test_a_report_takes_less_than_a_millisecond_whatever_becomes_of_the_controller(
    controller_that_fails: Callable[[], AbstractContextManager[str]], caplog: pytest.LogCaptureFixture
) -> None:
    with controller_that_fails() as url:
        client = Client(url)
        search = ReportedSearch(client, "s", Steps(4), "accuracy", "max", None, lambda node: "h1")
        trials = [Trial(f"t{i}") for i in range(100)]
        search.add_new(trials)
        for trial in trials:
            trial.status = RUNNING
            search.begin(trial, 0)
            search.start(trial, NODE, None)
        took_s = [step_s(search, trials, step) for step in range(1, 31)]
        wall_s, own_s = (sorted(one for step in took_s for one in step[i]) for i in (0, 1))
        # Other processes take the core now and then, so that the thread's own time is what a report takes at most.
        assert own_s[len(own_s) * 99 // 100] < 1e-3
        assert wall_s[len(wall_s) * 9 // 10] < 1e-3, "reports wait for something"
        client.close(0)


def step_s(search: ReportedSearch, trials: list[Trial], step: int) -> tuple[list[float], list[float]]:
    """Report a step of every trial; return the seconds that each report took, and those of the thread alone."""
    wall_s, own_s = [], []
    for trial in trials:
        begin_s, own_begin_s = time.perf_counter(), time.thread_time()
        search.report(trial, {"training_iteration": step, "accuracy": 0.5}, CONTINUE)
        search.add_new(trials)
        search.compare()
        search.update_stages(False)
        wall_s.append(time.perf_counter() - begin_s)
        own_s.append(time.thread_time() - own_begin_s)
    return wall_s, own_s
