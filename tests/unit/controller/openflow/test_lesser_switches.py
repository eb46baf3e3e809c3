"""The driver against switches that can do less than four tables ask for: what they hold, and what is said of them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.testing.fabrics import two_spines
from controller.event_loop.time_slices import Work
from controller.openflow import driver, rule_watch
from controller.openflow.fabric_rules import FabricRules
from controller.openflow.reports import NetworkSeen, SwitchEvent, SwitchInstalled
from controller.openflow.rules import JobRules
from tests.support.openflow_samples import port
from tests.support.openflow_switch import FakeSwitch, foreign_rule, leading_driver
from tests.support.switch_limits import SwitchLimits
from tests.unit.controller.openflow.lesser_switches import (
    FABRIC,
    LEFT,
    ONE_TABLE,
    RIGHT,
    forms,
    hasten,
    is_settled,
    job,
)
from tests.unit.controller.openflow.test_driver import bench


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


ANSWERS = {
    "that says so": FakeSwitch(1, limits=ONE_TABLE, says=ONE_TABLE),
    "that answers by an error": FakeSwitch(1, limits=ONE_TABLE, says=None, n_tables=254),
    "that does not answer": FakeSwitch(1, limits=ONE_TABLE, silent=True, n_tables=254),
    "that refuses metadata alone": FakeSwitch(1, limits=SwitchLimits(metadata=False), says=None),
    "that refuses rewriting of codepoints alone": FakeSwitch(
        1, limits=SwitchLimits(rewrites=frozenset({"eth_dst"})), says=None
    ),
    "that says that it can do everything": FakeSwitch(1, limits=SwitchLimits(rewrites=frozenset({"eth_dst"}))),
    "whose features reply alone says so": FakeSwitch(1, limits=replace(ONE_TABLE, rewrites=frozenset({"eth_dst"})), says=None),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_switch_that_can_do_less_holds_one_table(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    switch = replace(ANSWERS[kind], entries={}, mods=[])

    async def scenario() -> None:
        async with bench(FABRIC) as b:
            b.driver.install(1, [job(2)])
            b.connect(switch)
            await b.installed(1)
            form = forms(b)[-1]
            assert (form.switch, form.form) == ("s1", "host marks")
            assert form.reason.startswith("not full: it ")
            assert b.events.index(form) < b.events.index(await b.installed(1))
            ethernet = "eth_dst" in switch.limits.rewrites
            await is_settled(b, switch, 2 * 21 + 2 if ethernet else 2 * 11)
            b.driver.install(2, [job(5)])
            assert (await b.installed(2)).changes == 0
            assert await b.driver.counters() == ()
            out = capfd.readouterr().out
            assert "gave no counters" not in out
            refused = "switch refused rules" in out
            assert refused is (not kind.endswith("says so"))

    asyncio.run(scenario())


def test_a_fault_while_neighbours_are_given_their_rules_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    before = FabricRules.adapted

    def adapted(rules: FabricRules, switch: str) -> Work[bool]:
        assert switch != "s2", "a fault"
        return before(rules, switch)

    monkeypatch.setattr(FabricRules, "adapted", adapted)

    async def scenario() -> None:
        fabric, faults = two_spines(1), list[dict[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with bench(fabric) as b:
            b.driver.install(1, [])
            b.connect(FakeSwitch(fabric.switch["l1"].dpid, limits=ONE_TABLE, says=ONE_TABLE))
            await b.until(lambda: faults)
        assert [str(fault["exception"]).splitlines()[0] for fault in faults] == ["a fault"]

    asyncio.run(scenario())


@pytest.mark.parametrize("late", [None, "l2"])
@pytest.mark.parametrize("limits", [ONE_TABLE, SwitchLimits()], ids=["lesser", "full"])
def test_a_restarted_controller_changes_nothing_on_switches_of_either_form(
    limits: SwitchLimits, late: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it while one of them has not connected yet: nothing is known of that one."""
    monkeypatch.setattr(driver, "GATHER_S", 0.1)
    fabric = two_spines(1)
    ports = {"l1": (1, 2, 3), "l2": (1, 2, 3), "s1": (1, 2), "s2": (1, 2)}
    switches = {
        name: FakeSwitch(one.dpid, ports=tuple(port(n, f"{name}-eth{n}") for n in ports[name]))
        for name, one in fabric.switch.items()
    }
    switches["l2"].limits = switches["l2"].says = limits
    a, b = (host.ip for host in fabric.hosts)
    both = JobRules("j", 1, 1, 2, frozenset({(a, 1, b, 2), (b, 2, a, 1)}))

    async def scenario(late: str | None) -> list[SwitchInstalled]:
        events: list[SwitchEvent] = []
        leading = leading_driver(fabric, events.append, watches=True)
        leading.install(1, [both])
        await leading.start()

        async def installed(number: int) -> list[SwitchInstalled]:
            def done() -> list[SwitchInstalled]:
                return [event for event in events if isinstance(event, SwitchInstalled)]

            async with asyncio.timeout(30):
                while len({one.switch for one in done()}) < number:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.3)  # What has lost its purpose is gone by then.
            return done()

        first = [one for name, one in switches.items() if name != late]
        connections = [asyncio.create_task(one.connect(*leading.address)) for one in first]
        await installed(len(first))
        if late is not None:
            connections.append(asyncio.create_task(switches[late].connect(*leading.address)))
        done = await installed(len(switches))
        await leading.stop()
        await asyncio.gather(*connections)
        return done

    assert sum(one.changes for one in asyncio.run(scenario(None))) > 0
    added = [key for one in switches.values() for command, key in one.mods if command == ofp.OFPFC_ADD]
    assert len(added) == len({(name, key) for name, one in switches.items() for _, key in one.mods}), "nothing is written twice"
    assert {one.switch: one.changes for one in asyncio.run(scenario(late))} == dict.fromkeys(fabric.switch, 0)
    changed = (command for one in switches.values() for command, _ in one.mods if command != ofp.OFPFC_MODIFY_STRICT)
    assert not list(changed), "what restarts time-outs changes nothing"


def test_a_rule_of_another_program_below_those_of_the_lesser_form_is_not_in_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_watch, "COUNT_S", 0.05)

    async def scenario() -> None:
        switch = FakeSwitch(1, limits=ONE_TABLE, says=ONE_TABLE, ports=(port(1, "s1-eth1"), port(2, "s1-eth2")))
        switch.entries.update([foreign_rule(0)])
        events: list[SwitchEvent] = []
        driver = leading_driver(FABRIC, events.append, watches=True)
        driver.install(1, [job(2)])
        await driver.start()
        connection = asyncio.create_task(switch.connect(*driver.address))

        def remarks() -> list[str]:
            seen = [event for event in events if isinstance(event, NetworkSeen)]
            return [text for text in seen[-1].remarks if "other programs" in text] if seen else []

        async with asyncio.timeout(30):
            while switch.counted < 6:
                await asyncio.sleep(0.005)
            assert remarks() == []
            switch.entries.update([foreign_rule(60_000)])
            while not remarks():
                await asyncio.sleep(0.005)
        await driver.stop()
        await connection

    asyncio.run(scenario())


def test_a_lesser_switch_has_no_meters() -> None:
    stranger = replace(FABRIC, hosts=(replace(LEFT, agent=None), RIGHT))

    async def scenario() -> None:
        for limits, metered in ((SwitchLimits(), True), (ONE_TABLE, False)):
            switch = FakeSwitch(1, limits=limits, says=limits)
            async with bench(stranger) as b:
                b.driver.install(1, [job(2, caps={LEFT.name: 1_000_000})])
                b.connect(switch)
                await b.installed(1)
                assert bool(switch.meters) is metered
                assert any("no cap is held" in text for form in forms(b) for text in form.limits) is not metered

    asyncio.run(scenario())


def test_full_switches_follow_what_their_neighbours_turn_out_to_be() -> None:
    """A leaf that cannot put addresses back: the other one writes no shadow address towards its hosts any more."""
    fabric = two_spines()
    a, b_ = fabric.hosts[0].ip, fabric.hosts[-1].ip
    both = JobRules("j", 1, 1, 2, frozenset({(a, 1, b_, 2), (b_, 2, a, 1)}))

    def rewritten(switch: FakeSwitch) -> set[str]:
        actions = (
            action
            for (table, _, _), entry in switch.entries.items()
            if table == 1
            for instruction in entry.message.instructions
            for action in getattr(instruction, "actions", ())
        )
        return {action.key for action in actions if action.type == ofp.OFPAT_SET_FIELD}

    async def scenario() -> None:
        switches = {name: FakeSwitch(one.dpid) for name, one in fabric.switch.items()}
        without_queues = SwitchLimits(actions=frozenset({ofp.OFPAT_OUTPUT, ofp.OFPAT_SET_FIELD}))
        switches["s2"].limits = switches["s2"].says = without_queues
        async with bench(fabric) as b:
            b.driver.install(1, [both])
            for name in ("l1", "s1", "s2"):
                b.connect(switches[name])
            await b.until(lambda: rewritten(switches["l1"]) == {"ip_dscp"})  # Nothing is known of the other one.
            b.connect(switches["l2"])
            await b.until(lambda: "eth_dst" in rewritten(switches["l1"]))
            switches["l2"].disconnect()
            switches["l2"].limits, switches["l2"].says = ONE_TABLE, None
            b.connect(switches["l2"])
            await b.until(lambda: rewritten(switches["l1"]) == {"ip_dscp"})
            targets = {name: target for name in switches if (target := b.driver._adaptation.target(name)) is not None}
            assert [name for name, target in targets.items() if not target.form.ethernet] == ["l2"]
            assert [name for name, target in targets.items() if not target.form.queues] == ["s2"]
            marked = ("ip_dscp", 7)
            await b.until(lambda: any(table == 0 and marked in fields for table, _, fields in switches["s1"].entries))

    asyncio.run(scenario())
