"""What a session with one switch says of it, whatever happens between two slices of work."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from controller.event_loop.time_slices import TimeSlices
from controller.limited_log import LimitedLog
from controller.openflow import session as module
from controller.openflow.rules import COOKIE_PREFIX, IPV4, Band, HostPair, Rule
from controller.openflow.session import FlowCounts, SwitchSession

PAIRS = 5_000


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
