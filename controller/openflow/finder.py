"""The switches that connect to an address, where their cables lead, and which IP addresses answer at their ports.

A switch is given two rules, by which it hands over LLDP and the answers of hosts, and loses them at the end. By the rules
that it has it forwards on; one that has none forwards nothing as long as a controller is connected. Every port with a link
sends LLDP once a round, and some ARP probes, until each address was asked for at each port. What peers may have kept of them
is bounded.
"""

import asyncio
import secrets
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import structlog
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.errors import first_of
from beamer.log_limit import VariedLogLimit
from beamer.network.addresses import is_ipv6
from beamer.network.discovery import End, SeenSwitch
from beamer.network.observed_fabric import PortState
from controller.address import serve_switches
from controller.event_loop.time_slices import TimeSlices, batched
from controller.identity.certificates import require_mutual
from controller.openflow import wire
from controller.openflow.channel import Channel, ChannelError, ExcessError, IdentityError, RefusedError
from controller.openflow.frames import PacketIn
from controller.openflow.identity import check_certified, secure
from controller.openflow.probes import host_answer, host_probe, port_probe
from controller.openflow.rules import probe_rules

PROBES = 2000  # of hosts, and of cables, in a round
MAX_PORTS = 4096  # of a switch
TAKEN = 256  # Of a port so many packets are taken in for each round: a right one hands over a few.
BATCH = 32  # probes sent in one turn of the event loop
MAX_SWITCHES = 4096  # An address that anybody reaches may be connected to by others than switches.
LOG_AGAIN_S, MAX_LOGGED = 60.0, 64
REMOVED_S = 2.0  # At the end a switch has so long to lose its rules.

log = structlog.get_logger("beamer-discovery")


@dataclass
class _Switch:
    """A switch that is connected. asks_ipv6: whether it hands the answers of hosts that are asked over IPv6 over, too."""

    channel: Channel
    bridge: str = ""
    asks_ipv6: bool = False
    ports: dict[int, PortState] = field(default_factory=dict)


class SwitchFinder:
    """The switches that connect to `host`:`port`; every method runs on one asyncio loop.

    tls: how they connect, in plain text if there is none. Raises `InputError` if `tls` lets anybody in.

    sweeps: how often each address was asked for at each port. answers: as of `SeenNetwork`, and so are leads_to.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        if tls is not None:
            require_mutual(tls)
        self.sweeps = 0
        self.leads_to: dict[End, End] = {}
        self.answers: dict[End, dict[str, str]] = {}
        self._listen_on = host, port
        self._tls = tls
        self._turns = TimeSlices()
        self._switches: dict[int, _Switch] = {}
        self._frames: dict[End, bytes] = {}
        self._sender: dict[bytes, End] = {}
        self._next = 0  # Where the next round of LLDP begins, if one does not reach all ports.
        self._taken: Counter[End] = Counter()  # packets that each port has handed over since the last round
        self._asked: Iterator[tuple[End, str]] = iter(())
        self._asking: tuple[frozenset[End], frozenset[str]] = frozenset(), frozenset()
        self._connections: set[asyncio.Task[None]] = set()
        self._endings = VariedLogLimit(MAX_LOGGED, LOG_AGAIN_S)
        self._server: asyncio.Server | None = None

    @property
    def switches(self) -> dict[int, SeenSwitch]:
        """The switches that are connected and have described their ports, by datapath id."""
        return {dpid: SeenSwitch(one.bridge, dict(one.ports)) for dpid, one in self._switches.items() if one.bridge}

    @property
    def address(self) -> tuple[str, int]:
        """Where switches connect, once started."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Listen. Raises `PlatformError` if the address is not available."""
        self._server = await serve_switches(*self._listen_on, self._connected)

    async def stop(self) -> None:
        """Take the rules off the switches, stop listening and drop every connection."""
        await asyncio.gather(*map(_forget, self._switches.values()))
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(set(self._connections))

    async def probe(self, addresses: Iterable[str]) -> None:
        """Send a round of probes. addresses: that hosts may have."""
        self._taken.clear()
        wanted = frozenset(addresses)
        if any(map(is_ipv6, wanted)):
            self._have_ipv6_answers()
        up = [(dpid, number) for dpid, one in self._switches.items() for number, state in one.ports.items() if state.up]
        begin = self._next if self._next < len(up) else 0
        self._next = begin + PROBES
        for some in batched(up[begin : begin + PROBES], BATCH):
            await self._turns.granted(self._turns.begin())
            for end in some:
                if frame := self._frames.get(end):
                    self._send(end, frame)
        asking = frozenset(up) - self.leads_to.keys() - set(self.leads_to.values()), wanted
        if asking != self._asking:
            self._asking, self._asked, self.sweeps = asking, iter(()), 0
        found = list(islice(self._asked, PROBES))
        if not found and asking[0] and asking[1]:
            self._asked = ((end, ip) for ip in sorted(asking[1]) for end in sorted(asking[0]))
            found = list(islice(self._asked, PROBES))
        for some_hosts in batched(iter(found), BATCH):
            await self._turns.granted(self._turns.begin())
            for end, ip in some_hosts:
                self._send(end, host_probe(ip))
        if len(found) < PROBES:
            self.sweeps += 1
            self._asked = iter(())

    def _have_ipv6_answers(self) -> None:
        """Have switches hand over what hosts answer over IPv6. Only then: a switch may know nothing of IPv6."""
        for one in self._switches.values():
            if one.bridge and not one.asks_ipv6:
                one.asks_ipv6 = True
                with suppress(ChannelError):  # It is gone: its connection sees to that.
                    one.channel.send(*(wire.addition(one.channel.datapath, rule) for rule in probe_rules(ipv6=True)))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a connection's callback always runs in one
        address = str((writer.get_extra_info("peername") or ("unknown",))[0])
        self._connections.add(task)
        channel, dpid = Channel(reader, writer, lambda message: None, self._turns), 0
        try:
            if len(self._connections) > MAX_SWITCHES:
                raise ExcessError(f"more than {MAX_SWITCHES} connections")
            await secure(writer, self._tls)
            dpid = await channel.handshake()
            check_certified(dpid, writer, self._tls)
            if dpid in self._switches:
                raise IdentityError(f"{dpid:016x}: a switch of this datapath id is connected")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(channel.serve())
                tasks.create_task(self._join(dpid, channel))
        except* (ChannelError, RefusedError) as group:
            reason = first_of(group)
            if self._endings.take(type(reason).__name__, (address, dpid)):
                log.warning("switch connection ended", peer=address, dpid=f"{dpid:016x}", reason=str(reason))
        except* asyncio.CancelledError:
            pass  # `stop` ends it; asyncio's server would report that as a fault.
        finally:
            self._connections.discard(task)
            if (known := self._switches.get(dpid)) and known.channel is channel:
                self._lose(dpid)
            channel.close()

    async def _join(self, dpid: int, channel: Channel) -> None:
        """Have a switch describe its ports, and hand probes over."""
        one = self._switches[dpid] = _Switch(channel)
        channel.on_message = partial(self._take, dpid)
        channel.most_entries = 2 * MAX_PORTS
        described = await channel.request(parser.OFPPortDescStatsRequest(channel.datapath, 0))
        for port in described:
            self._describe(dpid, port)
        channel.send(*(wire.addition(channel.datapath, rule) for rule in probe_rules()))
        await channel.request(wire.barrier(channel.datapath))
        # The port that stands for the switch itself has its bridge's name.
        own = [port.name.decode("utf-8", "replace") for port in described if port.port_no == ofp.OFPP_LOCAL]
        one.bridge = own[0] if own else f"switch-{dpid:x}"
        log.info("switch connected", dpid=f"{dpid:016x}", name=one.bridge, ports=len(one.ports))

    def _describe(self, dpid: int, port: Any) -> None:
        if port.port_no <= ofp.OFPP_MAX:
            end, ports = (dpid, int(port.port_no)), self._switches[dpid].ports
            if end[1] not in ports and len(ports) >= MAX_PORTS:
                self._warn("switch has more ports than are taken in", dpid, most=MAX_PORTS)
                return
            ports[end[1]] = wire.port_state(port)
            if end not in self._frames:
                self._frames[end] = port_probe(*end, secrets.token_hex(16))
                self._sender[self._frames[end]] = end

    def _take(self, dpid: int, message: Any) -> None:
        """Take in what a switch says of its own accord."""
        if isinstance(message, PacketIn):
            self._receive((dpid, message.port), message.frame)
        elif isinstance(message, parser.OFPPortStatus):
            if message.reason == ofp.OFPPR_DELETE:
                self._switches[dpid].ports.pop(int(message.desc.port_no), None)
                self._forget_frames(lambda end: end == (dpid, message.desc.port_no))
            else:
                self._describe(dpid, message.desc)
            self._forget_ends(lambda end: end == (dpid, message.desc.port_no))
        elif isinstance(message, parser.OFPErrorMsg):
            self._warn(
                "switch refuses a request, so that its cables, or hosts with IPv6 alone, may not be seen",
                dpid,
                type=message.type,
                code=message.code,
            )

    def _receive(self, at: End, frame: bytes) -> None:
        if at[1] not in self._switches[at[0]].ports:
            return
        self._taken[at] += 1
        if self._taken[at] > TAKEN:
            self._warn("a port hands over packets that are no answers to probes", at[0], port=at[1])
            return
        sender = self._sender.get(frame)
        if sender is not None:
            self.leads_to[sender] = at
        elif (answer := host_answer(frame)) is not None and answer[0] in self._asking[1]:
            ip, mac = answer
            known = self.answers.setdefault(at, {}).setdefault(ip, mac)
            if known != mac:  # The first one stays, so that the search comes to an end.
                self._warn("an address answers at a port with a second Ethernet address", at[0], port=at[1], ip=ip)

    def _send(self, end: End, frame: bytes) -> None:
        if (one := self._switches.get(end[0])) is None:
            return
        actions = [parser.OFPActionOutput(end[1])]
        with suppress(ChannelError):  # It reads too slowly, or is gone: its connection sees to that.
            datapath = one.channel.datapath
            one.channel.send(parser.OFPPacketOut(datapath, ofp.OFP_NO_BUFFER, ofp.OFPP_CONTROLLER, actions, frame))

    def _lose(self, dpid: int) -> None:
        """Forget a switch that is gone."""
        del self._switches[dpid]
        self._forget_ends(lambda end: end[0] == dpid)
        self._forget_frames(lambda end: end[0] == dpid)

    def _forget_ends(self, which: Callable[[End], bool]) -> None:
        self.leads_to = {a: b for a, b in self.leads_to.items() if not which(a) and not which(b)}
        self.answers = {end: found for end, found in self.answers.items() if not which(end)}

    def _forget_frames(self, which: Callable[[End], bool]) -> None:
        for end in [end for end in self._frames if which(end)]:
            del self._sender[self._frames.pop(end)]

    def _warn(self, what: str, dpid: int, **named: int | str) -> None:
        """Log what is wrong with a switch, once in a while."""
        if self._endings.take(what, dpid):
            log.warning(what, dpid=f"{dpid:016x}", **named)


async def _forget(one: _Switch) -> None:
    """Take the rules off a switch."""
    with suppress(ChannelError, RefusedError, TimeoutError):
        async with asyncio.timeout(REMOVED_S):
            datapath = one.channel.datapath
            one.channel.send(*(wire.removal(datapath, rule) for rule in probe_rules(ipv6=one.asks_ipv6)))
            await one.channel.request(wire.barrier(datapath))
