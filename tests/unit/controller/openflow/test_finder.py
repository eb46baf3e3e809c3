"""What a finder makes of switches that connect, of cables between them and of hosts at their ports: all of them in memory."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from os_ken.lib.packet import arp, ethernet, packet
from os_ken.ofproto import ofproto_v1_3 as ofp
from structlog.testing import capture_logs

from controller.openflow import finder as module
from controller.openflow.finder import SwitchFinder
from controller.openflow.probes import host_answer, host_probe
from controller.openflow.rules import PROBE_MAC, probe_rules
from tests.support import openflow_samples as samples
from tests.support.openflow_switch import FakeSwitch

End = tuple[int, int]
PATIENCE_S = 20.0
HOST_MAC = "02:00:00:00:00:99"


@dataclass
class CabledSwitch(FakeSwitch):
    """A switch that sends on what it is told to, over the cables of its network. asked: for which addresses, by port."""

    network: "Network" = field(kw_only=True)
    asked: list[tuple[int, str]] = field(default_factory=list)

    def _take(self, kind: int, xid: int, frame: bytes) -> None:
        if kind != ofp.OFPT_PACKET_OUT:
            super()._take(kind, xid, frame)
            return
        (actions_bytes,) = struct.unpack_from("!H", frame, 16)
        (port,) = struct.unpack_from("!I", frame, 24 + 4)
        self.network.carry((self.dpid, port), frame[24 + actions_bytes :], self)

    def hand_over(self, port: int, frame: bytes) -> None:
        """Hand a packet to the controller, as the rules that it was given say."""
        if {rule.key for rule in probe_rules()} <= self.entries.keys():
            in_port = samples.field(0, struct.pack("!I", port))
            self.say(ofp.OFPT_PACKET_IN, samples.packet_in(samples.match(in_port), frame)[8:])


class Network:
    """Two switches of two ports each, whose first ones a cable joins; a host is at the second port of the first one."""

    def __init__(self, finder: SwitchFinder) -> None:
        self.finder = finder
        self.cables: dict[End, End] = {(1, 1): (2, 1), (2, 1): (1, 1)}
        self.hosts: dict[End, tuple[str, str]] = {(1, 2): ("10.0.0.1", HOST_MAC)}
        self.switches: dict[int, CabledSwitch] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def add(self, dpid: int, *ports: bytes, bridge: str = "") -> CabledSwitch:
        own = samples.port(ofp.OFPP_LOCAL, bridge or f"br{dpid}")
        described = (*(ports or (samples.port(1, "p1"), samples.port(2, "p2"))), own)
        switch = CabledSwitch(dpid, ports=described, network=self)
        if dpid not in self.switches:
            self.switches[dpid] = switch
        self.tasks.append(asyncio.create_task(switch.connect(*self.finder.address)))
        return switch

    def carry(self, end: End, frame: bytes, sender: CabledSwitch) -> None:
        if (there := self.cables.get(end)) and there[0] in self.switches:
            self.switches[there[0]].hand_over(there[1], frame)
        host = self.hosts.get(end)
        if frame[12:14] == b"\x08\x06":
            ip = ".".join(map(str, frame[38:42]))
            sender.asked.append((end[1], ip))
            if host and host[0] == ip:
                sender.hand_over(end[1], answer(*host))

    async def until(self, holds: Callable[[], Any], *addresses: str) -> None:
        """Send probes until something holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self.finder.probe(addresses)
                await asyncio.sleep(0.01)


def answer(ip: str, mac: str) -> bytes:
    made = packet.Packet()
    made.add_protocol(ethernet.ethernet(PROBE_MAC, mac, 0x0806))
    made.add_protocol(arp.arp(opcode=arp.ARP_REPLY, src_mac=mac, src_ip=ip, dst_mac=PROBE_MAC))
    made.serialize()
    return bytes(made.data)


@asynccontextmanager
async def finding() -> AsyncIterator[Network]:
    finder = SwitchFinder("127.0.0.1", 0)
    await finder.start()
    network = Network(finder)
    try:
        yield network
    finally:
        await finder.stop()
        for task in network.tasks:
            task.cancel()
        await asyncio.wait(network.tasks)


def scene(play: Callable[[Network], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with finding() as network:
            await play(network)

    asyncio.run(run())


def test_cables_and_hosts_are_found_where_they_are() -> None:
    async def play(network: Network) -> None:
        finder = network.finder
        for dpid in (1, 2):
            await network.add(dpid)
        await network.until(lambda: finder.sweeps >= 2 and finder.answers, "10.0.0.1", "10.0.0.7")
        assert finder.leads_to == network.cables
        assert finder.answers == {(1, 2): {"10.0.0.1": HOST_MAC}}
        assert {dpid: (one.bridge, sorted(one.ports)) for dpid, one in finder.switches.items()} == {
            1: ("br1", [1, 2]),
            2: ("br2", [1, 2]),
        }

    scene(play)


def test_who_is_at_a_port_with_another_switch_behind_it_is_not_asked() -> None:
    async def play(network: Network) -> None:
        for dpid in (1, 2):
            await network.add(dpid)
        await network.until(lambda: network.finder.leads_to == network.cables)
        await network.until(lambda: len(network.switches[1].asked) > 1 and network.switches[2].asked, "10.0.0.1")
        assert {port for one in network.switches.values() for port, _ in one.asked} == {2}

    scene(play)


def test_all_addresses_are_asked_for_at_all_ports_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBES", 3)
    addresses = [f"10.0.1.{number}" for number in range(8)]

    async def play(network: Network) -> None:
        network.cables.clear()
        switch = await network.add(1)
        await network.until(lambda: switch.asked and network.finder.sweeps >= 1, *addresses)
        assert set(switch.asked) == {(port, ip) for port in (1, 2) for ip in addresses}
        assert len(switch.asked) < 2 * 2 * len(addresses)

    scene(play)


def test_answers_over_ipv6_are_handed_over_where_somebody_is_asked_for_by_it() -> None:
    async def play(network: Network) -> None:
        switch = await network.add(1)
        await network.until(lambda: switch.asked, "10.0.0.1")
        assert switch.entries.keys() == {rule.key for rule in probe_rules()}
        await network.until(lambda: switch.entries.keys() == {rule.key for rule in probe_rules(ipv6=True)}, "fd00::1")
        await network.finder.stop()
        assert not switch.entries

    scene(play)


def test_a_switch_forwards_as_before_when_the_search_is_over() -> None:
    async def play(network: Network) -> None:
        switch = await network.add(1)
        await network.until(lambda: network.finder.switches)
        assert switch.entries.keys() == {rule.key for rule in probe_rules()}
        await network.finder.stop()
        assert not switch.entries

    scene(play)


def test_what_is_gone_is_not_found() -> None:
    async def play(network: Network) -> None:
        finder = network.finder
        for dpid in (1, 2):
            await network.add(dpid)
        await network.until(lambda: finder.answers and finder.leads_to == network.cables, "10.0.0.1")
        down = samples.port_status(samples.port(2, "p2", state=ofp.OFPPS_LINK_DOWN))
        network.switches[1].say(ofp.OFPT_PORT_STATUS, down[8:])
        await network.until(lambda: not finder.answers)
        assert not finder.switches[1].ports[2].up
        network.switches[1].say(ofp.OFPT_PORT_STATUS, samples.port_status(samples.port(2, "p2"), ofp.OFPPR_DELETE)[8:])
        await network.until(lambda: 2 not in finder.switches[1].ports)
        network.switches[2].disconnect()
        await network.until(lambda: finder.switches.keys() == {1})
        assert finder.leads_to == {}

    scene(play)


def test_nothing_is_kept_of_switches_that_have_gone_and_of_few_ports_more_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_PORTS", 3)

    async def play(network: Network) -> None:
        finder = network.finder
        switch = await network.add(1)
        await network.until(lambda: finder.switches)
        with capture_logs() as logs:
            for number in range(3, 9):
                switch.say(ofp.OFPT_PORT_STATUS, samples.port_status(samples.port(number, f"p{number}"), ofp.OFPPR_ADD)[8:])
            await network.until(lambda: logs)
        assert sorted(finder.switches[1].ports) == [1, 2, 3]
        assert [entry["event"] for entry in logs] == ["switch has more ports than are taken in"]
        switch.say(ofp.OFPT_PORT_STATUS, samples.port_status(samples.port(3, "p3"), ofp.OFPPR_DELETE)[8:])
        await network.until(lambda: sorted(finder.switches[1].ports) == [1, 2])
        assert len(finder._frames) == len(finder._sender) == 2
        switch.disconnect()
        await network.until(lambda: not finder.switches)
        assert not finder._frames
        assert not finder._sender

    scene(play)


def test_lldp_is_sent_from_all_ports_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBES", 1)

    async def play(network: Network) -> None:
        for dpid in (1, 2):
            await network.add(dpid)
        await network.until(lambda: network.finder.leads_to == network.cables)

    scene(play)


def test_a_port_that_hands_over_much_is_heard_no_more_in_a_round_and_the_first_address_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TAKEN", 2)

    async def play(network: Network) -> None:
        finder = network.finder
        switch = await network.add(1)
        await network.until(lambda: finder.switches and finder.sweeps, "10.0.0.1", "10.0.0.5")
        with capture_logs() as logs:
            for mac in ("02:00:00:00:00:05", HOST_MAC, "02:00:00:00:00:06"):
                switch.hand_over(1, answer("10.0.0.5", mac))
            async with asyncio.timeout(PATIENCE_S):
                while len(logs) < 2:
                    await asyncio.sleep(0.01)
        assert finder.answers[1, 1] == {"10.0.0.5": "02:00:00:00:00:05"}
        assert [entry["event"] for entry in logs] == [
            "an address answers at a port with a second Ethernet address",
            "a port hands over packets that are no answers to probes",
        ]

    scene(play)


def test_a_second_switch_of_a_datapath_id_is_refused() -> None:
    async def play(network: Network) -> None:
        await network.add(1, bridge="first")
        await network.until(lambda: network.finder.switches)
        with capture_logs() as logs:
            await network.add(1, bridge="second")
            await network.until(lambda: logs)
        assert "a switch of this datapath id is connected" in logs[0]["reason"]
        assert network.finder.switches[1].bridge == "first"

    scene(play)


def test_what_nobody_asked_for_is_not_believed() -> None:
    async def play(network: Network) -> None:
        finder = network.finder
        switch = await network.add(1)
        await network.until(lambda: finder.switches and finder.sweeps, "10.0.0.5")
        for frame in (
            answer("10.9.9.9", HOST_MAC),  # Nobody asks for this address.
            host_probe("10.0.0.5"),
            b"\x01\x80\xc2\x00\x00\x0e" + bytes(60),
            b"short",
        ):
            switch.hand_over(2, frame)
        switch.hand_over(77, answer("10.0.0.5", HOST_MAC))  # It has no such port.
        switch.hand_over(1, answer("10.0.0.5", HOST_MAC))
        await network.until(lambda: finder.answers, "10.0.0.5")
        assert finder.answers == {(1, 1): {"10.0.0.5": HOST_MAC}}
        assert finder.leads_to == {}
        assert host_answer(answer("10.0.0.5", HOST_MAC)) == ("10.0.0.5", HOST_MAC)

    scene(play)
