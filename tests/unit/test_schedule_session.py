"""Searches on a simulated cluster: what survives the death of the command, what ends at the target, and what is counted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.events import Allocated, JobReported, JobSubmitted
from beamer.gpu.model import Costs, Grant, Node, Report, Request
from beamer.gpu.tuners import HalvingTuner
from beamer.schedule.command import policy_of
from beamer.schedule.file import Search, parse
from beamer.schedule.report import document, rows
from beamer.schedule.session import SearchSession
from beamer.schedule.statistics import JobCounts, SearchStatistics
from beamer.studies.events import Event, JobEnded, StageSealed
from beamer.studies.model import JobStatus, Rung
from beamer.testing.gpu_policies import Exponential
from tests.unit.schedule_inputs import BASE, changed

RUNGS = (Rung("r0", 3, 5), Rung("r1", 2, 10), Rung("r2", 1, 20))


def tuner_of_three(early: bool) -> HalvingTuner[str]:
    """Return a tuner of three trials that have been submitted."""
    tuner: HalvingTuner[str] = HalvingTuner("s", RUNGS, lambda trial, rung, at_s: f"{rung}/{trial}", early=early)
    assert tuner.first(["a", "b", "c"]) == ["0/a", "0/b", "0/c"]
    for trial in "abc":
        assert not list(tuner.judge(JobSubmitted(0.0, "s", "r0", trial, Request(5))))
    return tuner


def test_trials_that_failed_go_no_further() -> None:
    tuner = tuner_of_three(early=False)
    for trial, loss in (("a", 0.1), ("b", 0.5), ("c", float("nan"))):
        assert not list(tuner.judge(JobReported(0.0, f"s/r0/{trial}", Report(0.0, 5, loss, 1.0))))
    assert not list(tuner.judge(JobEnded(1.0, "s/r0/a", JobStatus.FAILED)))
    assert not list(tuner.judge(JobEnded(2.0, "s/r0/c", JobStatus.FAILED)))
    assert list(tuner.judge(JobEnded(3.0, "s/r0/b", JobStatus.FINISHED))) == [StageSealed(3.0, "s", "r0"), "1/b"]
    assert not list(tuner.judge(StageSealed(3.0, "s", "r0"))), "its own event leads to nothing"
    assert not tuner.done
    assert list(tuner.judge(JobEnded(4.0, "s/r1/b", JobStatus.FAILED))) == [StageSealed(4.0, "s", "r1")]
    assert tuner.done, "nobody is left for the last rung"


@pytest.mark.parametrize("early", [False, True])
def test_trials_are_promoted_when_the_rung_is_over_or_as_soon_as_it_is_certain(early: bool) -> None:
    tuner = tuner_of_three(early)
    found = []
    for at_s, (trial, loss) in enumerate((("a", 0.2), ("b", 0.1), ("c", float("-inf")))):
        list(tuner.judge(JobReported(0.0, f"s/r0/{trial}", Report(0.0, 5, loss, 1.0))))
        found.append(list(tuner.judge(JobEnded(at_s, f"s/r0/{trial}", JobStatus.FINISHED))))
    sealed = StageSealed(2.0, "s", "r0")
    assert found == ([[], ["1/b"], ["1/a"]] if early else [[], [], [sealed, "1/b", "1/a"]])
    assert list(tuner.judge(sealed)) == ([StageSealed(2.0, "s", "r1")] if early else [])


def test_the_statistics_count_what_moves_and_what_was_parked() -> None:
    statistics = SearchStatistics()

    def allocate(number: int, **grants: str) -> None:
        given = {f"s/r/{job}": Grant.of({node: 1}) for job, node in grants.items()}
        devices = {f"s/r/{job}": ((node, 0),) for job, node in grants.items()}
        statistics.apply(Allocated(float(number), "p", number, None, given, devices))

    for job in "ab":
        statistics.apply(JobSubmitted(0.0, "s", "r", job, Request(iterations=1)))
    allocate(1, a="m", b="n")
    allocate(2, a="m")
    allocate(3, a="m", b="n")
    assert statistics.counts == {"s/r/a": JobCounts(), "s/r/b": JobCounts(1, 0)}, "b was resumed where it was"
    allocate(4, a="n")
    assert statistics.counts == {"s/r/a": JobCounts(0, 1), "s/r/b": JobCounts(2, 0)}
    allocate(5)
    allocate(6, a="n", b="m")
    assert statistics.counts == {"s/r/a": JobCounts(1, 2), "s/r/b": JobCounts(2, 1)}, (
        "what was parked has no memory to go on with"
    )
    assert statistics.decisions == 6


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
            f"s/{rung.name}/{name}": SimulatedJob(search.jobs[i, name].request, Exponential(floor, 0.3), Costs(0.1, 0.1, 0.5))
            for i, rung in enumerate(search.rungs)
            for name, floor in FLOORS.items()
        }
        self.engine = SimulatedCluster([Node("n", 2)], work)
        self.journal: list[Event] = []
        self.rng = Random(seed)
        self.kill_in = 10**9
        self.kills = 0

    def write(self, event: Event) -> None:
        self.kill_in -= 1
        if self.kill_in or self.rng.random() < 0.5:  # it dies after the event is durable, or before
            self.journal.append(event)
        if not self.kill_in:
            raise Killed

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

    def life(self) -> SearchSession:
        policy = policy_of(self.policy, ["quantum_s=3"] if self.policy == "round-robin" else [])
        session = SearchSession(
            self.search, policy, self.engine, tuple(self.journal), self.write, clock=lambda: self.engine.now, timeout_s=2.0
        )
        session.start(self.engine.now)
        while not session.done:
            wake_s = session.step(self.engine.now)
            if wake_s is None or wake_s > self.engine.now:
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
        assert set(ended) == set(expected.ledger.ended)
        assert [key for key in ended if "/rung2/" in key] == ["s/rung2/b"]
        assert {key for key in ended if "/rung1/" in key} == {"s/rung1/a", "s/rung1/b", "s/rung1/d"}
        for kind in (JobSubmitted, JobEnded):
            events = [event for event in commands.journal if isinstance(event, kind)]
            assert len(events) == 5 + 3 + 1, "each once"
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
        if end.status is JobStatus.FINISHED and key in session.statistics.reached
    }
    assert reached
    later = [report for key in reached for report in session.ledger.ended[key].reports if report.loss <= 0.35]
    assert later
    live = [key for key, seen in commands.engine.report().items() if seen.state is not RunState.FINISHED]
    assert live == []
    assert all(not key.startswith("s/rung2/") for key in session.statistics.ends), "nothing was started after it"
    figures = document(commands.search, "round-robin", [], session.statistics, 0.0, commands.engine.now)
    assert 0 < figures["target_reached_s"] <= figures["elapsed_s"]


class SlowToPark(SimulatedCluster):
    """A cluster whose jobs go on for a while when they are to be parked. stopping: since when."""

    PARK_S = 7.0

    def __init__(self, nodes: Sequence[Node], jobs: Mapping[str, SimulatedJob]) -> None:
        super().__init__(nodes, jobs)
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
    slow = commands.engine = SlowToPark([Node("n", 2)], commands.engine.jobs)
    session = commands.run(killed=False)
    (first_s, *_) = (report.at_s for report in session.statistics.reached.values())
    assert set(slow.stopping) == set(session.statistics.reached), "only what has reached the target is saved"
    ends = session.statistics.ends
    killed = [key for key in ends if ends[key].status is JobStatus.KILLED]
    assert killed
    assert {ends[key].at_s for key in killed} == {first_s}
    for key in session.statistics.reached:
        assert ends[key].at_s >= first_s + slow.PARK_S
        assert session.ledger.ended[key].reports[-1].at_s > first_s


class Remarking(SimulatedCluster):
    """A cluster that reports an exit for every job."""

    def report(self) -> Mapping[str, Observed]:
        return {key: replace(one, exit="a remark") for key, one in super().report().items()}


def test_what_an_engine_remarks_is_logged_once_and_calls_no_finished_job_failed(caplog: pytest.LogCaptureFixture) -> None:
    commands = Commands(halving(), "round-robin")
    commands.engine = Remarking([Node("n", 2)], commands.engine.jobs)
    session = commands.run(killed=False)
    assert sorted(caplog.messages) == sorted(f"{key}: a remark" for key in session.statistics.ends)
