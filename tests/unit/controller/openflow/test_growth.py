"""What a change of the plan costs the driver: what changes, in slices, and not what all jobs have."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from beamer.testing.fabrics import star
from controller.event_loop import time_slices as slices
from controller.openflow import channel, rule_watch, session
from controller.openflow.rules import JobRules
from tests.support.effort import turns
from tests.support.openflow_switch import FakeSwitch
from tests.support.served_controller import PATIENCE_S
from tests.support.tiers import long
from tests.unit.controller.openflow.test_driver import Bench, bench

FABRIC = star(4)
HOSTS = FABRIC.hosts
FEW, MANY = 20, 80  # jobs, or connections of one


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 8)
    monkeypatch.setattr(session, "BATCH", 8)
    monkeypatch.setattr(session, "FLUSH_S", 0.001)
    monkeypatch.setattr(rule_watch, "COUNT_S", PATIENCE_S)  # It is changes alone that are counted.
    for name in ("SILENCE_S", "ANSWER_S"):
        monkeypatch.setattr(channel, name, PATIENCE_S)


def job(seq: int, connections: int = 1, klass: int = 2) -> JobRules:
    """Return a job with connections of two hosts, in both directions."""
    a, b = HOSTS[seq % 4].ip, HOSTS[(seq + 1) % 4].ip
    there = [(a, 1000 + seq, b, 2000 + port) for port in range(connections)]
    return JobRules(f"s/j{seq}", seq, 0, klass, frozenset((*there, *((b, q, a, p) for a, p, b, q in there))))


def cost(before: Sequence[JobRules], after: Sequence[JobRules], connected: bool = True) -> list[int]:
    """Return what each turn of the loop takes while a plan follows another one, on a switch or before it connects."""

    async def scene(counting: Callable[[], AbstractContextManager[None]]) -> None:
        async with bench(FABRIC) as b:
            b.patience_s = PATIENCE_S  # all that is done is traced, which takes long
            if connected:
                b.connect(FakeSwitch(dpid=1))
                b.driver.install(1, before)
                await b.installed(1)
            with counting():
                asyncio.get_running_loop().call_soon(b.driver.install, 2, after)  # in a turn that is counted
                await (b.installed(2) if connected else settled(b))

    return turns(scene)


async def settled(b: Bench) -> None:
    await b.until(lambda: (target := b.driver._adaptation.target("s1")) is not None and target.generation == 2)


@pytest.mark.parametrize("counts", [(FEW, MANY), *long(((2 * FEW, 2 * MANY),))], ids=str)
def test_a_change_of_one_job_costs_as_much_among_many(counts: tuple[int, int]) -> None:
    few, many = ([job(seq) for seq in range(1, count + 1)] for count in counts)
    costs = [cost(jobs, [replace(jobs[0], klass=5), *jobs[1:]]) for jobs in (few, many)]
    assert max(costs[1]) < 1.5 * max(costs[0])
    assert sum(costs[1]) < 1.5 * sum(costs[0])


@pytest.mark.parametrize("connected", [False, *long(True)])
def test_a_turn_does_not_grow_with_the_jobs_that_change(connected: bool) -> None:
    few, many = (cost([], [job(seq) for seq in range(1, count + 1)], connected) for count in (FEW, MANY))
    assert max(many) < 1.5 * max(few)


def test_a_turn_does_not_grow_with_the_connections_of_a_job() -> None:
    few, many = (cost([], [job(1, count)], connected=False) for count in (FEW, MANY))
    assert max(many) < 1.5 * max(few)
