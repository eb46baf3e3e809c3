"""A survey of a network in memory: each frame goes where a cable leads, if it does."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from os_ken.lib.packet import arp, ethernet, packet
from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.network.fabric import Fabric
from beamer.network.observed_fabric import PortKey, dead_cables, mismatches
from beamer.testing.fabrics import two_spines
from controller.event_loop.time_slices import TimeSlices
from controller.openflow import survey
from controller.openflow.channel import ChannelError, RefusedError
from controller.openflow.frames import PacketIn
from controller.openflow.probes import host_probe
from controller.openflow.rules import PROBE_MAC
from controller.openflow.survey import Survey

FABRIC = two_spines(1)
DATAPATH = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
HOSTS = {"h1": ("l1", 3), "h2": ("l2", 3)}


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a survey wait for nothing: this process may wait for a processor."""
    monkeypatch.setattr(survey, "ON_THE_WAY_S", 0.001)
    monkeypatch.setattr(survey, "PROMPT_S", 1000.0)


async def settled() -> None:
    """Wait for nothing."""


def described(number: int, up: bool = True) -> Any:
    state = 0 if up else ofp.OFPPS_LINK_DOWN
    return parser.OFPPort(number, "02:00:00:00:00:01", f"p{number}".encode(), 0, state, 0, 0, 0, 0, 0, 0)


def answer(ip: str, mac: str) -> bytes:
    made = packet.Packet()
    made.add_protocol(ethernet.ethernet(PROBE_MAC, mac, 0x0806))
    made.add_protocol(arp.arp(opcode=arp.ARP_REPLY, src_mac=mac, src_ip=ip, dst_mac=PROBE_MAC))
    made.serialize()
    return bytes(made.data)


@dataclass
class Wires:
    """Where frames go. cables: from port to port. hosts: by port, the addresses there. drops: frames that are lost."""

    fabric: Fabric = FABRIC
    survey: Survey | None = None
    cables: dict[PortKey, PortKey] = field(default_factory=dict)
    hosts: dict[PortKey, tuple[str, str]] = field(default_factory=dict)
    drops: Callable[[PortKey, bytes], bool] = lambda sender, frame: False
    changes: int = 0

    def __post_init__(self) -> None:
        for a, b in FABRIC.cables:
            if b.dst in FABRIC.switch and a.dst in FABRIC.switch:
                self.cables |= {(a.src, a.port): (b.src, b.port), (b.src, b.port): (a.src, a.port)}
        self.hosts = {end: (FABRIC.host[name].ip, FABRIC.host[name].mac) for name, end in HOSTS.items()}
        self.survey = Survey(self.fabric, TimeSlices(), self._changed, settled)

    def _changed(self) -> None:
        self.changes += 1

    def carry(self, sender: PortKey, frame: bytes) -> None:
        assert self.survey is not None
        if self.drops(sender, frame):
            return
        if (at := self.cables.get(sender)) is not None:
            self.survey.take(at[0], PacketIn(0, at[1], frame + bytes(3)))
        elif (host := self.hosts.get(sender)) is not None and frame[: len(host_probe(host[0]))] == host_probe(host[0]):
            self.survey.take(sender[0], PacketIn(0, sender[1], answer(*host)))


@dataclass
class Link:
    """A switch's connection, as far as a survey uses it."""

    name: str
    wires: Wires
    ports: tuple[int, ...] = (1, 2, 3, ofp.OFPP_LOCAL)
    answers: bool = True
    refuses: bool = False
    hangs: bool = False
    takes_s: float = 0
    queued: tuple[int, ...] = (1, 2, 3)
    queues: tuple[int, ...] = (0, 1)
    counts: bool = False
    sent: Counter[int] = field(default_factory=Counter)
    shows_queues: bool = True
    sets_queues: bool = True
    datapath: Any = DATAPATH

    def send(self, *messages: Any) -> None:
        for message in messages:
            message.set_xid(1)
            message.serialize()
            *others, output = message.actions
            if others and not self.sets_queues:
                continue
            self.sent[output.port] += 1
            self.wires.carry((self.name, output.port), message.data)

    async def request(self, message: Any) -> list[Any]:
        await asyncio.sleep(1000 if self.hangs else self.takes_s)
        if not self.answers:
            raise ChannelError("silent")
        if self.refuses:
            raise RefusedError("no")
        if isinstance(message, parser.OFPQueueStatsRequest):
            if not self.shows_queues:
                raise RefusedError("no")
            packets = self.sent if self.counts else Counter[int]()
            return [
                parser.OFPQueueStats(port, queue, 0, packets[port] if queue == 1 else 0, 0, 0, 0)
                for port in self.queued
                for queue in self.queues
            ]
        return [described(number) for number in self.ports] if isinstance(message, parser.OFPPortDescStatsRequest) else [None]


@dataclass
class Site:
    """A survey under test with the connections of its switches."""

    wires: Wires = field(default_factory=Wires)
    links: dict[str, Link] = field(default_factory=dict)

    @property
    def survey(self) -> Survey:
        assert self.wires.survey is not None
        return self.wires.survey

    async def join(self, *names: str, with_rules: bool = True) -> None:
        for name in names or FABRIC.switch:
            ports = (1, 2, 3, ofp.OFPP_LOCAL) if name.startswith("l") else (1, 2)
            self.links[name] = link = Link(name, self.wires, ports)
            await self.survey.joined(name, link)  # type: ignore[arg-type]
            if with_rules:
                self.survey.has_rules(name)

    async def rounds(self, number: int = 1) -> None:
        for _ in range(number):
            await self.survey._round()

    def texts(self) -> list[str]:
        return [one.text for one in mismatches(self.wires.fabric, self.survey.observation())]

    def dead(self) -> frozenset[tuple[str, str]]:
        seen = self.survey.observation()
        return dead_cables(FABRIC, mismatches(FABRIC, seen), seen.silent)

    def status(self, switch: str, number: int, up: bool, reason: int = ofp.OFPPR_MODIFY) -> None:
        self.survey.take(switch, parser.OFPPortStatus(DATAPATH, reason, described(number, up)))


def run(scenario: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(Site()))
