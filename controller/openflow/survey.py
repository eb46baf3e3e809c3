"""Watches how a network is cabled, through its connected switches: port states as they change, and probes once in a while.

Each port of a switch sends a probe, to the switch or the host that the file has behind it (`probes`). A probe counts as lost
only where its switch has said that it was sent, and the one that it was for answers as well and has its rules, and as half a
one where they take their time, as packets wait there, too. So a busy machine delays what is found, and does not make it
wrong. Loss of light is reported by the switch at once. A cable that was found dead stays so until a probe has passed it,
whatever becomes of the switches at its ends. Nothing that is forwarded depends on any of this.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import structlog
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.log_limit import LogLimit
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.fabric import Fabric, Link
from beamer.network.observed_fabric import Observation, PortKey, PortState
from beamer.network.plan import QUEUES
from controller.event_loop.time_slices import TimeSlices, batched
from controller.openflow import wire
from controller.openflow.channel import Channel, ChannelError, RefusedError
from controller.openflow.frames import PacketIn
from controller.openflow.probes import cable_probes, host_answer, host_probe
from controller.openflow.queue_use import UNANSWERED, QueueUse

ROUND_S = 1.0  # Probes are sent so often, if not more of them than these would be due:
PROBES_PER_S = 500
ON_THE_WAY_S = 0.15  # A probe has so long after its switch has sent it.
BARRIER_S = 1.0  # A switch that does not answer for so long is left out of a round.
PROMPT_S = 0.25  # One that takes longer is busy, and what it loses counts less.
BUSY_LOSS = 0.5
LOST = 3  # After so many lost probes in a row a port leads nowhere.
REPEATED = 2  # For each round without an answer a host is asked so many times more: full queues drop many packets, not all.
ASKED_AT_ONCE = 16  # At a port where the expected host is not, so many others are asked for in a round.
TAKEN = 256  # Of a port so many packets are taken in for each round: a right one hands over a few.
QUEUE = 1  # of class 0, where a switch honours it
QUEUES_S = 3.0  # Queues are read so often: what somebody does to them is known within five seconds.
BATCH = 32  # probes sent in one turn of the event loop

log = structlog.get_logger("beamer-controller")
_host_probe = lru_cache(maxsize=1 << 14)(host_probe)


@dataclass
class _Port:
    """What is known of a switch's port that the file names.

    answers: Ethernet addresses by IP, each with the round in which it was heard last. lost: probes in a row that arrived
    nowhere. use: of its queues.
    """

    link: Link
    state: PortState | None = None
    leads_to: PortKey | None = None
    answers: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: float = 0
    heard: bool = False
    use: QueueUse = field(default_factory=QueueUse)

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
    queues: the number of classes.
    """

    def __init__(
        self,
        fabric: Fabric,
        turns: TimeSlices,
        on_change: Callable[[], None],
        settled: Callable[[], Awaitable[None]],
        codepoints: Codepoints = LOCAL,
        queues: int = QUEUES,
    ) -> None:
        self._fabric = fabric
        self._numbers = {*range(queues + 1)}  # of the queues of a port that the controller has made
        self._turns = turns
        self._on_change = on_change
        self._settled = settled
        self._of_switch: dict[str, list[_Port]] = {name: [] for name in fabric.switch}
        for link in fabric.links:
            if link.src in fabric.switch:
                self._of_switch[link.src].append(_Port(link))
        self._ports = {port.key: port for ports in self._of_switch.values() for port in ports}
        self._probes = cable_probes(fabric, partial(secrets.token_hex, 16), codepoints)
        self._sender = {frame: key for key, frames in self._probes.items() for frame in frames}
        self._probe_bytes = {len(frame) for frame in self._sender}
        self._addresses = frozenset(host.ip for host in fabric.hosts)
        self._channels: dict[str, Channel] = {}
        self._with_rules: set[str] = set()  # The switches that have had all their rules: before, they lose probes.
        self._unset: set[str] = set()  # The switches that set no queue.
        self._all_ports: dict[str, dict[int, PortState]] = {}
        self._rounds = 0
        self._taken: Counter[PortKey] = Counter()  # packets that each port has handed over since the last round
        self._unqueued: dict[str, frozenset[PortKey]] = {}  # by switch, as of `Observation`
        self._unanswered: Counter[str] = Counter()  # questions for queues in a row, by switch
        self._foreign: dict[str, tuple[str, ...]] = {}  # by switch, as of `Observation`
        self._limit = LogLimit(1, 3600.0)

    @property
    def switches(self) -> int:
        """How many switches show their ports."""
        return len(self._channels)

    def observation(self) -> Observation:
        """Return what is known now."""
        of_connected = [port for name in self._channels for port in self._of_switch[name]]
        lost = [port for port in self._ports.values() if port.lost >= LOST]
        return Observation(
            ports={name: dict(ports) for name, ports in self._all_ports.items()},
            leads_to={port.key: port.leads_to for port in of_connected if port.leads_to is not None},
            silent=frozenset(port.key for port in lost if port.link.dst in self._fabric.switch),
            answers={port.key: {ip: mac for ip, (mac, _) in port.answers.items()} for port in of_connected if port.answers},
            mute=frozenset(port.key for port in lost if port.link.dst in self._fabric.host),
            unqueued=frozenset(key for name in self._channels for key in self._unqueued.get(name, ())),
            foreign={name: rules for name, rules in self._foreign.items() if rules and name in self._channels},
            disobeyed=self._disobeyed(),
        )

    @property
    def unused(self) -> frozenset[str]:
        """The switches of whose queues, which the controller makes, it is not known whether they are used.

        That is so of those that do not show their ports.
        """
        unknown = frozenset(port.link.src for port in self._queued() if port.use.obeyed is None)
        return unknown | (self._fabric.with_databases - self._channels.keys())

    def _disobeyed(self) -> frozenset[PortKey]:
        """Return the ports as of `Observation`, of a switch once it is known of all its ports."""
        unused = self.unused
        return frozenset(port.key for port in self._queued() if port.use.obeyed is False and port.link.src not in unused)

    def _queued(self) -> Iterator[_Port]:
        """Yield the ports with a link, and with queues, of connected switches whose queues the controller makes."""
        for name in self._fabric.with_databases & self._channels.keys():
            without = self._unqueued.get(name, frozenset())
            yield from (port for port in self._of_switch[name] if port.is_up and port.key not in without)

    async def joined(self, switch: str, channel: Channel) -> None:
        """Watch a switch that this controller has begun to lead. Raises `ChannelError` where it is gone."""
        try:
            described = await channel.request(parser.OFPPortDescStatsRequest(channel.datapath, 0))
        except RefusedError as error:
            if self._limit.take(switch):
                log.warning("switch does not describe its ports, so they are not checked", switch=switch, reason=str(error))
            return
        self._all_ports[switch] = {port.port_no: wire.port_state(port) for port in described if port.port_no <= ofp.OFPP_MAX}
        self._channels[switch] = channel
        for port in self._of_switch[switch]:
            self._set_state(port, self._all_ports[switch].get(port.link.port))
        self._on_change()
        await self._settled()

    def has_rules(self, switch: str, *, probes: bool = True, queues: bool = True) -> None:
        """Take in that a switch has its rules.

        probes: whether by these it hands probes over: else their loss says nothing. queues: whether it sets queues: else it may
        refuse to send what asks for one.
        """
        (self._unset.discard if queues else self._unset.add)(switch)
        if not probes:
            if switch in self._with_rules:
                self._with_rules.discard(switch)
                self._believe_cables(switch)
        elif switch in self._channels and switch not in self._with_rules:
            self._with_rules.add(switch)
            self._probe(self._of_switch[switch])

    def _believe_cables(self, switch: str) -> None:
        """Forget which cables of a switch lose probes: it hands none over any more, and so none of them would come back."""
        for port in self._ports.values():
            if switch in (port.link.src, port.link.dst):
                port.lost = 0
        self._on_change()

    def found_foreign(self, switch: str, rules: tuple[str, ...]) -> None:
        """Take in which rules of other programs come before Beamer's."""
        if switch in self._channels and rules != self._foreign.get(switch, ()):
            self._foreign[switch] = rules
            self._on_change()

    def left(self, switch: str) -> None:
        """Say no more of the ports of a switch that is gone."""
        if self._channels.pop(switch, None) is None:
            return
        self._with_rules.discard(switch)
        self._unqueued.pop(switch, None)
        del self._unanswered[switch]
        self._foreign.pop(switch, None)
        del self._all_ports[switch]
        for port in self._of_switch[switch]:
            is_dead = port.lost >= LOST or port.leads_to not in (None, self._end_of(port))
            port.state, port.leads_to, port.lost, port.use = None, None, LOST if is_dead else 0, QueueUse()
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
                was_up = port.is_up
                self._set_state(port, ports.get(number))
                if port.is_up and not was_up:
                    self._probe([port])
                self._on_change()

    async def run(self) -> None:
        """Send probes, and read queues, until cancelled."""
        await asyncio.gather(self._send_probes(), self._watch_queues())

    async def _watch_queues(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(QUEUES_S)
            try:
                await self._read_all_queues()
            except Exception as error:  # noqa: BLE001  A fault must not end the watch.
                loop.call_exception_handler({"message": "a fault while queues were looked at", "exception": error})

    async def _read_all_queues(self) -> None:
        known = dict(self._unqueued), [port.use.obeyed for port in self._ports.values()]
        await asyncio.gather(*map(self._read_queues, tuple(self._channels)))
        if known != (self._unqueued, [port.use.obeyed for port in self._ports.values()]):
            self._on_change()

    async def _send_probes(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began, sent = loop.time(), 0
            try:
                sent = await self._round()
            except Exception as error:  # noqa: BLE001  A fault must not end the watch.
                loop.call_exception_handler({"message": "a fault while the network was looked at", "exception": error})
            await asyncio.sleep(max(ROUND_S, sent / PROBES_PER_S) - (loop.time() - began))

    async def _round(self) -> int:
        """Send a probe from each port, see which arrive, and return how many were sent."""
        self._rounds += 1
        probed = [port for name in self._channels for port in self._of_switch[name] if port.is_up]
        for port in self._ports.values():
            port.heard = False
        self._taken.clear()
        channels, with_rules, sent = dict(self._channels), frozenset(self._with_rules), 0
        place = self._turns.begin()
        for some in batched(self._frames(probed), BATCH):
            await self._turns.granted(place)
            sent += sum(self._send(port, frame) for port, frame in some)
        first = await _answering(channels)
        await asyncio.sleep(ON_THE_WAY_S)
        second = await _answering(channels)
        counted = first.keys() & second.keys() & with_rules
        busy = {name for name in counted if max(first[name], second[name]) > PROMPT_S}
        before = [port for port in self._ports.values() if port.lost >= LOST]
        changed = False
        for port in probed:
            there = port.link.dst in self._fabric.host or port.link.dst in counted
            if port.link.src in counted and there and port.is_up:
                loss = BUSY_LOSS if busy & {port.link.src, port.link.dst} else 1
                port.lost = 0 if port.heard else min(port.lost + loss, LOST)
                if port.lost == LOST and port.leads_to is not None:
                    port.leads_to, changed = None, True
            changed |= self._forget_answers(port)
        if changed or before != [port for port in self._ports.values() if port.lost >= LOST]:
            self._on_change()
        return sent

    async def _read_queues(self, switch: str) -> None:
        """Read which queues a switch has, where no agent makes them.

        Of one that does not answer nothing is said, and what was known of their use is forgotten after `UNANSWERED` questions.
        """
        channel = self._channels.get(switch)
        if channel is None or self._fabric.switch[switch].agent is not None:
            return
        asked = [(port, port.use, port.use.told) for port in self._of_switch[switch]]
        try:
            async with asyncio.timeout(BARRIER_S):
                read = await channel.request(wire.queues_request(channel.datapath))
        except (ChannelError, RefusedError, TimeoutError) as error:
            if self._limit.take((switch, "queues")):
                reason = str(error) or f"no answer within {BARRIER_S:g} s"
                log.warning("switch does not show its queues, so they are not checked", switch=switch, reason=reason)
            if self._channels.get(switch) is channel:
                self._unanswered[switch] += 1
                if self._unanswered[switch] == UNANSWERED:
                    self._unqueued.pop(switch, None)
                    for port in self._of_switch[switch]:
                        port.use = QueueUse()
            return
        if self._channels.get(switch) is channel:
            del self._unanswered[switch]
            found = {(int(one.port_no), int(one.queue_id)): int(one.tx_packets) for one in read}
            needed = self._numbers if switch in self._fabric.with_databases else {QUEUE}
            numbers = {port.key: {(port.link.port, queue) for queue in needed} for port in self._of_switch[switch]}
            self._unqueued[switch] = frozenset(key for key, queues in numbers.items() if not queues <= found.keys())
            for port, use, told in asked if switch in self._fabric.with_databases else ():
                use.read(found.get((port.link.port, QUEUE)), told)

    def _frames(self, probed: Iterable[_Port]) -> Iterator[tuple[_Port, bytes]]:
        """Yield what is sent from each port."""
        hosts = self._fabric.host
        missing = [port.link.dst for port in self._ports.values() if port.link.dst in hosts and not self._is_right(port)]
        first = self._rounds * ASKED_AT_ONCE
        asked = [missing[(first + number) % len(missing)] for number in range(min(ASKED_AT_ONCE, len(missing)))]
        for port in probed:
            lldp, in_class_0 = self._probes[port.key]
            yield port, lldp
            if (host := hosts.get(port.link.dst)) is None:
                if port.lost >= LOST - 1:
                    yield port, in_class_0
                continue
            for _ in range(1 + int(REPEATED * port.lost)):
                yield port, _host_probe(host.ip)
            if port.lost and not self._is_right(port):
                yield from ((port, _host_probe(hosts[name].ip)) for name in asked if name != host.name)

    def _probe(self, ports: Iterable[_Port]) -> None:
        """Send a probe from some ports now, whose loss does not count."""
        for port in ports:
            if port.is_up:
                host = self._fabric.host.get(port.link.dst)
                self._send(port, self._probes[port.key][0] if host is None else _host_probe(host.ip))

    def _send(self, port: _Port, frame: bytes) -> bool:
        if (channel := self._channels.get(port.link.src)) is None:
            return False
        _send(channel, port.link.port, frame, sets_queue=port.link.src not in self._unset)
        port.use.told += 1  # Where a switch cannot be told, too: its queues are not used.
        return True

    def _end_of(self, port: _Port) -> PortKey:
        """Return the other end of a port's cable, by the file."""
        back = self._fabric.links[self._fabric.link_index[port.link.dst, port.link.src]]
        return back.src, back.port

    def _is_right(self, port: _Port) -> bool:
        host = self._fabric.host[port.link.dst]
        return port.answers.get(host.ip, ("", 0))[0] == host.mac

    def _forget_answers(self, port: _Port) -> bool:
        """Forget who has not answered at a port for long: hosts that are asked for in turns have more time."""
        turns = 1 + len(self._addresses) // ASKED_AT_ONCE
        host = self._fabric.host.get(port.link.dst)
        old = [
            ip
            for ip, (_, heard) in port.answers.items()
            if self._rounds - heard >= (LOST if host is not None and ip == host.ip else LOST * turns) and port.lost >= LOST
        ]
        for ip in old:
            del port.answers[ip]
        return bool(old)

    def _receive(self, at: PortKey, frame: bytes) -> None:
        port = self._ports.get(at)
        self._taken[at] += 1
        if self._taken[at] > TAKEN:
            if self._limit.take(at):
                log.warning("a port hands over packets that are no answers to probes", switch=at[0], port=at[1])
            return
        for size in self._probe_bytes:
            if (sender := self._sender.get(frame[:size])) is not None:
                self._arrived(self._ports[sender], at)
                return
        if port is not None and (answer := host_answer(frame)) is not None:
            self._answered(port, *answer)

    def _arrived(self, sender: _Port, at: PortKey) -> None:
        before = sender.leads_to, sender.lost >= LOST
        sender.leads_to, sender.lost, sender.heard = at, 0, True
        if before != (at, False):
            self._on_change()

    def _answered(self, port: _Port, ip: str, mac: str) -> None:
        if ip not in self._addresses:
            return
        host = self._fabric.host.get(port.link.dst)
        before = {known: address for known, (address, _) in port.answers.items()}, port.lost >= LOST
        if host is not None and ip == host.ip:
            port.lost, port.heard = 0, True
            port.answers.clear()
        port.answers[ip] = mac, self._rounds
        if before != ({known: address for known, (address, _) in port.answers.items()}, port.lost >= LOST):
            self._on_change()

    def _set_state(self, port: _Port, state: PortState | None) -> None:
        """Take in a port's state. What it leads to is to be seen anew once it has a link again."""
        port.state = state
        if not port.is_up:
            port.leads_to, port.lost, port.use = None, LOST, QueueUse()
            port.answers.clear()


def _send(channel: Channel, port: int, frame: bytes, *, sets_queue: bool) -> None:
    actions = [*([parser.OFPActionSetQueue(QUEUE)] if sets_queue else []), parser.OFPActionOutput(port)]
    with suppress(ChannelError):  # It reads too slowly, or is gone: its session sees to that.
        channel.send(parser.OFPPacketOut(channel.datapath, ofp.OFP_NO_BUFFER, ofp.OFPP_CONTROLLER, actions, frame))


async def _answering(channels: Mapping[str, Channel]) -> dict[str, float]:
    """Return the switches that have processed all that was sent to them so far, each with the seconds that it has taken."""
    loop = asyncio.get_running_loop()

    async def answers(channel: Channel) -> float | None:
        began_s = loop.time()
        try:
            async with asyncio.timeout(BARRIER_S):
                await channel.request(wire.barrier(channel.datapath))
        except (ChannelError, RefusedError, TimeoutError):
            return None
        return loop.time() - began_s

    found = await asyncio.gather(*map(answers, channels.values()))
    return {name: taken_s for name, taken_s in zip(channels, found, strict=True) if taken_s is not None}
