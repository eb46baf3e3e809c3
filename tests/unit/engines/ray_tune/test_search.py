"""Searches of trials under the GPU scheduler, on a Tune without Ray: halving, targets, failures, policies, journals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

import pytest

from beamer.engines.ray_tune.engine import PROCEED_S, RayTuneEngine, Result, TuneDecision
from beamer.engines.ray_tune.search import TuneSearch
from beamer.errors import InputError
from beamer.gpu.decider import by_policy
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.events import Allocated, TrialReported
from beamer.gpu.model import Node, Request
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from beamer.studies.asynchronous_halving import AsynchronousHalving
from beamer.studies.events import Event, StageSealed, TargetSet, TrialEnded
from beamer.studies.model import Rung, StudyStatus, TrialStatus
from tests.support.fake_tune import START_S, STEP_S, FakeTrial, FakeTune

NODES = (Node("n0", 2), Node("n1", 2))
RUNGS = (Rung("r0", 6, 2), Rung("r1", 3, 4), Rung("r2", 1, 8))
LEVELS = {"a": 0.5, "b": 0.1, "c": 0.7, "d": 0.3, "e": 0.9, "f": 0.8}
SLICES = {"round-robin": {"quantum_s": 4.0}, "pollux": {"interval_s": 6.0}}


@dataclass
class Driver:
    """What Tune's scheduler does, in short: results, failures and turns of the loop lead to steps."""

    policy: str = "fifo"
    rungs: tuple[Rung, ...] | AsynchronousHalving = ()
    request: Request = field(default=Request(8, max_gpus=2, batch_size=8))
    stop_at_target: bool = False
    saves_every: int = 1
    nodes: tuple[Node, ...] = NODES
    levels: Mapping[str, float] = field(default_factory=lambda: LEVELS)
    journal: list[Event] = field(default_factory=list)
    is_sealed: bool = True

    def __post_init__(self) -> None:
        self.tune = FakeTune(self.nodes)
        self.open()
        self.tune.on_loop = self.turn
        self.tune.on_result = self.result
        self.tune.on_failure = lambda trial: self.search.engine.add(trial)
        for name, level in self.levels.items():
            self.tune.trials[name] = FakeTrial(lambda i, level=level: level + 1 / (1 + i), self.saves_every)  # type: ignore[misc]
            self.add(name)
        if self.is_sealed:
            self.search.seal(0.0)

    def open(self) -> None:
        policy = by_policy(gpu_policy(self.policy, **SLICES.get(self.policy, {})))
        self.search = TuneSearch(
            "s",
            policy,
            self.tune,
            self.rungs,
            stop_at_target=self.stop_at_target,
            past=tuple(self.journal),
            write=self.journal.append,
        )

    def add(self, name: str) -> None:
        self.search.engine.add(name)
        if not self.search.has_job(name):
            self.search.submit(name, self.request, self.tune.now)

    def turn(self) -> None:
        self.search.step(self.tune.now)
        self.search.engine.apply(self.tune.now)

    def result(self, trial: str, result: Result) -> TuneDecision:
        if trial in self.search.engine.trials:
            self.search.engine.record(trial, result, self.tune.now)
            self.search.step(self.tune.now)
        return self.search.engine.decide(trial)

    def run(self, until: Callable[[], bool] | None = None, turns: int = 400) -> "Driver":
        until = until or (lambda: all(trial.status in ("TERMINATED", "ERROR") for trial in self.tune.trials.values()))
        for _ in range(turns):
            if until():
                return self
            self.tune.advance()
        raise AssertionError(self.tune.trials)

    def iterations(self) -> dict[str, int]:
        return {name: trial.iteration for name, trial in self.tune.trials.items()}

    def ends(self) -> dict[str, TrialStatus]:
        return {event.trial: event.status for event in self.journal if isinstance(event, TrialEnded)}


@pytest.mark.parametrize("policy", GPU_POLICIES)
def test_every_policy_runs_all_trials_to_their_end(policy: str) -> None:
    driver = Driver(policy).run()
    assert driver.iterations() == dict.fromkeys(LEVELS, 8)
    assert driver.ends() == {f"s/{name}": TrialStatus.FINISHED for name in LEVELS}


@pytest.mark.parametrize("policy", GPU_POLICIES)
def test_losers_are_stopped_at_the_rungs_under_every_policy(policy: str) -> None:
    driver = Driver(policy, RUNGS).run()
    assert driver.iterations() == {"a": 4, "b": 8, "c": 2, "d": 4, "e": 2, "f": 2}
    assert [event.stage for event in driver.journal if isinstance(event, StageSealed)] == ["r0", "r1", "r2"]
    reports = [e.report.iteration for e in driver.journal if isinstance(e, TrialReported) and e.trial == "s/b" and e.report]
    assert reports == list(range(1, 9)), "each once"
    assert driver.ends() == {f"s/{name}": TrialStatus.FINISHED if name == "b" else TrialStatus.KILLED for name in LEVELS}
    assert driver.search.tracker.study("s").status is StudyStatus.ENDED
    ended = driver.search.ledger.ended
    driver.open()
    assert driver.search.ledger.ended.keys() == ended.keys()
    assert all(driver.search.ledger.ended[key].reports == job.reports for key, job in ended.items())


@pytest.mark.parametrize("finite", [0, 1])
def test_a_rung_without_a_finite_loss_is_not_judged(finite: int) -> None:
    levels = {name: level if place < finite else inf for place, (name, level) in enumerate(LEVELS.items())}
    driver = Driver("fifo", RUNGS, levels=levels)
    trials = driver.tune.trials
    driver.run(lambda: bool(driver.search.rung_without_loss) or {trial.status for trial in trials.values()} == {"TERMINATED"})
    if finite:
        assert not driver.search.rung_without_loss
        assert driver.ends()["s/a"] is TrialStatus.FINISHED
    else:
        assert driver.search.rung_without_loss == "r0"
        assert driver.ends() == {}
        assert {event.stage for event in driver.journal if isinstance(event, TargetSet)} == {"r0"}, "nobody is promoted"
        driver.open()
        assert driver.search.rung_without_loss == "r0", "by the journal, too"


@pytest.mark.parametrize("policy", GPU_POLICIES)
def test_trials_run_on_or_end_at_the_rungs_of_asynchronous_halving(policy: str) -> None:
    driver = Driver(policy, AsynchronousHalving(8, 2)).run()
    iterations = driver.iterations()
    assert iterations["b"] == 8, "the best is never ended"
    assert set(iterations.values()) <= {1, 2, 4, 8}
    assert min(iterations.values()) == 1
    ends = driver.ends()
    assert ends == {f"s/{name}": TrialStatus.FINISHED if iterations[name] == 8 else TrialStatus.KILLED for name in LEVELS}
    assert driver.search.tracker.study("s").status is StudyStatus.ENDED
    driver.open()
    assert driver.search.ledger.ended.keys() == ends.keys()


def test_no_trial_waits_for_others_in_asynchronous_halving() -> None:
    driver = Driver("fifo", AsynchronousHalving(8, 2)).run()
    assert {trial.launches for trial in driver.tune.trials.values()} == {1}
    for rungs, has_barriers in ((RUNGS, True), (AsynchronousHalving(8, 2), False)):
        driver = Driver("fifo", rungs, is_sealed=False)
        jobs = driver.search.ledger.submitted(driver.search.tracker)
        assert {job.stage.has_barrier for job in jobs} == {has_barriers}


def test_what_a_search_has_heard_of_losses_is_known_by_its_journal_too() -> None:
    driver = Driver("fifo", RUNGS, is_sealed=False)
    search = driver.search
    assert (search.has_loss, search.last_loss("a"), search.engine.target("a")) == (False, inf, inf)
    driver.run(lambda: driver.tune.trials["a"].iteration == 1)
    assert (search.has_loss, search.last_loss("a"), search.engine.target("a")) == (True, 1.0, RUNGS[0].step)
    assert search.trials is None
    search.seal(driver.tune.now)
    assert search.trials == len(LEVELS)
    driver.open()
    assert (driver.search.has_loss, driver.search.last_loss("a")) == (True, 1.0)


def test_a_trial_that_is_promoted_where_it_runs_is_not_paused() -> None:
    levels = {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.2, "e": 0.6, "f": 0.1}
    driver = Driver("fifo", RUNGS, nodes=(Node("n0", 4),), levels=levels).run()
    assert driver.iterations() == {"a": 2, "b": 2, "c": 4, "d": 4, "e": 2, "f": 8}
    assert driver.tune.trials["f"].launches == 1
    assert driver.tune.trials["c"].launches == 1, "its verdict came later than its result, but nobody wanted its GPU"
    assert driver.tune.trials["d"].launches == 1


def test_a_trial_that_waits_for_its_verdict_is_paused_only_if_another_wants_its_gpus() -> None:
    rungs = (Rung("r0", 4, 2), Rung("r1", 2, 4))
    driver = Driver("fifo", rungs, nodes=(Node("n0", 3),), levels={"a": 0.2, "b": 0.1}, is_sealed=False)
    trials = driver.tune.trials
    driver.run(lambda: trials["a"].held and trials["b"].held)
    assert driver.search.engine.report() == {}, "to the GPU scheduler their GPUs are free"
    for _ in range(5):
        driver.tune.advance()
    assert driver.iterations() == {"a": 2, "b": 2}
    for name in "cd":
        trials[name] = FakeTrial(lambda i: 0.3 + 1 / (1 + i))
        driver.add(name)
    driver.search.seal(driver.tune.now)
    driver.run(lambda: trials["c"].iteration > 0)
    assert sorted(trials[name].status for name in "ab") == ["PAUSED", "RUNNING"], "one GPU was free"
    driver.run()
    assert driver.iterations() == {"a": 4, "b": 4, "c": 2, "d": 2}
    assert sorted(trials[name].launches for name in "ab") == [1, 2]


def test_the_process_of_a_loser_waits_while_trials_without_one_may_be_promoted() -> None:
    # the best two come first and leave their GPUs to the others before their verdict
    levels = {"a": 0.1, "b": 0.2, "c": 0.5, "d": 0.3}
    driver = Driver("fifo", (Rung("r0", 4, 2), Rung("r1", 2, 4)), nodes=(Node("n0", 2),), levels=levels)
    decisions: dict[str, list[TuneDecision]] = {}

    def result(trial: str, result: Result) -> TuneDecision:
        decision = driver.result(trial, result)
        decisions.setdefault(trial, []).append(decision)
        return decision

    driver.tune.on_result = result
    driver.run()
    assert driver.iterations() == {"a": 4, "b": 4, "c": 2, "d": 2}
    assert decisions["a"][1] is decisions["b"][1] is TuneDecision.PAUSE
    assert decisions["c"][-1] is decisions["d"][-1] is TuneDecision.HOLD
    assert decisions["a"][-1] is decisions["b"][-1] is TuneDecision.STOP
    assert not driver.search.engine.trials


def test_a_policy_knows_how_many_go_on_though_the_next_rung_has_begun() -> None:
    driver = Driver("fifo", RUNGS)
    stages = set()

    def observed() -> bool:
        jobs = driver.search.ledger.submitted(driver.search.tracker)
        if {job.stage.name for job in jobs} > {"r0"}:
            stages.update((job.stage.name, job.stage.keeps) for job in jobs)
        return all(trial.status == "TERMINATED" for trial in driver.tune.trials.values())

    driver.run(observed)
    assert {("r0", 3), ("r1", 1)} <= stages


def test_trials_that_can_be_paused_with_some_results_only_lose_no_step() -> None:
    driver = Driver("round-robin", saves_every=3, request=Request(9)).run()
    assert driver.iterations() == dict.fromkeys(LEVELS, 9)
    assert max(trial.launches for trial in driver.tune.trials.values()) > 1
    for name in LEVELS:
        reports = [
            e.report.iteration for e in driver.journal if isinstance(e, TrialReported) and e.trial[-1] == name and e.report
        ]
        assert reports == list(range(1, 10))


def test_what_starts_took_is_known_as_their_cost() -> None:
    driver = Driver("round-robin").run()
    costs = [event.costs for event in driver.journal if isinstance(event, TrialReported) and event.costs]
    assert costs
    assert all(cost.restart_s >= START_S - STEP_S for cost in costs)
    assert all(cost.resume_s in (cost.restart_s, PROCEED_S) for cost in costs)
    speeds = [speed for event in driver.journal if isinstance(event, TrialReported) for speed in event.speeds]
    assert {(speed.gpus, speed.nodes, speed.batch_size, speed.step_s) for speed in speeds} == {(1, 1, 8, STEP_S)}


def test_a_start_that_waits_for_gpus_is_withdrawn_and_one_that_has_them_is_not() -> None:
    tune = FakeTune(NODES)
    engine = RayTuneEngine(tune, lambda job: Request(10))
    tune.drive(engine)
    for name in "ab":
        tune.trials[name] = FakeTrial(lambda iteration: 1.0)
        engine.add(name)
        engine.start(f"s/{name}", Placement((("n0", 0), ("n0", 1))))
    engine.apply(tune.now)
    tune.advance()
    assert [tune.has_gpus(name) for name in "ab"] == [True, False]
    for name in "ab":
        engine.suspend(f"s/{name}")
    assert [engine.report()[f"s/{name}"].state for name in "ab"] == [RunState.STOPPING, RunState.PARKED]
    engine.apply(tune.now)
    assert [tune.status(name) for name in "ab"] == ["PENDING", "PAUSED"]
    while tune.status("a") != "PAUSED":
        tune.advance()
    assert [trial.saved for trial in tune.trials.values()] == [1, 0]


def test_the_search_ends_with_the_first_trial_that_meets_the_target() -> None:
    driver = Driver(request=Request(500, target_loss=0.31), stop_at_target=True).run()
    assert driver.ends() == {f"s/{name}": TrialStatus.FINISHED if name == "b" else TrialStatus.KILLED for name in LEVELS}
    assert driver.search.is_over
    assert driver.iterations()["b"] == 4


def test_a_trial_that_failed_for_good_gives_its_place_to_others() -> None:
    driver = Driver("fifo", RUNGS)
    driver.run(lambda: driver.tune.trials["b"].iteration == 1)
    driver.tune.fail("b", "out of memory")
    driver.run()
    assert driver.ends()["s/b"] is TrialStatus.FAILED
    assert driver.iterations() == {"a": 4, "b": 1, "c": 4, "d": 8, "e": 2, "f": 2}


def test_trials_of_a_lost_node_continue_elsewhere() -> None:
    driver = Driver("fifo")
    driver.run(lambda: driver.tune.trials["a"].iteration == 3)
    driver.tune.lose("n0")
    driver.run()
    assert driver.iterations() == dict.fromkeys(LEVELS, 8)
    assert sum(trial.launches for trial in driver.tune.trials.values()) > len(LEVELS)


def test_a_trial_that_tune_ends_is_killed() -> None:
    driver = Driver("fifo", RUNGS)
    driver.run(lambda: driver.tune.trials["b"].iteration == 1)
    driver.tune.stop("b")
    driver.search.engine.forget("b")
    driver.run()
    assert driver.ends()["s/b"] is TrialStatus.KILLED
    assert driver.iterations()["d"] == 8


@pytest.mark.parametrize("policy", ["fifo", "hermes", "round-robin"])
def test_a_search_that_is_restored_knows_what_its_predecessor_knew(policy: str) -> None:
    driver = Driver(policy, RUNGS)
    driver.run(lambda: any(event.stage == "r1" for event in driver.journal if isinstance(event, TargetSet)))
    allocation = driver.search.ledger.decision
    driver.open()
    assert driver.search.ledger.decision == allocation
    for name, trial in driver.tune.trials.items():
        if trial.status in ("PENDING", "RUNNING", "PAUSED"):
            driver.tune.fail(name)
            driver.add(name)
    driver.run()
    assert driver.iterations() == {"a": 4, "b": 8, "c": 2, "d": 4, "e": 2, "f": 2}
    generations = [event.generation for event in driver.journal if isinstance(event, Allocated)]
    assert generations == sorted(set(generations))
    with pytest.raises(InputError, match="a journal of study other alone"):
        TuneSearch("other", by_policy(gpu_policy("fifo")), driver.tune, past=driver.journal)
