"""The driver against switches that can do less than four tables ask for: what they hold, and what is said of them."""

import asyncio
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.testing.fabrics import star, two_spines
from controller.event_loop.time_slices import Work
from controller.openflow import driver, held_rules, rule_watch, session
from controller.openflow.fabric_rules import FabricRules
from controller.openflow.forms import RAISED
from controller.openflow.questions import ENDINGS
from controller.openflow.reports import NetworkSeen, SwitchChanges, SwitchEvent, SwitchForm, SwitchInstalled
from controller.openflow.rules import JobRules
from tests.support.openflow_samples import port
from tests.support.openflow_switch import FakeSwitch, foreign_rule, leading_driver
from tests.support.switch_limits import FIELDS, SwitchLimits
from tests.unit.controller.openflow.test_driver import Bench, bench

FABRIC = star(2)
ONE_TABLE = SwitchLimits(tables=1, metadata=False, rewrites=frozenset())
LEFT, RIGHT = FABRIC.hosts
BOTH_DIRECTIONS = frozenset({(LEFT.ip, 1, RIGHT.ip, 2), (RIGHT.ip, 2, LEFT.ip, 1)})


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rules, "SETTLE_S", 0.1)
    monkeypatch.setattr(held_rules, "LINGER_S", 0.1)
    monkeypatch.setattr(session, "FLUSH_S", 0.001)
    monkeypatch.setattr(session, "RETRY_S", 0.05)


def job(klass: int, caps: dict[str, int] | None = None, connections: int = 1) -> JobRules:
    more = frozenset((LEFT.ip, 1000 + port, RIGHT.ip, 2) for port in range(connections - 1))
    return JobRules("s/s/j", 1, 0, klass, BOTH_DIRECTIONS | more, caps or {})


def forms(b: Bench) -> list[SwitchForm]:
    return [event for event in b.events if isinstance(event, SwitchForm)]


def tables(switch: FakeSwitch) -> set[int]:
    return {table for table, _, _ in switch.entries}


async def is_settled(b: Bench, switch: FakeSwitch, at_most: int) -> None:
    """Wait until what is left of another form is gone."""
    await b.until(lambda: len(switch.entries) <= at_most and tables(switch) == {0})


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
def test_a_switch_that_can_do_less_holds_one_table(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
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
            out = capsys.readouterr().out
            assert "gave no counters" not in out
            refused = "switch refused rules" in out
            assert refused is (not kind.endswith("says so"))

    asyncio.run(scenario())


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
    capsys: pytest.CaptureFixture[str],
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
    assert capsys.readouterr().out.count(text) == 1


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


def test_a_switch_that_takes_no_form_is_named_and_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "switch refused rules" in capsys.readouterr().out


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
