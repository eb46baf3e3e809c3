"""A driver that watches its network: what switches say reaches its reports and its rules. The switches forward nothing."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.testing.fabrics import two_spines
from controller.event_loop.time_slices import TimeSlices
from controller.openflow import driver as module
from controller.openflow import rule_watch
from controller.openflow.channel import Channel, ChannelError
from controller.openflow.reports import NetworkSeen, SwitchEvent, SwitchInstalled
from controller.openflow.rules import routes
from controller.openflow.wire import barrier
from tests.support.openflow_samples import IN_PORT, match, packet_in, port
from tests.support.openflow_switch import FakeSwitch, foreign_rule, leading_driver

FABRIC = two_spines(1)
PORTS = {"l1": (1, 2, 3), "l2": (1, 2, 3), "s1": (1, 2), "s2": (1, 2)}
DARK = struct.pack("!B7x", ofp.OFPPR_MODIFY) + port(1, "l1-eth1", state=ofp.OFPPS_LINK_DOWN)
LIT = struct.pack("!B7x", ofp.OFPPR_MODIFY) + port(1, "l1-eth1")


class Site:
    """A driver with all its switches."""

    def __init__(self) -> None:
        self.events: list[SwitchEvent] = []
        self.driver = leading_driver(FABRIC, self.events.append, watches=True)
        self.switches = {
            one.name: FakeSwitch(one.dpid, ports=tuple(port(n, f"{one.name}-eth{n}") for n in PORTS[one.name]))
            for one in FABRIC.switches
        }

    @property
    def seen(self) -> NetworkSeen:
        return [NetworkSeen(), *(event for event in self.events if isinstance(event, NetworkSeen))][-1]

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.005)

    def outputs(self, switch: str) -> dict[object, int]:
        """Return by match the port to which a switch's forwarding rules send."""
        found: dict[object, int] = {}
        for (table, _, matched), entry in self.switches[switch].entries.items():
            for instruction in entry.message.instructions:
                for action in getattr(instruction, "actions", ()):
                    if isinstance(action, parser.OFPActionOutput):
                        found[table, matched] = action.port
        return found

    def routed(self, switch: str, dead: tuple[tuple[str, str], ...]) -> bool:
        """Return whether a switch forwards as it should around dead cables."""
        hops = FABRIC.next_hops.around(dead)
        wanted = [rule for position in range(len(FABRIC.hosts)) for rule in routes(FABRIC, switch, position, hops)]
        held = self.outputs(switch)
        return all(held.get((rule.table, rule.match)) == rule.actions[-1].port for rule in wanted)  # type: ignore[union-attr]


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.driver.start()
    connections = [asyncio.create_task(one.connect(*made.driver.address)) for one in made.switches.values()]
    made.driver.install(1, ())
    try:
        await made.until(lambda: len([e for e in made.events if isinstance(e, SwitchInstalled)]) == len(FABRIC.switches))
        yield made
    finally:
        await made.driver.stop()
        await asyncio.gather(*connections)


def test_loss_of_light_is_reported_and_packets_are_led_elsewhere() -> None:
    async def scenario() -> None:
        async with site() as made:
            assert made.seen.switches == frozenset(FABRIC.switch)
            assert all(made.routed(name, ()) for name in FABRIC.switch)
            made.switches["l1"].say(ofp.OFPT_PORT_STATUS, DARK)
            await made.until(lambda: made.seen.mismatches)
            assert made.seen.mismatches[0].text == "l1 port 1 has no link; the file connects it to s1"
            assert made.seen.dead == {("l1", "s1")}
            await made.until(lambda: all(made.routed(name, (("l1", "s1"),)) for name in FABRIC.switch))

    asyncio.run(scenario())


def test_rules_of_other_programs_are_remarked_on_until_they_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_watch, "COUNT_S", rule_watch.COUNT_S / 100)

    async def scenario() -> None:
        async with site() as made:
            key, entry = foreign_rule(50_000)
            made.switches["l1"].entries[key] = entry
            await made.until(lambda: made.seen.remarks)
            assert made.seen.remarks == (
                "l1 has rules of other programs that come before Beamer's, 1 in all: table 0 priority 50000 cookie 0x7",
            )
            del made.switches["l1"].entries[key]
            await made.until(lambda: not made.seen.remarks)

    asyncio.run(scenario())


def test_a_probe_that_a_switch_hands_over_is_taken_in() -> None:
    async def scenario() -> None:
        async with site() as made:
            made.switches["l1"].say(ofp.OFPT_PORT_STATUS, DARK)
            await made.until(lambda: made.seen.dead)
            made.switches["l1"].say(ofp.OFPT_PORT_STATUS, LIT)
            survey = made.driver._survey
            assert survey is not None
            for sender, at in (("l1", "s1"), ("s1", "l1")):
                handed = packet_in(match(IN_PORT[:4] + struct.pack("!I", 1)), survey._probes[sender, 1][0])
                made.switches[at].say(ofp.OFPT_PACKET_IN, handed[ofp.OFP_HEADER_SIZE :])
            await made.until(lambda: not made.seen.dead)
            await made.until(lambda: all(made.routed(name, ()) for name in FABRIC.switch))

    asyncio.run(scenario())


def test_what_a_switch_says_of_its_own_accord_may_have_the_number_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    take = FakeSwitch._take

    def taking(switch: FakeSwitch, kind: int, xid: int, frame: bytes) -> None:
        if kind == ofp.OFPT_BARRIER_REQUEST:
            switch.say(ofp.OFPT_PORT_STATUS, LIT, xid)
        take(switch, kind, xid, frame)

    monkeypatch.setattr(FakeSwitch, "_take", taking)

    async def scenario() -> None:
        async with site() as made:
            assert made.seen.switches == frozenset(FABRIC.switch)

    asyncio.run(scenario())


def test_a_driver_that_begins_waits_for_all_switches_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_S", 0.3)

    async def scenario() -> None:
        made = Site()
        await made.driver.start()
        made.driver.install(1, ())
        connection = asyncio.create_task(made.switches["l1"].connect(*made.driver.address))
        await made.until(lambda: made.seen.switches)
        assert made.switches["l1"].mods == [], "another switch may know of a cable that is dead"
        await made.until(lambda: any(isinstance(event, SwitchInstalled) for event in made.events))
        await made.driver.stop()
        await connection

    asyncio.run(scenario())


def test_nothing_is_asked_of_a_connection_that_has_ended() -> None:
    async def scenario() -> None:
        connected: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(
            lambda r, w: connected.set_result(Channel(r, w, lambda _: None, TimeSlices())), "127.0.0.1", 0
        )
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            channel = await connected
            writer.close()
            with pytest.raises(ExceptionGroup):
                await channel.serve()
            async with asyncio.timeout(5):  # An answer is waited for twice as long.
                with pytest.raises(ChannelError, match="connection closed"):
                    await channel.request(barrier(channel.datapath))
            channel.close()

    asyncio.run(scenario())
