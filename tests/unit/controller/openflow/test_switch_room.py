"""The driver against switches with too little room for the rules."""

import asyncio

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.testing.fabrics import star
from controller.openflow.reports import SwitchInstalled
from controller.openflow.rules import JobRules
from tests.support.openflow_switch import FakeSwitch
from tests.support.switch_limits import SwitchLimits
from tests.unit.controller.openflow.lesser_switches import (
    FABRIC,
    LEFT,
    RIGHT,
    forms,
    hasten,
    is_settled,
    job,
    tables,
)
from tests.unit.controller.openflow.test_driver import bench


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def test_a_full_table_loses_nothing_for_a_form_that_cannot_fit() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(1, says=None)
        async with bench(FABRIC) as b:
            b.driver.install(1, [])
            b.connect(switch)
            await b.installed(1)
        before = dict(switch.entries)
        switch.limits = SwitchLimits(max_entries=9)
        async with bench(star(9)) as b:
            b.driver.install(1, [])
            b.connect(switch)
            await b.until(lambda: [form.form for form in forms(b)][-1:] == ["none"])
            await asyncio.sleep(0.3)
            assert not [key for command, key in switch.mods if command == ofp.OFPFC_DELETE_STRICT]
            assert before.keys() <= switch.entries.keys()

    asyncio.run(scenario())


def test_what_does_not_fit_is_not_half_installed() -> None:
    limits = SwitchLimits(max_entries=12)

    async def scenario() -> None:
        switch = FakeSwitch(1, limits=limits, says=limits)
        async with bench(FABRIC) as b:
            b.driver.install(1, [])
            b.connect(switch)
            await b.installed(1)
            assert forms(b) == []
            b.driver.install(2, [job(2, connections=20)])
            await b.installed(2)
            (form,) = forms(b)
            assert "table 0 needs 24 rules and has room for 12" in form.reason
            assert form.form == "host marks"
            assert not [key for command, key in switch.mods if command == ofp.OFPFC_ADD and key[0] == 1 and key[1] >= 1000]

    asyncio.run(scenario())


def test_a_switch_without_room_is_named_with_both_figures_and_not_installed() -> None:
    limits = SwitchLimits(max_entries=3)

    async def scenario() -> None:
        switch = FakeSwitch(1, limits=limits, says=limits)
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.until(lambda: forms(b))
            await asyncio.sleep(0.1)
            (form,) = forms(b)
            assert form.form == "none"
            assert "table 0 needs 4 rules and has room for 3" in form.reason
            assert not [event for event in b.events if isinstance(event, SwitchInstalled)]
            assert switch.mods == []

    asyncio.run(scenario())


def test_a_table_that_turns_out_to_be_full_leads_to_the_same() -> None:
    async def scenario() -> None:
        switch = FakeSwitch(1, limits=SwitchLimits(max_entries=15), says=None)
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2, connections=20)])
            b.connect(switch)
            await b.installed(1)
            form = forms(b)[-1]
            assert "table 0 needs 24 rules and has room for 15" in form.reason
            assert form.form == "host marks"
            await is_settled(b, switch, 8)

    asyncio.run(scenario())


def test_a_full_table_is_freed_of_what_has_lost_its_purpose() -> None:
    """A change that does not fit beside what it replaces: nothing of it would ever be taken."""
    limits = SwitchLimits(max_entries=50)

    async def scenario() -> None:
        switch = FakeSwitch(1, limits=limits, says=limits)
        async with bench(FABRIC) as b:
            for generation, first in ((1, 1000), (2, 2000)):
                there = frozenset((LEFT.ip, first + port, RIGHT.ip, 2) for port in range(40))
                b.driver.install(generation, [JobRules("s/s/j", 1, 0, 2, there)])
                if generation == 1:
                    b.connect(switch)
                await b.installed(generation)
            assert forms(b) == []
            assert tables(switch) == {0, 1, 2, 3}

    asyncio.run(scenario())
