"""The driver against switches that refuse rules, or say nothing sensible of what they can hold."""

import asyncio
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.testing.fabrics import two_spines
from controller.openflow.forms import RAISED
from controller.openflow.questions import ENDINGS
from controller.openflow.reports import SwitchChanges, SwitchInstalled
from controller.openflow.rules import JobRules
from tests.support.openflow_switch import FakeSwitch
from tests.support.switch_limits import FIELDS, SwitchLimits
from tests.unit.controller.openflow.lesser_switches import (
    FABRIC,
    ONE_TABLE,
    forms,
    hasten,
    job,
    tables,
)
from tests.unit.controller.openflow.test_driver import bench


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def of_tables(frame: bytes) -> bool:
    """Return whether a frame is an answer about tables."""
    part = struct.pack("!H", ofp.OFPMP_TABLE_FEATURES)
    return frame[1] == ofp.OFPT_MULTIPART_REPLY and frame[ofp.OFP_HEADER_SIZE :][:2] == part


def emptied(frame: bytes) -> bytes:
    """Return an answer about tables without any."""
    return frame[:2] + struct.pack("!H", 16) + frame[4:16] if of_tables(frame) else frame


def contradictory(frame: bytes) -> bytes:
    """Return an answer about tables in which the second one has a length that none can have."""
    second = 16 + struct.unpack_from("!H", frame, 16)[0] if of_tables(frame) else 0
    return frame[:second] + struct.pack("!H", 7) + frame[second + 2 :] if of_tables(frame) else frame


@pytest.mark.parametrize("distort", [emptied, contradictory])
def test_a_switch_that_says_nothing_sensible_of_its_tables_is_judged_by_its_refusals(distort: Callable[[bytes], bytes]) -> None:
    async def scenario() -> None:
        able, unable = FakeSwitch(1, distort=distort), FakeSwitch(1, distort=distort, limits=ONE_TABLE)
        for switch, held in ((able, {0, 1, 2, 3}), (unable, {0})):
            async with bench(FABRIC) as b:
                b.driver.install(1, [job(2)])
                b.connect(switch)
                await b.installed(1)
                await b.until(lambda switch=switch, held=held: tables(switch) == held)  # type: ignore[misc]

    asyncio.run(scenario())


def test_a_switch_whose_connection_ends_with_the_question_about_tables_is_not_asked_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Leaving(FakeSwitch):
        asked = 0

        def _answer_features_request(self, xid: int, frame: bytes) -> None:
            self.asked += 1
            self.disconnect()

    async def scenario() -> None:
        switch = Leaving(1)
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            for number in range(ENDINGS):
                b.connect(switch)
                await b.until(b.connections[number].done)
            b.connect(switch)
            await b.installed(1)
            assert switch.asked == ENDINGS
            assert forms(b) == []

    asyncio.run(scenario())
    text = "connections ended with the question for the features of tables, which is not asked again"
    assert capfd.readouterr().out.count(text) == 1


def test_a_switch_that_takes_no_form_is_given_all_tables_when_it_connects_as_an_able_one() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(1, limits=SwitchLimits(matches=FIELDS - {"arp_tpa"}), says=None)
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.until(lambda: [form.form for form in forms(b)][-1:] == ["none"])
            switch.disconnect()
            switch.limits = SwitchLimits()
            b.connect(switch)
            await b.installed(1)
            assert forms(b)[-1].form == "full"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "error", [(ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_QUEUE), (ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_UNKNOWN)]
)
def test_rules_that_are_refused_for_what_may_change_are_tried_again(error: tuple[int, int]) -> None:
    @dataclass(frozen=True)
    class Unready(SwitchLimits):
        def error(self, mod: Any, others: Iterable[Any]) -> tuple[int, int] | None:
            return error if mod.table_id == 1 else super().error(mod, others)

    async def scenario() -> None:
        switch = FakeSwitch(1, limits=Unready())
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            first = len([key for _, key in switch.mods if key[0] == 1])
            await b.until(lambda: len([key for _, key in switch.mods if key[0] == 1]) > first + 20)
            switch.limits = SwitchLimits()
            await b.installed(1)
            assert forms(b) == []

    asyncio.run(scenario())


def test_neighbours_keep_what_they_hold_about_a_switch_whose_refusals_are_forgotten() -> None:
    """It may have become able while it was gone: until it has taken its rules they write no shadow address to its hosts."""
    fabric = two_spines(1)
    a, b_ = (host.ip for host in fabric.hosts)
    both = JobRules("j", 1, 1, 2, frozenset({(a, 1, b_, 2), (b_, 2, a, 1)}))

    async def scenario() -> None:
        switches = {name: FakeSwitch(one.dpid) for name, one in fabric.switch.items()}
        leaf = switches["l2"] = FakeSwitch(fabric.switch["l2"].dpid, limits=ONE_TABLE, says=None)
        async with bench(fabric) as b:
            b.driver.install(1, [both])
            for switch in switches.values():
                b.connect(switch)
            await b.until(lambda: all(switch.entries for switch in switches.values()) and tables(leaf) == {0})
            await asyncio.sleep(0.3)
            for _ in range(2):
                switches["l1"].mods.clear()
                connected = len([event for event in b.events if isinstance(event, SwitchInstalled) and event.switch == "l2"])
                leaf.disconnect()
                await asyncio.sleep(0.1)
                b.connect(leaf)
                of_leaf = lambda: [one for one in b.events if isinstance(one, SwitchInstalled) and one.switch == "l2"]  # noqa: E731
                await b.until(lambda: len(of_leaf()) > connected)  # noqa: B023
                await asyncio.sleep(0.3)
                changed = [key for command, key in switches["l1"].mods if command != ofp.OFPFC_MODIFY_STRICT]
                assert changed == []

    asyncio.run(scenario())


def test_a_switch_that_takes_no_form_is_named_and_tried_again(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        switch = FakeSwitch(1, limits=SwitchLimits(matches=FIELDS - {"arp_tpa"}), says=None)
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.until(lambda: [form.form for form in forms(b)][-1:] == ["none"])
            assert "refuses rules of table 0 that match arp_tpa" in forms(b)[-1].reason
            assert not [event for event in b.events if isinstance(event, SwitchInstalled)]
            switch.limits = SwitchLimits()
            await b.installed(1)
            await b.until(lambda: forms(b)[-1].form != "none")

    asyncio.run(scenario())
    assert "switch refused rules" in capfd.readouterr().out


def test_a_switch_whose_rules_are_refused_later_counts_as_installed_once_they_are_there_again() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(1, says=None)
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
            switch.limits = SwitchLimits(matches=FIELDS - {"arp_tpa"})
            lost = [key for key in switch.entries if ("arp_op", 2) not in key[2] and ("eth_type", 0x0806) in key[2]]
            for key in lost:
                del switch.entries[key]
            b.driver._sessions["s1"]._audit_at = 0.0
            b.driver._sessions["s1"]._wake.set()
            await b.until(lambda: [form.form for form in forms(b)][-1:] == ["none"])
            switch.limits = SwitchLimits()
            await b.installed(1, times=2)
            await b.until(lambda: forms(b)[-1].form != "none")


def test_a_switch_whose_form_changes_is_not_installed_until_it_holds_that() -> None:
    """Another program takes rules away, and the switch does not take them any more, nor, for a while, the lesser form."""

    @dataclass(frozen=True)
    class Reluctant(SwitchLimits):
        def error(self, mod: Any, others: Iterable[Any]) -> tuple[int, int] | None:
            if mod.table_id == 0 and mod.priority >= RAISED:
                return ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_EPERM
            return super().error(mod, others)

    async def scenario() -> None:
        switch = FakeSwitch(1, says=None)
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
            before = len(b.events)
            switch.limits = Reluctant(rewrites=frozenset({"eth_dst"}))
            for key in [key for key in switch.entries if key[0] == 2 and key[2]]:
                del switch.entries[key]
            b.driver._sessions["s1"]._audit_at = 0.0
            b.driver._sessions["s1"]._wake.set()
            await b.until(lambda: [form.form for form in forms(b)][-1:] == ["host marks"])
            await asyncio.sleep(0.2)
            kinds = [type(event) for event in b.events[before:]]
            assert kinds[0] is SwitchChanges
            assert SwitchInstalled not in kinds
            switch.limits = SwitchLimits(rewrites=frozenset({"eth_dst"}))
            await b.installed(1, times=2)

    asyncio.run(scenario())


def test_a_switch_that_has_become_able_is_given_all_tables_when_it_connects() -> None:
    async def scenario() -> None:
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            switch = FakeSwitch(1, limits=ONE_TABLE, says=ONE_TABLE)
            b.connect(switch)
            await b.installed(1)
            switch.disconnect()
            switch.limits = switch.says = SwitchLimits()
            b.connect(switch)
            await b.installed(1, times=2)
            assert [form.form for form in forms(b)] == ["host marks", "full"]
            assert tables(switch) == {0, 1, 2, 3}

    asyncio.run(scenario())
