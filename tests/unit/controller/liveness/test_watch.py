"""The watch: what follows from what is missing is recorded one by one, whatever becomes of each; time is an argument."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from beamer.errors import InputError, PlatformError
from beamer.network.protocol import WorkerId, WorkerLease, Workers
from beamer.studies.events import AttemptEnded, AttemptStarted, Event, StudyRegistered, TrialRegistered, WorkerAttached
from beamer.studies.model import Process, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from controller.limited_log import MAX_LOGGED
from controller.liveness.leases import Leases
from controller.liveness.watch import Watch, WatchOptions
from topologies.single import build

FABRIC = build(hosts=2)
HOST = FABRIC.hosts[0]
GRACE_S = 0.05
ENDS = "its workers are gone, the attempt ends"


def lease(trial: str) -> WorkerLease:
    return WorkerLease(study="s", trial=trial, rank=0, process=Process(11, start=11, uid=1000, leased=True))


class Scene:
    """A watch over trials `s/a` and `s/b`, each with one worker on the one host. fails: raises for what cannot be recorded."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.now = 100.0
        self.fails: Callable[[Event], None] = lambda event: None
        self.watch = Watch(self.tracker, Leases(FABRIC, GRACE_S), self.record, lambda: self.now, WatchOptions(GRACE_S, 0.0))

    def record(self, event: Event) -> bool:
        changes = self.tracker.check(event)
        self.fails(event)
        if changes:
            self.tracker.apply(event)
            self.watch.take_in(event)
        return changes

    def begin(self) -> None:
        self.record(StudyRegistered(self.now, "s"))
        for name in "ab":
            self.record(TrialRegistered(self.now, "s", name))
            self.record(AttemptStarted(self.now, f"s/{name}", "one", (Worker(0, HOST.name),)))

    def report(self, *trials: str) -> None:
        self.watch.report(HOST.agent, Workers(leases=tuple(lease(trial) for trial in trials)))

    def attached(self, trial: str) -> bool:
        attempt = self.tracker.trials[f"s/{trial}"].attempt
        return attempt is not None and bool(attempt.processes)


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        found = Scene()
        found.begin()
        try:
            await asyncio.wait_for(scene(found), 10)
        finally:
            found.watch.stop()

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_a_worker_that_cannot_be_attached_keeps_no_other_back() -> None:
    def refuse(event: Event) -> None:
        if isinstance(event, WorkerAttached) and event.trial == "s/a":
            raise InputError("workers[0].host", HOST.name, "a host of the fabric")

    async def scene(found: Scene) -> None:
        found.fails = refuse
        with capture_logs() as logs:
            found.report("a", "b")
            await until(lambda: found.attached("b") and bool(found.watch.unattached()))
            [shown] = found.watch.unattached()
            assert (shown.trial, shown.rank, shown.agent) == ("s/a", 0, HOST.agent)
            found.report("a")
            await asyncio.sleep(GRACE_S)
            found.now += GRACE_S
            await until(lambda: found.tracker.trials["s/b"].status is TrialStatus.LOST)
        assert [entry["trial"] for entry in logs if entry["event"] == "not attached"] == ["s/a"], "once"

    play(scene)


def test_an_end_that_is_refused_is_logged_once_and_keeps_no_other_back() -> None:
    def refuse(event: Event) -> None:
        if isinstance(event, AttemptEnded) and event.trial == "s/a":
            raise InputError("attempt", "one", "another")

    async def scene(found: Scene) -> None:
        found.report("a", "b")
        await until(lambda: found.attached("a") and found.attached("b"))
        found.fails = refuse
        with capture_logs() as logs:
            found.report()
            await asyncio.sleep(GRACE_S)
            found.now += GRACE_S
            await until(lambda: found.tracker.trials["s/b"].status is TrialStatus.LOST)
            found.report()
            await asyncio.sleep(GRACE_S)
        assert len([entry for entry in logs if entry["log_level"] == "error"]) == 1
        assert [entry["trial"] for entry in logs if entry["event"] == ENDS] == ["s/b"]

    play(scene)


def test_an_end_is_logged_when_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.liveness.watch._RETRY_S", 0.002)
    tries = 0

    def fail(event: Event) -> None:
        nonlocal tries
        if isinstance(event, AttemptEnded):
            tries += 1
            if tries <= 3:
                raise PlatformError("the journal is down", "wait")

    async def scene(found: Scene) -> None:
        found.report("a")
        await until(lambda: found.attached("a"))
        found.fails = fail
        with capture_logs() as logs:
            found.report()
            await asyncio.sleep(GRACE_S)
            found.now += GRACE_S
            await until(lambda: found.tracker.trials["s/a"].status is TrialStatus.LOST)
        assert len([entry for entry in logs if entry["event"] == ENDS]) == 1

    play(scene)


OTHER = FABRIC.hosts[1]
IMPOSSIBLE = Process(1, start=0, uid=1000, leased=True)


def refused(number: int) -> Workers:
    return Workers(refused=((WorkerId(job="s/a", rank=0), f"{number} " + "x" * 900),))


def impossible(number: int) -> Workers:
    return Workers(leases=(WorkerLease(study="s", trial="a", rank=0, run=None, process=replace(IMPOSSIBLE, start=number)),))


@pytest.mark.parametrize("report", [refused, impossible])
def test_an_agent_says_nothing_of_ranks_on_hosts_of_others(report: Callable[[int], Workers]) -> None:
    async def scene(found: Scene) -> None:
        with capture_logs() as logs:
            for number in range(50):
                found.watch.report(OTHER.agent, report(number))
                await asyncio.sleep(0.003)
            assert found.watch.unattached() == []
        assert logs == []

    play(scene)


def test_an_agent_that_says_ever_new_things_of_its_own_ranks_fills_no_log() -> None:
    async def scene(found: Scene) -> None:
        with capture_logs() as logs:
            for number in range(3 * MAX_LOGGED):
                found.watch.report(HOST.agent, refused(number))
                await asyncio.sleep(0)
                found.watch._check()
            [shown] = found.watch.unattached()
            assert shown.reason.startswith(f"{3 * MAX_LOGGED - 1} x"), "whoever asks is told all the same"
        assert len(logs) == MAX_LOGGED
        assert all(len(entry["reason"]) < 300 for entry in logs)

    play(scene)


@pytest.mark.parametrize("grace_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_grace_lasts_some_time(grace_s: float) -> None:
    with pytest.raises(InputError, match=r"grace: .*above 0"):
        WatchOptions(grace_s=grace_s)
    assert WatchOptions(silence_s=0.0).silence_s == 0.0
