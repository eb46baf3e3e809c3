"""Meters on the switches: which there are, when they come and go, and what a switch without any keeps."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.testing.fabrics import star
from controller.event_loop.time_slices import at_once
from controller.openflow import held_rules, rule_watch, session
from controller.openflow.meters import FIRST_METER, METERS, RateMeter, meter_ids
from controller.openflow.reports import SwitchInstalled
from controller.openflow.rulebook import RuleBook
from controller.openflow.rules import Band, JobRules
from tests.support.openflow_switch import FakeSwitch, MeterMod, desired_rules
from tests.unit.controller.openflow.test_driver import bench

FABRIC = star(2)
LEFT, RIGHT = FABRIC.hosts
CONNECTIONS = frozenset({(LEFT.ip, 1, RIGHT.ip, 2), (RIGHT.ip, 2, LEFT.ip, 1)})
FOREIGN = MeterMod(ofp.OFPMC_ADD, ofp.OFPMF_KBPS, 7, b"")


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rules, "SETTLE_S", 0.1)
    monkeypatch.setattr(held_rules, "LINGER_S", 0.1)
    monkeypatch.setattr(session, "FLUSH_S", 0.001)
    monkeypatch.setattr(session, "RETRY_S", 0.05)


def job(caps: Mapping[str, int], klass: int = 2, seq: int = 1) -> JobRules:
    return JobRules("s/j", seq, 0, klass, CONNECTIONS, caps)


def held(switch: FakeSwitch) -> dict[int, int]:
    """Return the rates of the meters that a switch holds by id, kbit/s."""
    return {number: int.from_bytes(mod.bands[4:8]) for number, mod in switch.meters.items()}


def test_only_what_a_capped_sender_sends_passes_its_meter() -> None:
    book = RuleBook(FABRIC)
    rules = [rule for rule in at_once(book.change([job({LEFT.name: 3_000_000})]))["s1"].values() if rule]
    (meter,) = book.meters()["s1"]
    assert (meter.rate_kbps, meter.is_own) == (3000, True)
    assert {(rule.pair.src, rule.meter) for rule in rules if rule.pair} == {(0, meter.id), (1, None)}
    assert {rule.meter for rule in rules if not rule.counts} == {None}


def test_numbers_are_those_of_the_job_and_host_alone_where_they_do_not_collide() -> None:
    few = meter_ids([(3, 1), (9, 0)], hosts=2)
    assert few[3, 1] == meter_ids([(3, 1)], hosts=2)[3, 1]
    collide = METERS // 2
    many = meter_ids([(1, 0), (1 + collide, 0)], hosts=2)
    assert len(set(many.values())) == 2
    assert all(FIRST_METER <= number < FIRST_METER + METERS for number in many.values())


def test_of_more_senders_than_there_are_meters_the_latest_have_none() -> None:
    senders = [(seq, 0) for seq in range(METERS + 10)]
    assert sorted(meter_ids(senders, hosts=1)) == senders[:METERS]


@pytest.mark.parametrize(("cap_bps", "kbps"), [(1, 1), (1999, 1), (2_500_000, 2500)])
def test_a_meter_never_exceeds_its_cap_unless_that_is_less_than_a_meter_can_be(cap_bps: int, kbps: int) -> None:
    assert RateMeter.of(FIRST_METER, cap_bps).rate_kbps == kbps


def test_a_meter_comes_before_its_rules_follows_its_cap_and_goes_with_the_plan() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1, meters={FOREIGN.id: FOREIGN})  # It refuses rules whose meter it does not have.
        async with bench() as b:
            b.driver.install(1, [job({LEFT.name: 3_000_000})])
            b.connect(switch)
            await b.installed(1)
            (number,) = held(switch).keys() - {FOREIGN.id}
            assert held(switch)[number] == 3000

            switch.mods.clear()
            b.driver.install(2, [job({LEFT.name: 2_000_000})])
            assert (await b.installed(2)).changes == 0, "the rules stay as they are"
            assert held(switch)[number] == 2000
            assert switch.mods == []

            before = dict(switch.entries)
            b.driver.install(3, [job({})])
            await b.installed(3)
            climbed = [key for key in switch.entries.keys() - before.keys() if key[1] > Band.PAIR.priority]
            assert len(climbed) == 1, "packets pass by the meter at once: a new rule above the old one"
            await b.until(lambda: held(switch).keys() == {FOREIGN.id})
            assert len(switch.entries) == len(before), "removing the meter has taken no rule along"

    asyncio.run(scenario())


def test_no_meter_is_left_when_its_job_has_ended() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job({LEFT.name: 3_000_000, RIGHT.name: 1_000_000})])
            b.connect(switch)
            await b.installed(1)
            assert sorted(held(switch).values()) == [1000, 3000]
            b.driver.install(2, [])
            await b.installed(2)
            await b.until(lambda: not switch.meters)

    asyncio.run(scenario())


def test_a_restarted_driver_keeps_the_meters_of_its_plan_and_removes_the_others() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as first:
            first.driver.install(1, [job({LEFT.name: 3_000_000, RIGHT.name: 1_000_000})])
            first.connect(switch)
            await first.installed(1)
        async with bench() as second:
            second.driver.install(2, [job({LEFT.name: 3_000_000})])
            second.connect(switch)
            await second.installed(2)
            await second.until(lambda: list(held(switch).values()) == [3000])
            assert [command for command, _ in switch.meter_mods] == [ofp.OFPMC_DELETE]

    asyncio.run(scenario())


@pytest.mark.parametrize(("module", "pause"), [(session, "AUDIT_S"), (rule_watch, "COUNT_S")])
def test_a_meter_that_somebody_changes_is_put_right(monkeypatch: pytest.MonkeyPatch, module: ModuleType, pause: str) -> None:
    monkeypatch.setattr(module, pause, 0.05)

    async def scenario() -> None:
        switch = FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job({LEFT.name: 3_000_000})])
            b.connect(switch)
            await b.installed(1)
            (number,) = switch.meters
            switch.meters[number] = replace(FOREIGN, id=number)
            await b.until(lambda: held(switch)[number] == 3000)

    asyncio.run(scenario())


def test_a_switch_without_meters_has_the_classes_and_is_not_reported_as_installed(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        switch = FakeSwitch(dpid=1, has_meters=False)
        async with bench() as b:
            b.driver.install(1, [job({LEFT.name: 3_000_000})])
            b.connect(switch)
            await b.until(lambda: len(switch.meter_mods) > 1)
            pairs = {rule.key for rule in desired_rules(FABRIC, [job({})])["s1"] if rule.counts}
            await b.until(lambda: pairs <= switch.entries.keys())
            assert not [e for e in b.events if isinstance(e, SwitchInstalled)]
            b.driver.install(2, [job({})])
            await b.installed(2)

    asyncio.run(scenario())
    assert "OFPBRC_BAD_TYPE" in capfd.readouterr().out
