"""What a session with one switch says of it, whatever happens between two slices of work."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from controller.event_loop.time_slices import TimeSlices
from controller.limited_log import LimitedLog
from controller.openflow import session as module
from controller.openflow.flow_counts import FlowCounts
from controller.openflow.reports import SwitchChanges
from controller.openflow.rules import ACCESS_RULE, COOKIE_PREFIX, IPV4, Band, HostPair, Rule, Table
from controller.openflow.session import SwitchSession
from tests.support.openflow_switch import FakeSwitch
from tests.unit.controller.openflow.test_driver import FABRIC, Bench, bench, job

PAIRS = 5_000
LEFT, RIGHT = FABRIC.hosts[:2]


def pair_rule(seq: int) -> Rule:
    pair = HostPair(seq, 0, 1)
    cookie = COOKIE_PREFIX << 48 | Band.PAIR.number << 40 | 2 << 32 | seq
    return Rule(cookie, 1, 1000, (("eth_type", IPV4), ("metadata", pair.metadata)), announced=True)


class Reading:
    """A channel whose switch holds the same rules at every reading."""

    on_message: Callable[[Any], None] | None = None
    datapath = None

    async def request(self, message: Any, read: Callable[[Iterable[Any]], Iterable[Any]] = iter) -> list[Any]:
        return [(pair_rule(seq), 100, 1) for seq in range(PAIRS)]


async def _no_later_term(least: int) -> int:
    raise AssertionError(least)


def test_a_rule_that_is_removed_while_counters_are_added_up_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.wire, "stats_request", lambda *about: None)
    removed, final = pair_rule(PAIRS - 1), FlowCounts()

    async def play() -> None:
        channel: Any = Reading()
        session = SwitchSession("s1", channel, final, print, 1, _no_later_term, TimeSlices(), LimitedLog())
        counting = asyncio.create_task(session.count())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not counting.done(), "some slices are left"
        final.add(removed, 100, 1)
        live, gone = await counting
        (key,) = final.by_pair
        assert [counts.by_pair.get(key) for counts in (live, gone)] == [(100, 1), None]

    asyncio.run(play())


def test_a_switch_without_a_target_is_not_installed_and_is_again_with_the_same_target() -> None:
    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(FakeSwitch(1))
            await b.installed(1)
            session = b.driver._sessions["s1"]
            target, before = session._target, len(b.events)
            session.set_target(None, None)
            await session.at_target()
            assert b.events[before:] == [SwitchChanges("s1")]
            session.set_target(None, None)
            assert len(b.events) == before + 1, "it is said once"
            session.set_target(target, ())
            assert (await b.installed(1, times=2)).changes == 0

    asyncio.run(scenario())


def test_the_access_rule_is_written_again_only_before_rules_of_connections() -> None:
    async def sent(b: Bench, switch: FakeSwitch, generation: int, *classes: int) -> list[int]:
        """Return the tables of the rules that a plan's installation has written, the access rule's as -1."""
        switch.mods.clear()
        b.driver.install(generation, [job(klass) for klass in classes])
        await b.installed(generation)
        return sorted(-1 if key == ACCESS_RULE.key else key[0] for _, key in switch.mods)

    async def scenario() -> None:
        switch = FakeSwitch(1)
        async with bench() as b:
            assert -1 in await sent_at_first(b, switch)
            assert await sent(b, switch, 2, 2) == [], "nothing has changed"
            assert set(await sent(b, switch, 3, 1)) == {int(Table.CLASS)}, "a class has changed, no connection"
            b.driver.install(4, [replace(job(1), connections=frozenset({(LEFT.ip, 7, RIGHT.ip, 8)}))])
            switch.mods.clear()
            await b.installed(4)
            written = [key for _, key in switch.mods]
            assert written.count(ACCESS_RULE.key) == 1
            assert {key[0] for key in written} == {int(Table.ADMISSION)}

    async def sent_at_first(b: Bench, switch: FakeSwitch) -> list[int]:
        b.driver.install(1, [job(2)])
        b.connect(switch)
        await b.installed(1)
        return [-1 if key == ACCESS_RULE.key else key[0] for _, key in switch.mods]

    asyncio.run(scenario())
