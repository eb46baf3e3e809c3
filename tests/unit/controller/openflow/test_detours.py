"""Forwarding around dead cables: packets reach their hosts before, during and after, and on the way back at each step."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import permutations
from typing import Any

import pytest

from beamer.network.fabric import Fabric
from beamer.testing.fabrics import two_spines
from controller.event_loop.time_slices import TimeSlices
from controller.openflow import detours
from controller.openflow.detours import Detours, RulesBySwitch
from controller.openflow.rules import IPV4, Rule, Slot, shadow, static_rules
from tests.support.openflow_switch import trace_packet
from topologies import fat_tree, leaf_spine

FABRICS = {"two spines": two_spines(2), "three spines": leaf_spine.build(3, 3, 2), "fat tree": fat_tree.build(4)}


class Switches:
    """The rules of all switches; each is given what is replaced only when a test says so."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rules: dict[str, dict[Slot, Rule]] = {n: {r.slot: r for r in rules} for n, rules in static_rules(fabric).items()}
        self.steps: list[tuple[RulesBySwitch, list[asyncio.Future[None]]]] = []
        self.detours = Detours(fabric, TimeSlices(), self._replace)

    def _replace(self, rules: RulesBySwitch) -> list[asyncio.Future[None]]:
        reached = [asyncio.get_running_loop().create_future() for _ in rules]
        self.steps.append((rules, reached))
        return reached

    async def next_step(self) -> Mapping[str, Mapping[Slot, Rule]]:
        """Take in the next step, as switches do, and return it."""
        async with asyncio.timeout(30):
            while not self.steps:
                await asyncio.sleep(0.001)
        rules, reached = self.steps.pop(0)
        for name, changed in rules.items():
            self.rules[name] |= changed
        for one in reached:
            one.set_result(None)
        return rules

    def check(self, dead: tuple[str, str] | None) -> None:
        """Follow a packet of each plane, and an unregistered one, between any two hosts."""
        tables = {name: list(rules.values()) for name, rules in self.rules.items()}
        ports = {(link.src, link.port) for link in self.fabric.links if dead and {link.src, link.dst} == {*dead}}
        for (i, src), (j, dst) in permutations(enumerate(self.fabric.hosts), 2):
            planes = [{"eth_dst": shadow(plane, j), "eth_type": IPV4} for plane in range(self.fabric.planes)]
            for fields in [*planes, {"eth_dst": dst.mac, "eth_type": IPV4}]:
                packet = {**fields, "ipv4_src": src.ip, "ipv4_dst": dst.ip, "ip_proto": 17, "ip_dscp": 0}
                trace = trace_packet(self.fabric, tables, src.name, packet)
                assert trace.arrived_at == dst.name, (i, j, fields)
                assert not ports & set(trace.links)


def run(fabric: Fabric, scenario: Callable[[Switches], Coroutine[Any, Any, None]]) -> None:
    async def running() -> None:
        switches = Switches(fabric)
        task = asyncio.create_task(switches.detours.run())
        await scenario(switches)
        task.cancel()

    asyncio.run(running())


@pytest.mark.parametrize("name", FABRICS)
def test_loss_is_mended_at_once_and_the_way_back_loses_nothing_at_any_step(name: str) -> None:
    fabric = FABRICS[name]
    cable = next((a.src, a.dst) for a, _ in fabric.cables if a.src in fabric.switch and a.dst in fabric.switch)

    async def scenario(switches: Switches) -> None:
        before = {n: dict(rules) for n, rules in switches.rules.items()}
        switches.check(None)
        await switches.detours.settled()
        switches.detours.avoid(frozenset({cable}))
        switches.detours.avoid(frozenset({cable}))
        await switches.detours.settled()
        assert len(switches.steps) == 1
        first = await switches.next_step()
        switches.check(cable)
        await asyncio.sleep(0.02)
        assert switches.steps == []
        switches.detours.avoid(frozenset())
        steps = []
        while switches.rules != before:
            steps.append(await switches.next_step())
            switches.check(None)
        assert len(steps) > 1
        assert {(n, slot) for step in steps for n, of in step.items() for slot in of} == {
            (n, slot) for n, of in first.items() for slot in of
        }

    run(fabric, scenario)


def test_a_switch_further_back_waits_for_those_further_on_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detours, "SWITCH_WAIT_S", 0.5)

    async def scenario(switches: Switches) -> None:
        switches.detours.avoid(frozenset({("l1", "s1")}))
        await switches.next_step()
        switches.detours.avoid(frozenset())
        while not switches.steps:
            await asyncio.sleep(0.001)
        assert set(switches.steps[0][0]) == {"s1"}
        await asyncio.sleep(0.05)
        assert len(switches.steps) == 1, "the leaves would send over it what it does not lead on yet"
        async with asyncio.timeout(30):
            while len(switches.steps) == 1:
                await asyncio.sleep(0.001)
        assert set(switches.steps[1][0]) == {"l1", "l2"}

    run(FABRICS["two spines"], scenario)


def test_what_no_path_leads_to_stays_as_the_file_says() -> None:
    fabric = FABRICS["two spines"]

    async def scenario(switches: Switches) -> None:
        before = {n: dict(rules) for n, rules in switches.rules.items()}
        switches.detours.avoid(frozenset({("l1", "s1"), ("l1", "s2")}))
        await switches.detours.settled()
        ((rules, _),) = switches.steps
        assert rules == {}
        assert switches.rules == before

    run(fabric, scenario)


def test_a_fault_is_reported_and_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(switches: Switches) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        with monkeypatch.context() as patch:
            patch.setattr(switches.detours, "_replace", lambda rules: 1 / 0)
            switches.detours.avoid(frozenset({("l1", "s1")}))
            async with asyncio.timeout(30):
                while not faults:
                    await asyncio.sleep(0.001)
        switches.detours.avoid(frozenset({("l2", "s1")}))
        await switches.next_step()

    run(FABRICS["two spines"], scenario)


def test_what_is_waited_for_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detours, "SWITCH_WAIT_S", 0.01)

    async def waiting() -> None:
        idle = Detours(FABRICS["two spines"], TimeSlices(), lambda rules: [])
        idle.avoid(frozenset({("l1", "s1")}))
        await idle.settled()  # Nobody runs it.

    asyncio.run(waiting())
