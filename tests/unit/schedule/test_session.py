"""Searches on a simulated cluster: what survives the death of the command, what ends at the target, and what is counted."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.gpu.decider import by_policy
from beamer.gpu.devices import Devices
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.events import Allocated, GpusRequested, RunFailed, RunFinished, TrialReported
from beamer.gpu.model import Costs, Grant, Node, Report, Request
from beamer.gpu.policy_settings import gpu_policy_of
from beamer.gpu.tuners import HalvingTuner
from beamer.schedule.file import Search, parse
from beamer.schedule.report import TrialRow, best_of, document, lines, ranked, remarks, rows, stopped_on_nothing
from beamer.schedule.session import ENOUGH_UNREAD, SearchSession
from beamer.schedule.statistics import SearchStatistics, TrialCounts
from beamer.studies.events import Event, StageRegistered, StageSealed, StudyEnded, TargetSet, TrialEnded, TrialRegistered
from beamer.studies.model import Rung, TrialStatus
from beamer.testing.gpu_policies import Exponential
from tests.support.flawed_engines import REASON, Flaw, FlawedCluster
from tests.support.schedule_inputs import BASE, changed

RUNGS = (Rung("r0", 3, 5), Rung("r1", 2, 10), Rung("r2", 1, 20))


def target(trial: str, rung: int, at_s: float) -> TargetSet:
    return TargetSet(at_s, f"s/{trial}", RUNGS[rung].step, RUNGS[rung].name)


def killed(trial: str, at_s: float) -> TrialEnded:
    return TrialEnded(at_s, f"s/{trial}", TrialStatus.KILLED)


def failed(trial: str, at_s: float) -> TrialEnded:
    return TrialEnded(at_s, f"s/{trial}", TrialStatus.FAILED)


def tuner_of_three(early: bool) -> HalvingTuner:
    """Return a tuner of three trials that have joined the first rung."""
    tuner = HalvingTuner("s", RUNGS, early=early)
    joined = [list(tuner.judge(TrialRegistered(0.0, "s", trial))) for trial in "abc"]
    assert joined == [[StageRegistered(0.0, "s", "r0"), target("a", 0, 0.0)], [target("b", 0, 0.0)], [target("c", 0, 0.0)]]
    assert not list(tuner.judge(TrialRegistered(0.0, "s", "a", 20))), "a budget is no other trial"
    assert not list(tuner.judge(TrialRegistered(0.0, "z", "d")))
    return tuner


def test_trials_that_failed_go_no_further() -> None:
    tuner = tuner_of_three(early=False)
    for trial, loss in (("a", 0.1), ("b", 0.5), ("c", float("nan"))):
        assert not list(tuner.judge(TrialReported(0.0, f"s/{trial}", Report(0.0, 5, loss, 1.0))))
    assert not list(tuner.judge(failed("a", 1.0)))
    assert not list(tuner.judge(failed("c", 2.0)))
    assert list(tuner.judge(RunFinished(3.0, "s/b", 5))) == [
        StageSealed(3.0, "s", "r0"), StageRegistered(3.0, "s", "r1"), target("b", 1, 3.0),
    ]  # fmt: skip
    assert not list(tuner.judge(StageSealed(3.0, "s", "r0"))), "its own event leads to nothing"
    assert not tuner.done
    assert list(tuner.judge(failed("b", 4.0))) == [StageSealed(4.0, "s", "r1")]
    assert tuner.done, "nobody is left for the last rung"


@pytest.mark.parametrize("early", [False, True])
def test_trials_are_promoted_when_the_rung_is_over_or_as_soon_as_it_is_certain(early: bool) -> None:
    tuner = tuner_of_three(early)
    found = []
    for at_s, (trial, loss) in enumerate((("a", 0.2), ("b", 0.1), ("c", float("-inf")))):
        list(tuner.judge(TrialReported(0.0, f"s/{trial}", Report(0.0, 5, loss, 1.0))))
        found.append(list(tuner.judge(RunFinished(float(at_s), f"s/{trial}", 5))))
    opened, sealed = StageRegistered(2.0, "s", "r1"), StageSealed(2.0, "s", "r0")
    assert found[0] == []
    if early:
        assert found[1] == [StageRegistered(1.0, "s", "r1"), target("b", 1, 1.0)]
        assert found[2] == [killed("c", 2.0), opened, target("a", 1, 2.0)]
    else:
        assert found[1:] == [[], [killed("c", 2.0), sealed, opened, target("b", 1, 2.0), target("a", 1, 2.0)]]
    assert not list(tuner.judge(killed("c", 2.0))), "its own event leads to nothing"
    assert list(tuner.judge(sealed)) == ([StageSealed(2.0, "s", "r1")] if early else [])


def test_the_statistics_count_what_moves_and_what_was_parked() -> None:
    statistics = SearchStatistics()

    def allocate(number: int, **grants: str) -> None:
        given = {f"s/{job}": Grant.of({node: 1}) for job, node in grants.items()}
        devices = {f"s/{job}": ((node, 0),) for job, node in grants.items()}
        statistics.apply(Allocated(float(number), "p", number, None, given, devices))

    for job in "ab":
        statistics.apply(GpusRequested(0.0, f"s/{job}", Request(iterations=1)))
    allocate(1, a="m", b="n")
    allocate(2, a="m")
    allocate(3, a="m", b="n")
    assert statistics.counts == {"s/a": TrialCounts(), "s/b": TrialCounts(1, 0)}, "b was resumed where it was"
    allocate(4, a="n")
    assert statistics.counts == {"s/a": TrialCounts(0, 1), "s/b": TrialCounts(2, 0)}
    allocate(5)
    allocate(6, a="n", b="m")
    assert statistics.counts == {"s/a": TrialCounts(1, 2), "s/b": TrialCounts(2, 1)}, (
        "what was parked has no memory to go on with"
    )
    assert statistics.decisions == 6
    statistics.apply(RunFinished(7.0, "s/a", 1))
    allocate(8, b="m")
    allocate(9, a="m", b="m")
    assert statistics.counts["s/a"] == TrialCounts(1, 2), "nothing was taken from it, and it was given a farther target"


def test_failures_are_counted_apart_from_what_policies_do() -> None:
    statistics = SearchStatistics()
    statistics.apply(GpusRequested(0.0, "s/a", Request(iterations=9)))
    grants, devices = {"s/a": Grant.of({"m": 1})}, {"s/a": (("m", 0),)}
    statistics.apply(Allocated(1.0, "p", 1, None, grants, devices))
    statistics.apply(RunFailed(2.0, "s/a", 1, "it broke"))
    statistics.apply(Allocated(3.0, "p", 2, None, grants, {"s/a": (("m", 1),)}))
    assert statistics.counts == {"s/a": TrialCounts(failures=1)}, "a start after a failure is no restart that was decided"


def test_a_row_says_why_it_failed_and_what_was_refused() -> None:
    commands = Commands(halving(retries=1), "fifo")
    flaws = {"s/c": Flaw((2.0,), always=True), "s/d": Flaw((4.0,)), "s/e": Flaw(lies=Report(0.0, 1e30, -1e308, 1.0))}
    commands.engine = FlawedCluster([Node("n", 2)], commands.engine.jobs, lambda key: commands.session.target(key), flaws)
    session = commands.run(killed=False)
    found = rows(commands.search, session.ledger, session.statistics, commands.engine.now)
    by_name = {row.name: row for row in found}
    assert [row.name for row in found][-1] == "c", "what failed is last"
    assert (by_name["c"].status, by_name["c"].failures, by_name["c"].reason) == ("failed", 2, REASON)
    assert (by_name["d"].failures, by_name["d"].reason, by_name["d"].refused) == (1, REASON, "")
    assert by_name["e"].refused.startswith("report.iteration: got 1e+30")
    assert remarks(found) == [
        f"d failed once, and was started again: {REASON}",
        f"e: {by_name['e'].refused}",
        f"c failed 2 times, the last time: {REASON}",
    ]
    assert f"c has failed once: {REASON}" in commands.lines
    assert f"c has failed 2 times, the last time: {REASON}" in commands.lines
    figures = document(commands.search, "fifo", found, session.statistics, 0.0, commands.engine.now)
    assert figures["best"] == "b"
    assert [row["failures"] for row in figures["configurations"]] == [row.failures for row in found]


def test_a_configuration_that_failed_is_not_the_best() -> None:
    failed_row = TrialRow("a", {}, TrialStatus.FAILED, "", 5.0, 1e-9, 1e-9, 1.0, 1.0, 0, 0, 3, "it broke")
    sound_row = TrialRow("b", {}, TrialStatus.FINISHED, "", 9.0, 0.5, 0.4, 1.0, 1.0, 0, 0)
    found = document(halving(), "fifo", ranked(halving(), [failed_row, sound_row]), SearchStatistics(), 0.0, 1.0)
    assert found["best"] == "b"
    assert best_of([failed_row]) is None


def test_the_best_is_the_first_row_of_the_table() -> None:
    search = halving(rungs=[{"iterations": 5, "keep": 2}, {"iterations": 9}])

    def row(name: str, rung: str, loss: float | None, best: float | None, status: str = "finished") -> TrialRow:
        return TrialRow(name, {}, status, rung, 5.0, loss, best, 1.0, 1.0, 0, 0)

    least_ever = row("a", "rung0", 0.9, 0.1, "killed")
    winner, second = row("b", "rung1", 0.2, 0.2), row("c", "rung1", 0.3, 0.15)
    diverged, failed_row = row("d", "rung1", None, 0.01), row("e", "rung1", 0.0, 0.0, "failed")
    found = ranked(search, [failed_row, diverged, least_ever, second, winner])
    assert [one.name for one in found] == ["b", "c", "a", "d", "e"]
    assert document(search, "fifo", found, SearchStatistics(), 0.0, 1.0)["best"] == "b"
    there = row("g", "rung0", 0.5, 0.1, "reached")  # the target, and went on to the end of its epoch
    assert ranked(search, [winner, there])[0] is there
    for without in ([diverged, failed_row], [failed_row], [row("f", "rung0", None, None, "waiting")], []):
        assert document(search, "fifo", ranked(search, without), SearchStatistics(), 0.0, 1.0)["best"] is None


FLOORS = {"a": 0.5, "b": 0.1, "c": 0.7, "d": 0.3, "e": 0.9}


def halving(**keys: Any) -> Search:
    data = changed(lambda d: d.update(configurations=[{"name": name} for name in FLOORS], **keys))
    data["job"]["command"] = ["true"]
    data["job"]["request"] = {"epoch": 2}
    data["rungs"] = [{"iterations": 6, "keep": 3}, {"iterations": 12, "keep": 1}, {"iterations": 30}]
    return parse(data, BASE)


def long_runs(**keys: Any) -> Search:
    data = changed(lambda d: d.update(configurations=[{"name": name} for name in FLOORS], **keys))
    data["job"]["command"] = ["true"]
    data["job"]["request"] = {"epoch": 2, "iterations": 1000}
    return parse(data, BASE)


class Killed(Exception):
    pass


class Commands:
    """A command on a simulated cluster that is killed before or after any event, and run again."""

    def __init__(self, search: Search, policy: str, seed: int = 0) -> None:
        self.search, self.policy = search, policy
        work = {
            f"s/{name}": SimulatedJob(search.jobs[name].request, Exponential(floor, 0.3), Costs(0.1, 0.1, 0.5))
            for name, floor in FLOORS.items()
        }
        self.session: SearchSession
        self.engine = self.cluster(work)
        self.journal: list[Event] = []
        self.lines: list[str] = []
        self.rng = Random(seed)
        self.kill_in = 10**9
        self.kills = 0

    def cluster(self, work: Mapping[str, SimulatedJob], kind: type[SimulatedCluster] = SimulatedCluster) -> SimulatedCluster:
        return kind([Node("n", 2)], work, lambda key: self.session.target(key))

    def write(self, event: Event) -> None:
        self.kill_in -= 1
        if self.kill_in or self.rng.random() < 0.5:  # it dies after the event is durable, or before
            self.journal.append(event)
        if not self.kill_in:
            raise Killed

    def print(self, event: Event, before: Mapping[str, Devices]) -> None:
        self.lines += lines(event, before, self.session.statistics, self.session.ledger)

    def run(self, killed: bool) -> SearchSession:
        while True:
            if killed:
                self.kill_in = self.rng.randint(1, 12)
            try:
                session = self.life()
            except Killed:
                self.kills += 1
            else:
                self.kill_in = 10**9
                return session

    def opened(self) -> SearchSession:
        """Return a session of what the journal holds, which has not started."""
        policy = gpu_policy_of(self.policy, ["quantum_s=3"] if self.policy == "round-robin" else [])
        return SearchSession(
            self.search,
            by_policy(policy),
            self.engine,
            tuple(self.journal),
            self.write,
            self.print,
            2.0,
            lambda: self.engine.now,
        )

    def life(self) -> SearchSession:
        session = self.session = self.opened()
        session.start(self.engine.now)
        while not session.done and not session.judges_nothing:
            wake_s = session.step(self.engine.now)
            if not session.done and not session.judges_nothing and (wake_s is None or wake_s > self.engine.now):
                self.engine.advance(min(self.engine.next_s(), float("inf") if wake_s is None else wake_s))
        return session


@pytest.mark.parametrize("policy", ["hermes", "round-robin", "convergence"])
def test_a_command_killed_at_any_event_keeps_the_best(policy: str) -> None:
    plain = Commands(halving(), policy)
    expected = plain.run(killed=False)
    for seed in range(3):
        commands = Commands(halving(), policy, seed)
        session = commands.run(killed=True)
        assert commands.kills > 10
        assert session.wait_until_forgotten()
        ended = session.ledger.ended
        assert {key: job.done for key, job in ended.items()} == {key: job.done for key, job in expected.ledger.ended.items()}
        stages = session.tracker.study("s").stages
        assert {rung: set(stage.targets) for rung, stage in stages.items()} == {
            "rung0": set(FLOORS), "rung1": {"a", "b", "d"}, "rung2": {"b"},
        }  # fmt: skip
        for kind, count in (
            (GpusRequested, 5),
            (TargetSet, 5 + 3 + 1),
            (RunFinished, 5 + 3 + 1),
            (TrialEnded, 5),
            (StudyEnded, 1),
        ):
            assert len([event for event in commands.journal if isinstance(event, kind)]) == count, "each once"
        found = rows(commands.search, session.ledger, session.statistics, commands.engine.now)
        assert [row.name for row in found] == ["b", "d", "a", "c", "e"]
        assert [row.iterations for row in found] == [30, 12, 12, 6, 6]
        assert all(row.service_s > 0 for row in found)


@pytest.mark.parametrize("killed", [False, True])
def test_a_search_that_is_to_stop_at_its_target_does(killed: bool) -> None:
    commands = Commands(halving(target_loss=0.35, stop_at_target=True), "round-robin")
    session = commands.run(killed)
    assert session.wait_until_forgotten()
    reached = {
        key
        for key, end in session.statistics.ends.items()
        if end.status is TrialStatus.FINISHED and key in session.statistics.reached
    }
    assert reached
    later = [report for key in reached for report in session.ledger.ended[key].reports if report.loss <= 0.35]
    assert later
    live = [key for key, seen in commands.engine.report().items() if seen.state is not RunState.FINISHED]
    assert live == []
    first_s = min(event.at_s for event in session.statistics.reached.values())
    assert all(event.at_s <= first_s for event in commands.journal if isinstance(event, TargetSet)), (
        "nobody is promoted after it"
    )
    figures = document(commands.search, "round-robin", [], session.statistics, 0.0, commands.engine.now)
    assert 0 < figures["target_reached_s"] <= figures["elapsed_s"]


def flawed(search: Search, flaws: Mapping[str, Flaw], policy: str = "fifo") -> Commands:
    commands = Commands(search, policy)
    by_key = {f"s/{name}": flaw for name, flaw in flaws.items()}
    commands.engine = FlawedCluster([Node("n", 2)], commands.engine.jobs, lambda key: commands.session.target(key), by_key)
    return commands


MUTE = Flaw(mute=True)


@pytest.mark.parametrize("policy", ["fifo", "hermes", "round-robin"])
def test_a_search_of_which_no_line_is_read_stops_before_a_rung_is_judged(policy: str) -> None:
    commands = flawed(halving(), dict.fromkeys(FLOORS, MUTE), policy)
    session = commands.life()
    assert session.judges_nothing
    assert not session.done
    assert len(session.statistics.unread) == ENOUGH_UNREAD
    assert [event for event in commands.journal if isinstance(event, TrialEnded)] == [], "nobody is killed"
    assert {event.stage for event in commands.journal if isinstance(event, TargetSet)} == {"rung0"}, "nobody is promoted"
    assert session.park()
    assert [seen.state for seen in commands.engine.report().values() if seen.state.has_processes] == []
    found = rows(commands.search, session.ledger, session.statistics, commands.engine.now)
    assert document(commands.search, policy, found, session.statistics, 0.0, commands.engine.now)["best"] is None
    first, *_, last = stopped_on_nothing(commands.search, session.ledger, session.statistics, session.rung_without_loss)
    assert first.startswith("s has stopped before a rung is judged on nothing")
    assert "job.progress" in last
    count = len(commands.journal)
    again = commands.life()
    assert again.judges_nothing, "the same command stops at once"
    assert [event for event in commands.journal[count:] if isinstance(event, TrialEnded | TargetSet)] == []


def test_a_search_of_two_stops_when_its_rung_is_over() -> None:
    flaws = {"a": MUTE, "b": Flaw((2.0,), always=True), "c": Flaw((2.0,), always=True), "d": Flaw((2.0,), always=True)}
    commands = flawed(halving(retries=0), {**flaws, "e": Flaw((2.0,), always=True, mute=True)})
    commands.engine.flaws = {key: replace(flaw, mute=True) for key, flaw in commands.engine.flaws.items()}
    session = commands.life()
    assert session.judges_nothing
    assert session.statistics.unread == {"s/a"}


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_search_without_a_finite_loss_stops_before_a_rung_is_judged(loss: float) -> None:
    commands = Commands(halving(), "fifo")
    for key, job in commands.engine.jobs.items():
        commands.engine.jobs[key] = replace(job, profile=Exponential(loss, 0.3))
    session = commands.life()
    assert session.judges_nothing
    assert session.statistics.reports
    kinds = (TrialEnded, TargetSet, StageSealed)
    assert [event.stage for event in commands.journal if isinstance(event, kinds)] == ["rung0"] * 5, "the targets of the first"
    assert session.park()
    first, last = stopped_on_nothing(commands.search, session.ledger, session.statistics, session.rung_without_loss)
    assert (
        first
        == "s has stopped before a rung is judged on nothing: no configuration came to the end of rung0 with a finite loss"
    )
    assert "new --dir" in last
    assert commands.life().judges_nothing, "the same command stops at once"


def test_one_configuration_that_reports_nothing_is_the_worst_of_its_rung() -> None:
    commands = flawed(halving(), {"b": MUTE})
    session = commands.life()
    assert session.done
    found = rows(commands.search, session.ledger, session.statistics, commands.engine.now)
    assert {row.name: row.rung for row in found} == {"d": "rung2", "a": "rung1", "c": "rung1", "b": "rung0", "e": "rung0"}


def test_where_nothing_is_judged_nothing_need_be_read() -> None:
    commands = flawed(long_runs(), dict.fromkeys(FLOORS, MUTE))
    session = commands.life()
    assert session.done
    assert not session.judges_nothing
    found = rows(commands.search, session.ledger, session.statistics, commands.engine.now)
    assert document(commands.search, "fifo", found, session.statistics, 0.0, commands.engine.now)["best"] is None


def test_a_refused_last_report_of_a_rung_is_the_worst_of_it() -> None:
    commands = flawed(halving(), {"b": Flaw(lies_last=Report(0.0, 1e30, 0.1, 1.0))})
    session = commands.life()
    found = rows(commands.search, session.ledger, session.statistics, commands.engine.now)
    of_b = next(row for row in found if row.name == "b")
    assert (of_b.status, of_b.rung, of_b.loss) == ("killed", "rung0", None)
    assert of_b.best_loss is not None, "it has been better than all others"


def test_what_is_printed_says_who_came_how_far() -> None:
    commands = Commands(halving(), "fifo")
    commands.run(killed=False)
    of_b = [line.partition(", loss")[0] for line in commands.lines if line.startswith("b ")]
    assert of_b == ["b has come to the end of rung0", "b has come to the end of rung1", "b finished after 30 iterations"]
    of_d = [line.partition(", loss")[0] for line in commands.lines if line.startswith("d ")]
    assert of_d[-2:] == ["d has come to the end of rung1", "d killed after 12 iterations"]
    assert any(" on n:0" in line for line in commands.lines)


def test_a_search_that_is_over_is_left_as_it_is() -> None:
    commands = Commands(halving(), "fifo")
    commands.run(killed=False)
    count = len(commands.journal)
    again = commands.run(killed=False)
    assert again.done
    assert again.wait_until_forgotten()
    assert [type(event).__name__ for event in commands.journal[count:]] in ([], ["Allocated"])


class SlowToPark(SimulatedCluster):
    """A cluster whose jobs go on for a while when they are to be parked. stopping: since when."""

    PARK_S = 7.0

    def __init__(
        self, nodes: Sequence[Node], jobs: Mapping[str, SimulatedJob], target: Callable[[str], int] | None = None
    ) -> None:
        super().__init__(nodes, jobs, target)
        self.stopping: dict[str, float] = {}

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        if placement is None:
            self.stopping.setdefault(job, self.now)
        else:
            super().resize(job, placement, timeout_s)

    def report(self) -> Mapping[str, Observed]:
        for key, since_s in self.stopping.items():
            if self.now >= since_s + self.PARK_S:
                super().resize(key, None)
        found = super().report()
        moving = {key for key in self.stopping if found[key].state is RunState.RUNNING}
        return {key: replace(one, state=RunState.STOPPING) if key in moving else one for key, one in found.items()}


def test_jobs_that_are_saved_at_the_target_go_on_reporting_and_the_others_are_killed_at_once() -> None:
    commands = Commands(long_runs(target_loss=0.35, stop_at_target=True), "fifo")
    slow = SlowToPark([Node("n", 2)], commands.engine.jobs)
    commands.engine = slow
    session = commands.run(killed=False)
    (first_s, *_) = (report.at_s for report in session.statistics.reached.values())
    assert set(slow.stopping) == set(session.statistics.reached), "only what has reached the target is saved"
    ends = session.statistics.ends
    killed = [key for key in ends if ends[key].status is TrialStatus.KILLED]
    assert killed
    assert {ends[key].at_s for key in killed} == {first_s}
    for key in session.statistics.reached:
        assert ends[key].at_s >= first_s + slow.PARK_S
        assert session.ledger.ended[key].reports[-1].at_s > first_s


class Recording(SimulatedCluster):
    """A cluster that notes when what was started, moved or resumed."""

    def __init__(
        self, nodes: Sequence[Node], jobs: Mapping[str, SimulatedJob], target: Callable[[str], int] | None = None
    ) -> None:
        super().__init__(nodes, jobs, target)
        self.calls: list[tuple[float, str]] = []

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        self.calls.append((self.now, job))
        super().start(job, placement, timeout_s)

    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        self.calls.append((self.now, job))
        super().resume(job, timeout_s)


def test_nothing_is_started_by_the_step_that_learns_of_the_target() -> None:
    def shorten(data: dict[str, Any]) -> None:
        data.update(configurations=[{"name": name, "end": 6 if name == "a" else 1000} for name in FLOORS])
        data.update(target_loss=0.35, stop_at_target=True)
        data["job"].update(command=["true"], request={"epoch": 2, "iterations": "{end}"})
        data["job"].update(env={}, cwd=".")

    commands = Commands(parse(changed(shorten), BASE), "fifo")
    recording = Recording([Node("n", 2)], commands.engine.jobs)
    commands.engine = recording
    session = commands.run(killed=False)
    (reached_s,) = {event.at_s for event in session.statistics.reached.values()}
    ends = session.statistics.ends
    assert ends["s/a"].at_s == reached_s, "a leaves its GPU at the very report with which b reaches the target"
    assert [job for _, job in recording.calls] == ["s/a", "s/b"]
    assert {ends[f"s/{name}"].status for name in "cde"} == {TrialStatus.KILLED}


@pytest.mark.parametrize("loss", [float("-inf"), float("nan")])
def test_a_loss_that_is_not_finite_reaches_no_target(loss: float) -> None:
    statistics = SearchStatistics(target_loss=0.5)
    statistics.apply(TrialReported(1.0, "s/a", Report(1.0, 3.0, loss, 1.0)))
    assert not statistics.reached
    statistics.apply(TrialReported(2.0, "s/a", Report(2.0, 4.0, 0.5, 2.0)))
    assert set(statistics.reached) == {"s/a"}


class Remarking(SimulatedCluster):
    """A cluster that reports an exit for every job."""

    def report(self) -> Mapping[str, Observed]:
        return {key: replace(one, exit="a remark") for key, one in super().report().items()}


def test_what_an_engine_remarks_is_logged_once_and_calls_no_finished_job_failed(caplog: pytest.LogCaptureFixture) -> None:
    commands = Commands(halving(), "round-robin")
    commands.engine = commands.cluster(commands.engine.jobs, Remarking)
    session = commands.run(killed=False)
    assert sorted(caplog.messages) == sorted(f"{key}: a remark" for key in session.statistics.ends)
