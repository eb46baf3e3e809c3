"""Connections that all say to be one switch: those that have gone cost nobody a turn, and the newest comes first."""

import asyncio

import pytest

from controller.openflow import contention, driver, held_rules, session
from controller.openflow.channel import ChannelError
from controller.openflow.reports import SwitchConnected, SwitchLost
from tests.support.openflow_switch import FakeSwitch
from tests.unit.controller.openflow.test_driver import Bench, bench, job
from tests.unit.controller.openflow.test_limits import RawPeer

NEVER_S = 1000.0  # until the next one may be served
CONNECTED_S = 5.0  # Some peers connect and answer within this time, also where others have the processors.


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rules, "SETTLE_S", 0.1)
    monkeypatch.setattr(session, "FLUSH_S", 0.001)
    monkeypatch.setattr(session, "RETRY_S", 0.05)


def waiting(made: Bench) -> int:
    return len(made.driver._contention["s1"]._waiting)


async def come_and_go(made: Bench, peers: int) -> None:
    """Say to be the switch, and close, so many times after one another."""
    for _ in range(peers):
        peer = await RawPeer.identified(made, dpid=1)
        peer.writer.close()


def test_peers_that_have_gone_take_no_turn_from_the_switch() -> None:
    async def scenario() -> None:
        async with bench(serve_again_s=0.2) as b:
            b.driver.install(1, [job(2)])
            await come_and_go(b, 60)
            flood = asyncio.create_task(come_and_go(b, 1000))
            switch = FakeSwitch(dpid=1)
            b.connect(switch)
            await b.installed(1)
            assert switch.entries
            # Each turn of one that has gone would be such an event, and there were 60 before the switch.
            assert b.events.count(SwitchConnected("s1")) <= 5
            flood.cancel()
            await asyncio.wait({flood})

    asyncio.run(scenario())


def test_what_ends_while_it_waits_is_waited_for_no_longer() -> None:
    async def scenario() -> None:
        async with bench(serve_again_s=NEVER_S) as b:
            first = FakeSwitch(dpid=1)
            b.connect(first)
            await b.until(lambda: b.events)
            first.disconnect()
            await b.until(lambda: SwitchLost("s1") in b.events)
            second = FakeSwitch(dpid=1)
            b.connect(second)
            await b.until(lambda: waiting(b) == 1)
            second.disconnect()
            await b.until(lambda: waiting(b) == 0)
            assert not b.driver._connections
            assert b.events == [SwitchConnected("s1"), SwitchLost("s1")]

    asyncio.run(scenario())


def test_of_those_that_wait_the_newest_is_served_first() -> None:
    async def scenario() -> None:
        async with bench(serve_again_s=CONNECTED_S) as b:
            b.driver.install(1, [job(2)])
            await come_and_go(b, 1)
            await b.until(lambda: SwitchLost("s1") in b.events)
            older, newer = FakeSwitch(dpid=1), FakeSwitch(dpid=1)
            for number, switch in enumerate((older, newer), 1):
                b.connect(switch)
                await b.until(lambda number=number: waiting(b) == number)  # type: ignore[misc]
            await b.installed(1)
            assert newer.entries
            async with asyncio.timeout(10):
                await b.connections[0]  # it is told that the newer one is served, and answers
            assert not older.entries

    asyncio.run(scenario())


def test_one_that_answers_nothing_is_not_served_while_there_is_another(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "ALIVE_S", 0.5)

    async def scenario() -> None:
        async with bench(serve_again_s=0.1) as b:
            b.driver.install(1, [job(2)])
            await come_and_go(b, 1)
            await b.until(lambda: SwitchLost("s1") in b.events)
            switch = FakeSwitch(dpid=1)
            b.connect(switch)
            silent = [await RawPeer.identified(b, dpid=1) for _ in range(5)]
            await b.installed(1)
            assert switch.entries
            for peer in silent:
                assert await peer.ended()

    asyncio.run(scenario())
    assert "does not answer within" in capfd.readouterr().out


def test_those_that_wait_have_a_bound_and_one_that_answers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "MAX_CONTENDING", 4)

    async def scenario() -> None:
        async with bench(serve_again_s=CONNECTED_S) as b:
            b.driver.install(1, [job(2)])
            await come_and_go(b, 1)
            await b.until(lambda: SwitchLost("s1") in b.events)
            switch = FakeSwitch(dpid=1)
            b.connect(switch)
            await b.until(lambda: any(one.alive for one in b.driver._contention["s1"]._waiting))
            silent = [await RawPeer.identified(b, dpid=1) for _ in range(20)]
            for peer in silent[:-4]:
                assert await peer.ended()
            assert waiting(b) <= 5
            await b.installed(1)
            assert switch.entries
            for peer in silent[-4:]:
                peer.writer.close()

    asyncio.run(scenario())


def test_one_that_ends_while_it_is_asked_whether_it_lives_is_given_up_at_once() -> None:
    async def scenario() -> None:
        async with bench() as b:
            peer = await RawPeer.identified(b, dpid=1)
            await b.until(lambda: "s1" in b.driver._served)
            asked = asyncio.create_task(b.driver._served["s1"].is_alive(NEVER_S))
            await asyncio.sleep(0)
            peer.writer.close()
            async with asyncio.timeout(10):
                assert not await asked

    asyncio.run(scenario())


def test_a_peer_that_has_gone_is_not_written_to() -> None:
    async def scenario() -> None:
        async with bench() as b:
            peer = await RawPeer.identified(b, dpid=1)
            await b.until(lambda: "s1" in b.driver._served)
            served = b.driver._contention["s1"]._served
            assert served is not None
            peer.writer.close()
            await asyncio.wait({served.task})
            with pytest.raises(ChannelError, match="closed"):
                await served.channel.drained()

    asyncio.run(scenario())
