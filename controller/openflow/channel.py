"""One switch's OpenFlow 1.3 connection on the asyncio loop, with os-ken's messages.

os-ken's own server runs threads that cannot be stopped and notices a dead peer only while it sends; the loop that serves
everything else runs its protocol as well, so that switch state needs no lock and stopping is prompt. Nothing that a peer sends
may hold that loop, or fill the memory: frames are checked before os-ken sees them (`frames`), answers and what is unread have
bounds, and a peer that keeps sending gets half of the loop's time at most.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from controller.event_loop.time_slices import TimeSlices
from controller.openflow import wire
from controller.openflow.capabilities import TablesPart, tables_part
from controller.openflow.frame_elements import FrameError
from controller.openflow.frames import (
    HEADER,
    FrameHeader,
    PacketIn,
    RuleChanges,
    hello_versions,
    packet_in,
    part_kind,
    readable,
    rule_changes,
)

HANDSHAKE_S = 10.0
ECHO_S = 3.0  # An echo request is sent after so much silence.
SILENCE_S = 10.0  # A switch is taken for dead after so much silence, and if it takes in nothing that is sent for so long.
ANSWER_S = 10.0
# An unknown peer's frame has at most so many bytes: a hello, an error or a features reply has less than 200.
HANDSHAKE_BYTES = 2048
HANDSHAKE_FRAMES = 32  # An unknown peer sends at most so many frames: a switch sends two, and port changes of its own accord.
UNREAD_BYTES = 1 << 25  # 32 MiB not yet taken by the peer: the rules of 100 000 connections, sent in one piece
# Echo requests stay unanswered while more is unread: the peer sees by what is on its way that the controller lives.
ECHO_UNREAD_BYTES = 1 << 16
# A multipart answer has at most so many entries, if the caller knows no better: each takes some 10 kB of memory.
ANSWER_ENTRIES = 1 << 17
LONG_FRAME_BYTES = 4096  # Reading so much takes some 2 ms; a part of a switch's rules has 64 kB.
SLICE_S = 0.01  # After so much work for one peer the others get as much.


class ChannelError(Exception):
    """The switch is gone or silent; of these kinds, it is turned away."""


class VersionError(ChannelError):
    """The switch does not speak OpenFlow 1.3."""


class IdentityError(ChannelError):
    """The switch is none of the fabric's."""


class CertificateError(ChannelError):
    """The peer shows no certificate that counts, or one for another switch."""


class DuplicateError(ChannelError):
    """The switch is served on another connection."""


class UnansweredError(ChannelError):
    """The peer answers no echo request, while others say to be the same switch."""


class MalformedError(ChannelError):
    """The switch sent what contradicts the protocol."""


class ExcessError(ChannelError):
    """The switch sends more, or takes in less, than any that serves its purpose."""


class RefusedError(Exception):
    """The switch answered a request by an error message. kind: the error's type and code."""

    def __init__(self, reason: str, kind: tuple[int, int] | None = None) -> None:
        self.kind = kind
        super().__init__(reason)


ANSWERS: Mapping[type, type] = {
    parser.OFPBarrierRequest: parser.OFPBarrierReply,
    parser.OFPRoleRequest: parser.OFPRoleReply,
    parser.OFPFlowStatsRequest: wire.RulesPart,
    parser.OFPAggregateStatsRequest: parser.OFPAggregateStatsReply,
    parser.OFPMeterConfigStatsRequest: parser.OFPMeterConfigStatsReply,
    parser.OFPPortDescStatsRequest: parser.OFPPortDescStatsReply,
    parser.OFPQueueStatsRequest: parser.OFPQueueStatsReply,
    parser.ONFFlowMonitorStatsRequest: RuleChanges,
    parser.OFPTableFeaturesStatsRequest: TablesPart,
}
"""The requests that are made, each with what answers it."""
UNASKED = PacketIn, parser.OFPPortStatus, parser.OFPFlowRemoved


@dataclass
class PendingAnswer:
    """A request under way. size: entries and parts of its answer so far."""

    expected: type
    future: asyncio.Future[list[Any]]
    entries: list[Any] = field(default_factory=list)
    size: int = 0


class Channel:
    """Requests and answers to one switch; `serve` has to run for answers to come.

    on_message: called on the loop with every message that answers no request, errors included. turns: in which long frames are
    read, of all switches together. most_entries: of an answer. n_tables: how many the switch has, by its features reply.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_message: Callable[[Any], None],
        turns: TimeSlices,
    ) -> None:
        self._turns = turns
        self.datapath = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
        self.on_message = on_message
        self.most_entries = ANSWER_ENTRIES
        self.n_tables = 0
        self._reader = reader
        self._writer = writer
        self._xids = itertools.count(1)
        self._received_at = 0.0
        self._received = asyncio.Event()
        self._has_ended = False
        self._written_bytes = 0
        self._waiting: dict[int, PendingAnswer] = {}
        self._rules = wire.RuleReader()

    async def handshake(self) -> int:
        """Agree on OpenFlow 1.3 and return the switch's datapath id. Raises `ChannelError`."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                self.send(parser.OFPHello(self.datapath))
                self._check_version(await self._frame(HANDSHAKE_BYTES))
                self.send(parser.OFPFeaturesRequest(self.datapath))
                for _ in range(HANDSHAKE_FRAMES):
                    message = self._read(await self._frame(HANDSHAKE_BYTES))
                    if isinstance(message, parser.OFPSwitchFeatures):
                        self.n_tables = int(message.n_tables)
                        return int(message.datapath_id)
                    self._dispatch(message)
        except TimeoutError:
            raise ChannelError(f"no OpenFlow handshake within {HANDSHAKE_S:g} s") from None
        raise ExcessError(f"{HANDSHAKE_FRAMES} messages and no features reply")

    async def serve(self) -> None:
        """Take in messages until the switch is gone. Raises `ChannelError`, and so does every request under way."""
        self._writer.transport.set_write_buffer_limits(high=UNREAD_BYTES // 2)  # TLS may have replaced the transport.
        reason = ChannelError("connection closed")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive())
                tasks.create_task(self._keep_alive())
        except* ChannelError as group:
            found = group.exceptions[0]
            assert isinstance(found, ChannelError)
            reason = found
            raise reason from None
        finally:
            self._has_ended = True
            self._received.set()
            for answer in self._waiting.values():
                if not answer.future.done():
                    answer.future.set_exception(reason)

    def send(self, *messages: Any) -> list[int]:
        """Send messages in one piece and return their transaction ids. Raises `ExcessError` if the peer does not read."""
        if (unread := self._unread_bytes) > UNREAD_BYTES:
            raise ExcessError(f"{unread} bytes are waiting for it to read them, more than {UNREAD_BYTES}")
        xids = []
        for message in messages:
            if message.xid is None:
                message.set_xid(next(self._xids) & 0xFFFFFFFF)
            message.serialize()
            xids.append(int(message.xid))
        data = b"".join(bytes(message.buf) for message in messages)
        self._written_bytes += len(data)
        self._writer.write(data)
        return xids

    async def drained(self) -> None:
        """Wait until the peer has read so much that more may be sent. Raises `ChannelError` where it is gone.

        `serve` has to run, and gives up a peer that reads nothing.
        """
        try:
            await self._writer.drain()
        except OSError as error:
            raise ChannelError("connection closed") from error

    async def request(self, message: Any) -> list[Any]:
        """Send a request and return its answer: a message, or the bodies of a multipart one joined.

        Raises `RefusedError` if the switch answers by an error and `ChannelError` if it does not answer.
        """
        if self._has_ended:
            raise ChannelError("connection closed")
        answer = PendingAnswer(ANSWERS[type(message)], asyncio.get_running_loop().create_future())
        message.set_xid(next(self._xids) & 0xFFFFFFFF)
        self._waiting[message.xid] = answer
        try:
            self.send(message)
            async with asyncio.timeout(ANSWER_S):
                return await answer.future
        except TimeoutError:
            raise ChannelError(f"no answer to {type(message).__name__} within {ANSWER_S:g} s") from None
        finally:
            del self._waiting[message.xid]

    async def is_alive(self, within_s: float) -> bool:
        """Return whether the switch sends anything within a time after an echo request; `serve` has to run.

        Of a connection that ends meanwhile it is known at once.
        """
        if self._has_ended:
            return False
        try:
            self._received.clear()
            self.send(parser.OFPEchoRequest(self.datapath))
            async with asyncio.timeout(within_s):
                await self._received.wait()
        except (TimeoutError, ChannelError):
            return False
        return not self._has_ended

    def close(self) -> None:
        """Drop the connection; the switch keeps its rules and connects again."""
        # What the peer does not read would keep the socket open, and so would its part in ending TLS.
        if self._writer.get_extra_info("ssl_object") or self._unread_bytes:
            self._writer.transport.abort()
        else:
            self._writer.close()

    @property
    def _unread_bytes(self) -> int:
        return int(self._writer.transport.get_write_buffer_size())

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        busy_s = 0.0
        while True:
            frame = await self._frame()
            if len(frame) > LONG_FRAME_BYTES:
                await self._turns.granted(self._turns.begin())
            began = loop.time()
            self._dispatch(self._read(frame))
            busy_s += loop.time() - began
            # The task that awaits this answer runs before the next message is handled: removals and counts stay in order.
            await asyncio.sleep(0)
            if busy_s > SLICE_S:
                await asyncio.sleep(busy_s)
                busy_s = 0.0

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        self._received_at = reading_at = loop.time()
        read_bytes = -1
        while (silent := loop.time() - self._received_at) < SILENCE_S:
            unread = self._unread_bytes
            if not unread or self._written_bytes - unread != read_bytes:
                read_bytes, reading_at = self._written_bytes - unread, loop.time()
            elif loop.time() - reading_at >= SILENCE_S:
                raise ExcessError(f"it has read nothing for {SILENCE_S:g} s, and {unread} bytes are waiting")
            if silent >= ECHO_S:
                self.send(parser.OFPEchoRequest(self.datapath))
            await asyncio.sleep(ECHO_S)
        raise ChannelError(f"silent for {silent:.0f} s")

    def _dispatch(self, message: Any) -> None:
        if message is None or isinstance(message, parser.OFPEchoReply):
            return  # Only the arrival of the message counts.
        if isinstance(message, parser.OFPEchoRequest):
            if self._unread_bytes <= ECHO_UNREAD_BYTES:
                answer = parser.OFPEchoReply(self.datapath, data=message.data)
                answer.set_xid(message.xid)
                self.send(answer)
            return
        # What a switch sends of its own accord has a number of its own choice.
        pending = None if isinstance(message, UNASKED) else self._waiting.get(message.xid)
        if isinstance(message, RuleChanges) and pending is not None and pending.expected is not RuleChanges:
            pending = None  # Only the first is an answer.
        if pending is None or pending.future.done():
            self.on_message(message)
        elif isinstance(message, parser.OFPErrorMsg):
            pending.future.set_exception(RefusedError(describe(message), (message.type, message.code)))
        elif not isinstance(message, pending.expected):
            raise MalformedError(f"{type(message).__name__} in answer to a request for {pending.expected.__name__}")
        else:
            self._take_part(pending, message)

    def _take_part(self, pending: PendingAnswer, message: Any) -> None:
        entries = getattr(message, "body", (message,))
        pending.size += 1 + len(entries)
        if pending.size > self.most_entries:
            raise ExcessError(f"{pending.expected.__name__} of more than {self.most_entries} entries")
        pending.entries += entries
        if not getattr(message, "flags", 0) & ofp.OFPMPF_REPLY_MORE:
            pending.future.set_result(pending.entries)

    def _read(self, frame: bytes) -> Any:
        """Return the message in a frame, None if it is not for Beamer."""
        try:
            if (checked := readable(frame, self._rules.known)) is None:
                return None
            head = FrameHeader.of(checked)
            if head.kind == ofp.OFPT_PACKET_IN:
                return packet_in(checked)
            part = part_kind(checked)
            if part == ofp.OFPMP_FLOW:
                return self._reader_of(head.xid).read(head.xid, checked)
            if part == ofp.OFPMP_EXPERIMENTER:
                return rule_changes(checked)
            if part == ofp.OFPMP_TABLE_FEATURES:
                return tables_part(head.xid, checked)
            return parser.msg_parser(self.datapath, head.version, head.kind, head.length, head.xid, checked)
        except FrameError as error:
            raise MalformedError(f"malformed: {error}") from error
        except Exception as error:
            raise MalformedError(f"a message that os-ken cannot read: {type(error).__name__}: {error}") from error

    def _reader_of(self, xid: int) -> wire.RuleReader:
        """Return what reads a part with rules: what nobody has asked for is not remembered."""
        pending = self._waiting.get(xid)
        return self._rules if pending and pending.expected is wire.RulesPart else wire.RuleReader()

    async def _frame(self, most_bytes: int = 0xFFFF) -> bytes:
        try:
            head = await self._reader.readexactly(HEADER)
            length = FrameHeader.of(head).length
            if length > most_bytes:
                raise ExcessError(f"a frame of {length} bytes, more than {most_bytes}, before it is known who sends it")
            body = await self._reader.readexactly(length - HEADER)
        except FrameError as error:
            raise MalformedError(f"malformed: {error}") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChannelError("connection closed") from error
        self._received_at = asyncio.get_running_loop().time()
        self._received.set()
        return head + body

    def _check_version(self, frame: bytes) -> None:
        head = FrameHeader.of(frame)
        if head.kind != ofp.OFPT_HELLO:
            raise MalformedError(f"expected an OpenFlow hello, got message type {head.kind}")
        try:
            versions = hello_versions(frame)
        except FrameError as error:
            raise MalformedError(f"malformed: {error}") from error
        # Without a list of versions the lower of both sides' is used (section 6.3.1 of OpenFlow 1.3.5).
        if head.version < ofp.OFP_VERSION or (versions and ofp.OFP_VERSION not in versions):
            reason = b"OpenFlow 1.3 only"
            self.send(parser.OFPErrorMsg(self.datapath, ofp.OFPET_HELLO_FAILED, ofp.OFPHFC_INCOMPATIBLE, reason))
            raise VersionError(f"it does not speak OpenFlow 1.3 (hello of version {head.version}); set protocols=OpenFlow13")


def describe(message: Any) -> str:
    """Return an error message's type and code by name, an experimenter's by its number."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"error {message.exp_type} of experimenter {message.experimenter:#010x}"
    return f"{ofp.ofp_error_type_to_str(message.type)}, {ofp.ofp_error_code_to_str(message.type, message.code)}"
