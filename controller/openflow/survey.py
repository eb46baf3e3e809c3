"""Watches how a network is cabled, through its connected switches: port states as they change, and probes once in a while.

Each port of a switch sends a probe, to the switch or the host that the file has behind it (`probes`). A probe counts as lost
only where its switch has said that it was sent, and the one that it was for answers as well, so that a busy machine delays
what is found, and does not make it wrong. Loss of light is reported by the switch at once. Nothing that is forwarded depends
on any of this.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.network.fabric import Fabric, Link
from beamer.network.observed_fabric import Observation, PortKey, PortState
from controller.event_loop.time_slices import TimeSlices, batched
from controller.openflow import wire
from controller.openflow.channel import Channel, ChannelError, RefusedError
from controller.openflow.frames import PacketIn
from controller.openflow.probes import cable_probes, host_answer, host_probe

ROUND_S = 1.0  # Probes are sent so often, if not more of them than these would be due:
PROBES_PER_S = 500
ON_THE_WAY_S = 0.15  # A probe has so long after its switch has sent it.
LOST = 3  # After so many lost probes in a row a port leads nowhere.
REPEATED = 2  # For each round without an answer a host is asked so many times more: full queues drop many packets, not all.
ASKED_AT_ONCE = 16  # At a port where the expected host is not, so many others are asked for in a round.
QUEUE = 1  # of class 0, where a switch honours it
BATCH = 32  # probes sent in one turn of the event loop


@dataclass
class _Port:
    """What is known of a switch's port that the file names. lost: probes in a row that arrived nowhere."""

    link: Link
    state: PortState | None = None
    leads_to: PortKey | None = None
    answers: dict[str, str] = field(default_factory=dict)
    lost: int = 0
    heard: bool = False

    @property
    def key(self) -> PortKey:
        return self.link.src, self.link.port

    @property
    def is_up(self) -> bool:
        return self.state is not None and self.state.up


class Survey:
    """Keep an `Observation` of a fabric; every method runs on one asyncio loop.

    turns: in which probes are sent. on_change: called on the loop where something else is known than before. settled: waits
    until what follows from that is ready, so that a switch that connects is not given rules over a cable without light first.
    """

    def __init__(
        self, fabric: Fabric, turns: TimeSlices, on_change: Callable[[], None], settled: Callable[[], Awaitable[None]]
    ) -> None:
        self._settled = settled
        self._fabric = fabric
        self._turns = turns
        self._on_change = on_change
        of_switches = [link for link in fabric.links if link.src in fabric.switch]
        self._ports = {(link.src, link.port): _Port(link) for link in of_switches}
        self._probes = cable_probes(fabric, secrets.token_hex(16))
        self._sender = {frame: key for key, frames in self._probes.items() for frame in frames}
        self._probe_bytes = {len(frame) for frame in self._sender}
        self._addresses = frozenset(host.ip for host in fabric.hosts)
        self._channels: dict[str, Channel] = {}
        self._all_ports: dict[str, dict[int, PortState]] = {}
        self._hosts_asked = 0  # counts on, so that each host has its turn
        self._soon = asyncio.Event()

    @property
    def switches(self) -> int:
        """How many switches show their ports."""
        return len(self._channels)

    def observation(self) -> Observation:
        """Return what is known now."""
        of_connected = [port for port in self._ports.values() if port.link.src in self._channels]
        lost = frozenset(port.key for port in of_connected if port.lost >= LOST)
        to_hosts = frozenset(key for key in lost if self._ports[key].link.dst in self._fabric.host)
        return Observation(
            ports={name: dict(ports) for name, ports in self._all_ports.items()},
            leads_to={port.key: port.leads_to for port in of_connected if port.leads_to is not None},
            silent=lost - to_hosts,
            answers={port.key: dict(port.answers) for port in of_connected if port.answers},
            mute=to_hosts,
        )

    async def joined(self, switch: str, channel: Channel) -> None:
        """Watch a switch that this controller has begun to lead. Raises `ChannelError` where it is gone."""
        try:
            described = await channel.request(parser.OFPPortDescStatsRequest(channel.datapath, 0))
        except RefusedError:
            return  # A switch that does not describe its ports is not watched.
        self._all_ports[switch] = {port.port_no: wire.port_state(port) for port in described if port.port_no <= ofp.OFPP_MAX}
        self._channels[switch] = channel
        for port in self._of_switch(switch):
            self._set_state(port, self._all_ports[switch].get(port.link.port))
        self._on_change()
        self._soon.set()
        await self._settled()

    def left(self, switch: str) -> None:
        """Say no more of a switch that is gone."""
        if self._channels.pop(switch, None) is None:
            return
        del self._all_ports[switch]
        for port in self._of_switch(switch):
            port.state, port.leads_to, port.lost = None, None, 0
            port.answers.clear()
        self._on_change()

    def take(self, switch: str, message: Any) -> None:
        """Take in a switch's message about a port, or a packet that it hands over."""
        if switch not in self._channels:
            return
        if isinstance(message, PacketIn):
            self._receive((switch, message.port), message.frame)
        elif isinstance(message, parser.OFPPortStatus) and message.desc.port_no <= ofp.OFPP_MAX:
            number, ports = message.desc.port_no, self._all_ports[switch]
            if message.reason == ofp.OFPPR_DELETE:
                ports.pop(number, None)
            else:
                ports[number] = wire.port_state(message.desc)
            if port := self._ports.get((switch, number)):
                self._set_state(port, ports.get(number))
                self._on_change()
                self._soon.set()

    async def run(self) -> None:
        """Send probes until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._soon.clear()
            sent = await self._round()
            rest = max(ROUND_S, sent / PROBES_PER_S) - (loop.time() - began)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(rest, 0.0)):
                    await self._soon.wait()

    async def _round(self) -> int:
        """Send a probe from each port, see which arrive, and return how many were sent."""
        probed = [port for port in self._ports.values() if port.is_up and port.link.src in self._channels]
        for port in probed:
            port.heard = False
        channels, sent = dict(self._channels), 0
        place = self._turns.begin()
        for some in batched(list(self._frames(probed)), BATCH):
            await self._turns.granted(place)
            for port, frame in some:
                if (channel := self._channels.get(port.link.src)) is not None:
                    _send(channel, port.link.port, frame)
                    sent += 1
        answered = await _answering(channels)
        await asyncio.sleep(ON_THE_WAY_S)
        answered &= await _answering(channels)
        changed = False
        for port in probed:
            there = port.link.dst in self._fabric.host or port.link.dst in answered
            if port.link.src in answered and there and port.is_up:
                before = port.lost >= LOST
                port.lost = 0 if port.heard else port.lost + 1
                if port.lost >= LOST and (port.leads_to or port.answers):
                    port.leads_to = None
                    port.answers.clear()
                    changed = True
                changed |= before != (port.lost >= LOST)
        if changed:
            self._on_change()
        return sent

    def _frames(self, probed: Iterable[_Port]) -> Iterator[tuple[_Port, bytes]]:
        """Yield what is sent from each port."""
        missing = [p.link.dst for p in self._ports.values() if p.link.dst in self._fabric.host and not self._is_right(p)]
        for port in probed:
            told, in_class_0 = self._probes[port.key]
            yield port, told
            if (host := self._fabric.host.get(port.link.dst)) is None:
                if port.lost == LOST - 1:
                    yield port, in_class_0
                continue
            for _ in range(1 + REPEATED * min(port.lost, LOST)):
                yield port, host_probe(host.ip)
            if port.lost and not self._is_right(port):
                for number in range(min(ASKED_AT_ONCE, len(missing))):
                    name = missing[(self._hosts_asked + number) % len(missing)]
                    if name != host.name:
                        yield port, host_probe(self._fabric.host[name].ip)
        self._hosts_asked += ASKED_AT_ONCE

    def _is_right(self, port: _Port) -> bool:
        host = self._fabric.host[port.link.dst]
        return port.answers.get(host.ip) == host.mac

    def _receive(self, at: PortKey, frame: bytes) -> None:
        for size in self._probe_bytes:
            if (sender := self._sender.get(frame[:size])) is not None:
                self._arrived(self._ports[sender], at)
                return
        if (answer := host_answer(frame)) is not None and (port := self._ports.get(at)) is not None:
            self._answered(port, *answer)

    def _arrived(self, sender: _Port, at: PortKey) -> None:
        before = sender.leads_to, sender.lost >= LOST
        sender.leads_to, sender.lost, sender.heard = at, 0, True
        if before != (at, False):
            self._on_change()

    def _answered(self, port: _Port, ip: str, mac: str) -> None:
        host = self._fabric.host.get(port.link.dst)
        if ip not in self._addresses:
            return
        changed = port.answers.get(ip) != mac
        port.answers[ip] = mac
        if host is not None and ip == host.ip:
            changed |= port.lost >= LOST
            port.lost, port.heard = 0, True
            port.answers = {ip: mac}
        if changed:
            self._on_change()

    def _set_state(self, port: _Port, state: PortState | None) -> None:
        """Take in a port's state. What it leads to is to be seen anew once it has a link again."""
        was_up, port.state = port.is_up, state
        if was_up and not port.is_up:
            port.leads_to, port.lost = None, LOST
            port.answers.clear()

    def _of_switch(self, switch: str) -> Iterator[_Port]:
        return (port for port in self._ports.values() if port.link.src == switch)


def _send(channel: Channel, port: int, frame: bytes) -> None:
    actions = [parser.OFPActionSetQueue(QUEUE), parser.OFPActionOutput(port)]
    with suppress(ChannelError):  # It reads too slowly, or is gone: its session sees to that.
        channel.send(parser.OFPPacketOut(channel.datapath, ofp.OFP_NO_BUFFER, ofp.OFPP_CONTROLLER, actions, frame))


async def _answering(channels: Mapping[str, Channel]) -> set[str]:
    """Return the switches that have processed all that was sent to them so far."""

    async def answers(name: str, channel: Channel) -> str | None:
        try:
            await channel.request(wire.barrier(channel.datapath))
        except (ChannelError, RefusedError):
            return None
        return name

    found = await asyncio.gather(*(answers(name, channel) for name, channel in channels.items()))
    return {name for name in found if name is not None}
