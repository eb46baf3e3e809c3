"""What each of `Wakes` leads to where events are taken in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beamer.engines.simulated import SimulatedCluster
from beamer.gpu.decider import PolicyDecider
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Node
from beamer.gpu.policies import gpu_policy
from beamer.gpu.scheduler import Scheduler
from beamer.studies.events import Event, Progressed, StageSealed, TrialRegistered
from beamer.studies.tracker import Tracker
from beamer.studies.wakes import Wakes
from controller.gpu.level import COALESCE_S as ALLOCATION_S
from controller.gpu.level import REPORTS_S
from controller.network.planning import COALESCE_S
from controller.runtime import PROGRESS_S
from tests.unit.controller.test_runtime import REGISTERED, Desk, run, trial

AT_ONCE, PACED, TARGETS = ("decide", COALESCE_S), ("decide", PROGRESS_S), ("renew",)
REGISTERS = TrialRegistered(1000.0, "mnist", "new")


class Calls:
    """What a desk's planner and watch are asked for, and its GPU level."""

    def __init__(self, path: Path) -> None:
        self.made: list[tuple[Any, ...]] = []
        desk = self.desk = Desk(path, gpus=gpu_policy("fifo"))
        desk.record(*REGISTERED, *trial("t"))
        planner, watch = desk.runtime._planner, desk.runtime.watch
        planner.decide = lambda after_s, *_: self.made.append(("decide", after_s))  # type: ignore[method-assign]
        planner.renew = lambda: self.made.append(("renew",))  # type: ignore[method-assign]
        watch._alarm.within = lambda after_s: self.made.append(("leases",))  # type: ignore[method-assign]
        assert desk.runtime.gpu is not None
        desk.runtime.gpu._deciding.within = lambda after_s: self.made.append(("gpus", after_s))  # type: ignore[method-assign]

    def of(self, event: Event) -> list[tuple[Any, ...]]:
        """Record an event and return what it leads to."""
        self.made.clear()
        self.desk.record(event)
        return list(self.made)


def called(path: Path, play: Callable[[Calls], None]) -> None:
    async def playing() -> None:
        calls = Calls(path)
        play(calls)
        del calls.desk.runtime.watch._alarm.within
        await calls.desk.runtime.stop()

    run(playing())


CASES = {
    Wakes.NOTHING: [],
    Wakes.ORDER: [AT_ONCE],
    Wakes.PACE: [PACED],
    Wakes.TARGETS: [TARGETS],
    Wakes.LEASES: [("leases",)],
    Wakes.GPUS: [("gpus", ALLOCATION_S)],
    Wakes.GPUS_PACE: [("gpus", REPORTS_S)],
    Wakes.STANDING: [],  # of a trial that there was not
    Wakes.ORDER | Wakes.PACE | Wakes.TARGETS: [AT_ONCE],
    Wakes.PACE | Wakes.TARGETS: [PACED],
    Wakes.GPUS | Wakes.GPUS_PACE: [("gpus", ALLOCATION_S)],
    Wakes.ORDER | Wakes.LEASES | Wakes.GPUS: [("leases",), AT_ONCE, ("gpus", ALLOCATION_S)],
}


def test_each_is_taken_account_of() -> None:
    assert {*Wakes} <= CASES.keys()


@pytest.mark.parametrize("wakes", CASES, ids=str)
def test_an_event_wakes_what_its_kind_declares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wakes: Wakes) -> None:
    monkeypatch.setattr(TrialRegistered, "wakes", wakes)

    def play(calls: Calls) -> None:
        assert calls.of(REGISTERS) == CASES[wakes]

    called(tmp_path, play)


@pytest.mark.parametrize("wakes", [Wakes.STANDING, Wakes.STANDING | Wakes.PACE])
def test_a_report_has_the_order_decided_where_the_trials_standing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wakes: Wakes
) -> None:
    monkeypatch.setattr(Progressed, "wakes", wakes)

    def play(calls: Calls) -> None:
        assert calls.of(Progressed(1000.0, "mnist/t", 9)) == ([PACED] if Wakes.PACE in wakes else [])
        assert calls.of(Progressed(1000.0, "mnist/t", 10)) == [AT_ONCE]

    called(tmp_path, play)


@pytest.mark.parametrize("wakes", CASES, ids=str)
def test_a_scheduler_decides_after_what_wakes_its_level(monkeypatch: pytest.MonkeyPatch, wakes: Wakes) -> None:
    monkeypatch.setattr(StageSealed, "wakes", wakes)
    ledger = GpuLedger()
    tracker = Tracker(ledger)
    for event in REGISTERED:
        tracker.apply(event)
    decider = PolicyDecider(tracker, ledger, gpu_policy("fifo"), 0)
    scheduler = Scheduler(tracker, ledger, decider, SimulatedCluster((Node("n", 1),), {}), lambda event: None)
    scheduler._awake = False
    assert scheduler.take(StageSealed(1000.0, "mnist", "rung0"))
    assert scheduler._awake == bool(wakes & (Wakes.GPUS | Wakes.GPUS_PACE))
