"""The driver against switches that speak OpenFlow but forward nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from os_ken.ofproto import ofproto_parser, ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.errors import PlatformError, TakenError
from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star, two_spines
from controller.openflow import channel, driver, held_rules, session, wire
from controller.openflow.driver import SwitchDriver
from controller.openflow.reports import PairCount, SwitchConnected, SwitchEvent, SwitchInstalled, SwitchLost
from controller.openflow.rules import Band, JobRules, RuleKey
from controller.openflow.terms import Terms
from tests.support.openflow_samples import multipart
from tests.support.openflow_switch import (
    FakeSwitch,
    FixedTerm,
    FlowEntry,
    about_switches,
    desired_rules,
    leading_driver,
    stats_of,
)

FABRIC = star(2)
LEFT, RIGHT = FABRIC.hosts
BOTH_DIRECTIONS = frozenset({(LEFT.ip, 1, RIGHT.ip, 2), (RIGHT.ip, 2, LEFT.ip, 1)})


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rules, "SETTLE_S", 0.1)
    monkeypatch.setattr(held_rules, "LINGER_S", 0.1)
    monkeypatch.setattr(session, "FLUSH_S", 0.001)
    monkeypatch.setattr(session, "RETRY_S", 0.05)


def job(klass: int, seq: int = 1) -> JobRules:
    return JobRules("s/s/j", seq, 0, klass, BOTH_DIRECTIONS)


class Bench:
    """A driver and the switches that connect to it. patience_s: for what a test waits for."""

    def __init__(self, fabric: Fabric, serve_again_s: float = 0.01) -> None:
        self.patience_s = 30.0
        self.events: list[SwitchEvent] = []
        self.driver = leading_driver(fabric, self.events.append, serve_again_s=serve_again_s)
        self.connections: list[asyncio.Task[None]] = []

    def connect(self, switch: FakeSwitch) -> None:
        self.connections.append(asyncio.create_task(switch.connect(*self.driver.address)))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(self.patience_s):
            while not condition():
                await asyncio.sleep(0.005)

    async def installed(self, generation: int, times: int = 1) -> SwitchInstalled:
        def those() -> list[SwitchInstalled]:
            return [e for e in self.events if isinstance(e, SwitchInstalled) and e.generation == generation]

        await self.until(lambda: len(those()) >= times)
        return those()[-1]


@asynccontextmanager
async def bench(fabric: Fabric = FABRIC, serve_again_s: float = 0.01) -> AsyncIterator[Bench]:
    made = Bench(fabric, serve_again_s)
    await made.driver.start()
    try:
        yield made
    finally:
        async with asyncio.timeout(made.patience_s):
            await made.driver.stop()
            await asyncio.gather(*made.connections)


def test_rules_survive_the_wire() -> None:
    datapath = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
    reader = wire.RuleReader()
    for number, rule in enumerate(desired_rules(FABRIC, [job(3)])["s1"]):
        message = wire.addition(datapath, rule)
        message.set_xid(1)
        message.serialize()
        frame = bytes(message.buf)
        entry = FlowEntry(ofproto_parser.msg(datapath, *ofproto_parser.header(frame), frame))
        for counts in ((0, 0), (9000 + number, 1)):  # the second time it is known, but for its counts
            entry.sent_bytes, entry.sent_packets = counts
            assert reader.read(7, multipart(ofp.OFPMP_FLOW, stats_of(entry), xid=7)) == wire.RulesPart(7, 0, ((rule, *counts),))


def test_a_switch_gets_the_latest_plan_whenever_it_connects() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.driver.install(2, [job(3)])
            b.connect(switch)
            done = await b.installed(2)
            assert b.events == [SwitchConnected("s1"), SwitchInstalled("s1", 2, done.changes)]
            wanted = desired_rules(FABRIC, [job(3)])["s1"]
            assert switch.entries.keys() == {rule.key for rule in wanted}
            assert done.changes == len(wanted)

    asyncio.run(scenario())


def test_before_the_first_plan_a_switch_is_left_as_it_is() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.connect(switch)
            await b.until(lambda: b.events)
            await asyncio.sleep(0.1)
            assert switch.mods == []

    asyncio.run(scenario())


def test_a_restarted_driver_finds_its_rules_and_adds_or_removes_none() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as first:
            first.driver.install(1, [job(2)])
            first.connect(switch)
            await first.installed(1)
            first.driver.install(2, [job(4)])  # so that the pair's rule has left its first priority
            await first.installed(2)
            await first.until(lambda: ofp.OFPFC_DELETE_STRICT in {command for command, _ in switch.mods})
        before = dict(switch.entries)
        async with bench() as second:
            second.driver.install(9, [job(4)])
            second.connect(switch)
            assert (await second.installed(9)).changes == 0
            await asyncio.sleep(0.2)
            assert {command for command, _ in switch.mods} <= {ofp.OFPFC_MODIFY_STRICT}
            assert switch.entries == before

    asyncio.run(scenario())


def test_plans_that_come_while_a_barrier_is_out_are_skipped_but_the_last() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [])
            b.connect(switch)
            await b.installed(1)
            switch.answering.clear()
            for generation, klass in ((2, 1), (3, 2), (4, 3), (5, 4)):
                b.driver.install(generation, [job(klass)])
                await asyncio.sleep(0.02)
            switch.answering.set()
            await b.installed(5)
            generations = [e.generation for e in b.events if isinstance(e, SwitchInstalled)]
            assert generations == [1, 2, 5]
            await b.until(lambda: switch.entries.keys() >= {r.key for r in desired_rules(FABRIC, ())["s1"]})

    asyncio.run(scenario())


def test_the_old_class_is_removed_after_the_new_one_holds_and_its_count_is_kept() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
            old = {key for key in switch.entries if key[0] == 1 and 1000 <= key[1] < Band.ACKNOWLEDGE.priority}
            for key in old:
                switch.entries[key].sent_bytes, switch.entries[key].sent_packets = 1500, 1
            b.driver.install(2, [job(0)])
            assert (await b.installed(2)).changes == 2 * len(old)
            assert old <= switch.entries.keys()
            await b.until(lambda: not old & switch.entries.keys())
            pairs = await b.driver.counters()
            assert PairCount("s1", 1, "h1", "h2", 2, True, 1500, 1, final=True) in pairs
            assert PairCount("s1", 1, "h1", "h2", 2, False, 1500, 1, final=True) in pairs
            assert PairCount("s1", 1, "h1", "h2", 0, True, 0, 0, final=False) in pairs
            assert len(pairs) == 8

            # The final counts of the removed rules remain when the switch is away.
            switch.disconnect()
            await b.until(lambda: SwitchLost("s1") in b.events)
            assert {pair.final for pair in await b.driver.counters()} == {True}

    asyncio.run(scenario())


def test_a_rule_that_timed_out_while_wanted_comes_back() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
            key: RuleKey = next(key for key in switch.entries if key[0] == 1 and key[1] >= 1000)
            switch.entries[key].sent_bytes = 700
            switch.expire(key)
            await b.until(lambda: key in switch.entries)
            counts = {(x.src, x.final): x.sent_bytes for x in await b.driver.counters() if x.sent_bytes or x.final}
            assert list(counts.values()) == [700]

    asyncio.run(scenario())


def test_time_outs_of_pairs_in_use_are_started_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "AUDIT_S", 0.05)

    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
            pairs = {key for key in switch.entries if key[0] == 1 and key[1] >= 1000}
            switch.mods.clear()
            await b.until(lambda: {(ofp.OFPFC_MODIFY_STRICT, key) for key in pairs} <= set(switch.mods))
            assert {command for command, _ in switch.mods} == {ofp.OFPFC_MODIFY_STRICT}

    asyncio.run(scenario())


def test_a_refused_rule_is_logged_not_reported_as_installed_and_tried_again(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1, refuse=lambda key: key[0] == 1 and key[1] >= 1000)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.until(lambda: len([key for _, key in switch.mods if switch.refuse(key)]) > 2)
            assert not [e for e in b.events if isinstance(e, SwitchInstalled)]
            switch.refuse = lambda key: False
            await b.installed(1)

    asyncio.run(scenario())
    assert "OFPFMFC_TABLE_FULL" in capfd.readouterr().out


def test_a_stranger_and_another_version_are_turned_away(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [])
            b.connect(FakeSwitch(dpid=0xBAD))
            b.connect(FakeSwitch(dpid=1, version=1))
            async with asyncio.timeout(b.patience_s):
                await asyncio.gather(*b.connections)
            assert b.events == []

    asyncio.run(scenario())
    out = capfd.readouterr().out
    assert "0000000000000bad" in out
    assert "OpenFlow 1.3" in out


def test_a_switch_that_connects_again_replaces_its_old_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ALIVE_S", 0.2)

    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [])
            b.connect(switch)
            await b.installed(1)
            switch.answering.clear()  # its old connection is dead, and nobody has noticed
            b.connect(FakeSwitch(dpid=1, entries=switch.entries))
            assert (await b.installed(1, times=2)).changes == 0
            names = [type(e) for e in b.events]
            assert names == [SwitchConnected, SwitchInstalled, SwitchLost, SwitchConnected, SwitchInstalled]
            switch.answering.set()

    asyncio.run(scenario())


def test_a_switch_that_falls_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "ECHO_S", 0.05)
    monkeypatch.setattr(channel, "SILENCE_S", 1.0)

    async def scenario() -> None:
        lively, switch = FakeSwitch(dpid=1), FakeSwitch(dpid=2)
        async with bench(two_spines()) as b:
            b.driver.install(1, [])
            b.connect(lively)
            b.connect(switch)
            await b.installed(1, times=2)
            switch.answering.clear()
            await b.until(lambda: SwitchLost("l2") in b.events)
            assert SwitchLost("l1") not in b.events  # it sends nothing unasked either, but answers echo requests
            switch.answering.set()

    asyncio.run(scenario())


def test_a_switch_is_connected_to_a_follower_and_left_as_it_is_until_this_one_leads() -> None:
    async def scenario() -> None:
        switch, events = FakeSwitch(dpid=1), list[SwitchEvent]()
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
        driver = SwitchDriver(FABRIC, "127.0.0.1", 0, serve_again_s=0.01)
        await driver.start()
        connection = asyncio.create_task(switch.connect(*driver.address))
        await b.until(lambda: driver._served.keys() == {"s1"})
        expired = next(key for key in switch.entries if key[0] == 1 and key[1] >= 1000)
        switch.entries[expired].sent_bytes = 1000
        switch.expire(expired)  # The switch tells everybody who is connected.
        await asyncio.sleep(0.1)
        assert (switch.mods, switch.term, connection.done()) == ([], 1, False)
        driver.lead(about_switches(events.append), JournalInMemory(2))
        driver.install(2, [job(2)])
        await driver.start()
        await b.until(lambda: len(events) == 2)
        assert [type(event) for event in events] == [SwitchConnected, SwitchInstalled]
        assert [key for command, key in switch.mods if command == ofp.OFPFC_ADD] == [expired]
        assert (switch.term, connection.done()) == (2, False)  # it had been connected all the time
        assert {count.sent_bytes for count in await driver.counters()} == {0}  # the leader of before counted the others
        await driver.stop()
        await connection

    asyncio.run(scenario())


class JournalInMemory:
    """The term in a journal. taken: whether another controller has written it since."""

    def __init__(self, term: int, taken: bool = False) -> None:
        self.term = term
        self.taken = taken

    async def raise_term(self, least: int) -> int:
        if self.taken:
            raise TakenError("the journal was written by another process", "start this one again")
        self.term = max(self.term, least)
        return self.term


@pytest.mark.parametrize("seen", [57, 2**40, 2**62 - 1])
def test_a_switch_that_has_obeyed_another_journal_is_led_under_a_later_term(seen: int) -> None:
    async def scenario() -> None:
        switch, events, journal = FakeSwitch(dpid=1, term=seen), list[SwitchEvent](), JournalInMemory(3)
        driver = leading_driver(FABRIC, events.append, terms=journal, serve_again_s=0.01)
        driver.install(1, [job(2)])
        await driver.start()
        connection = asyncio.create_task(switch.connect(*driver.address))
        async with asyncio.timeout(10):
            while len(events) < 2:
                await asyncio.sleep(0.005)
        assert [type(event) for event in events] == [SwitchConnected, SwitchInstalled]
        assert (switch.term, journal.term) == (seen + 1, seen + 1)
        await driver.stop()
        await connection

    asyncio.run(scenario())


@pytest.mark.parametrize("journal", [JournalInMemory(3, taken=True), FixedTerm()], ids=["taken", "none"])
def test_a_leader_of_before_is_refused_and_does_not_raise_its_term(journal: Terms) -> None:
    """Fencing: of two controllers on one journal the one that has lost it cannot come after the other."""

    async def scenario() -> None:
        switch, events = FakeSwitch(dpid=1, term=4), list[SwitchEvent]()
        driver = leading_driver(FABRIC, events.append, terms=journal, serve_again_s=0.01)
        driver.install(1, [job(2)])
        await driver.start()
        async with asyncio.timeout(10):
            await switch.connect(*driver.address)
        assert (switch.term, switch.mods, switch.entries) == (4, [], {})
        assert [type(event) for event in events] == [SwitchConnected, SwitchLost]
        await driver.stop()

    asyncio.run(scenario())


def test_of_two_of_a_name_a_follower_keeps_the_one_that_answers() -> None:
    async def scenario() -> None:
        first, second = FakeSwitch(dpid=1), FakeSwitch(dpid=1)
        driver = SwitchDriver(FABRIC, "127.0.0.1", 0, serve_again_s=0.01)
        await driver.start()
        kept = asyncio.create_task(first.connect(*driver.address))
        async with asyncio.timeout(10):
            while driver._served.keys() != {"s1"}:
                await asyncio.sleep(0.005)
            await second.connect(*driver.address)
        assert not kept.done()
        await driver.stop()
        await kept

    asyncio.run(scenario())


def test_an_address_in_use_is_one_clear_error() -> None:
    async def scenario() -> None:
        async with bench() as b:
            host, port = b.driver.address
            with pytest.raises(PlatformError, match=f"{host}:{port}.*--openflow"):
                await SwitchDriver(FABRIC, host, port).start()

    asyncio.run(scenario())


def test_a_retired_rule_may_time_out_while_the_switch_is_asked_about_it() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
            pairs = [key for key in switch.entries if key[0] == 1 and key[1] >= 1000]
            b.driver.install(2, [])
            await b.installed(2)
            switch.answering.clear()
            await asyncio.sleep(0.2)  # by now the driver has asked what the retired rules have counted
            for key in pairs:
                switch.expire(key)
            await asyncio.sleep(0.05)
            switch.answering.set()
            b.driver.install(3, [job(4)])
            await b.installed(3)
            assert SwitchLost("s1") not in b.events

    asyncio.run(scenario())
