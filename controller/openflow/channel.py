"""One switch's OpenFlow 1.3 connection on the asyncio loop, with os-ken's messages.

os-ken's own server runs threads that cannot be stopped and notices a dead peer only while it sends; the loop that serves
everything else runs its protocol as well, so that switch state needs no lock and stopping is prompt.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable
from typing import Any

from os_ken.exception import OSKenException
from os_ken.ofproto import ofproto_parser, ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

HANDSHAKE_S = 10.0
ECHO_S = 3.0  # of silence, then an echo request is sent
SILENCE_S = 10.0  # after which the switch is taken for dead
ANSWER_S = 10.0
HEADER = ofp.OFP_HEADER_SIZE


class ChannelError(Exception):
    """The switch is gone, silent, or does not speak OpenFlow 1.3."""


class RefusedError(Exception):
    """The switch answered a request by an error message."""


class Channel:
    """Requests and answers to one switch; `serve` has to run for answers to come.

    on_message: called on the loop with every message that answers no request, errors included.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_message: Callable[[Any], None]) -> None:
        self.datapath = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
        self.on_message = on_message
        self._reader = reader
        self._writer = writer
        self._xids = itertools.count(1)
        self._received_at = 0.0
        self._waiting: dict[int, tuple[asyncio.Future[list[Any]], list[Any]]] = {}

    @property
    def peer(self) -> str:
        """The switch's address, for log messages."""
        return "{}:{}".format(*self._writer.get_extra_info("peername", ("unknown", 0))[:2])

    async def handshake(self) -> int:
        """Agree on OpenFlow 1.3 and return the switch's datapath id. Raises `ChannelError`."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                self.send(parser.OFPHello(self.datapath))
                self._check_version(await self._frame())
                self.send(parser.OFPFeaturesRequest(self.datapath))
                while not isinstance(message := await self._next(), parser.OFPSwitchFeatures):
                    self._dispatch(message)
        except TimeoutError:
            raise ChannelError(f"no OpenFlow handshake within {HANDSHAKE_S:g} s") from None
        return int(message.datapath_id)

    async def serve(self) -> None:
        """Take in messages until the switch is gone. Raises `ChannelError`, and so does every request under way."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive())
                tasks.create_task(self._keep_alive())
        except* ChannelError as group:
            reason = group.exceptions[0]
            for future, _ in self._waiting.values():
                if not future.done():
                    future.set_exception(reason)
            raise reason from None

    def send(self, *messages: Any) -> list[int]:
        """Send messages in one piece and return their transaction ids."""
        xids = []
        for message in messages:
            if message.xid is None:
                message.set_xid(next(self._xids) & 0xFFFFFFFF)
            message.serialize()
            xids.append(int(message.xid))
        self._writer.write(b"".join(bytes(message.buf) for message in messages))
        return xids

    async def request(self, message: Any) -> list[Any]:
        """Send a request and return its answer, the bodies of a multipart one joined.

        Raises `RefusedError` if the switch answers by an error and `ChannelError` if it does not answer.
        """
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        message.set_xid(next(self._xids) & 0xFFFFFFFF)
        self._waiting[message.xid] = (future, [])
        try:
            self.send(message)
            async with asyncio.timeout(ANSWER_S):
                return await future
        except TimeoutError:
            raise ChannelError(f"no answer to {type(message).__name__} within {ANSWER_S:g} s") from None
        finally:
            del self._waiting[message.xid]

    def close(self) -> None:
        """Drop the connection; the switch keeps its rules and connects again."""
        self._writer.close()

    async def _receive(self) -> None:
        while True:
            self._dispatch(await self._next())
            # The task that awaits this answer runs before the next message is handled: removals and counts stay in order.
            await asyncio.sleep(0)

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        self._received_at = loop.time()
        while (silent := loop.time() - self._received_at) < SILENCE_S:
            if silent >= ECHO_S:
                self.send(parser.OFPEchoRequest(self.datapath))
            await asyncio.sleep(ECHO_S)
        raise ChannelError(f"silent for {silent:.0f} s")

    def _dispatch(self, message: Any) -> None:
        future, bodies = self._waiting.get(message.xid, (None, []))
        if isinstance(message, parser.OFPEchoRequest):
            answer = parser.OFPEchoReply(self.datapath, data=message.data)
            answer.set_xid(message.xid)
            self.send(answer)
        elif isinstance(message, parser.OFPEchoReply):
            pass  # its arrival is all that counts
        elif future is None or future.done():
            self.on_message(message)
        elif isinstance(message, parser.OFPErrorMsg):
            future.set_exception(RefusedError(describe(message)))
        else:
            bodies += getattr(message, "body", ())
            if not getattr(message, "flags", 0) & ofp.OFPMPF_REPLY_MORE:
                future.set_result(bodies)

    async def _next(self) -> Any:
        while True:
            frame = await self._frame()
            try:
                # None: os-ken has logged what it could not read; the stream is still in step.
                if message := ofproto_parser.msg(self.datapath, *ofproto_parser.header(frame), frame):
                    return message
            except OSKenException as error:
                raise ChannelError(f"a message that cannot be read: {error}") from error

    async def _frame(self) -> bytes:
        try:
            head = await self._reader.readexactly(HEADER)
            (length,) = struct.unpack_from("!H", head, 2)
            if length < HEADER:
                raise ChannelError(f"a message of {length} bytes")
            body = await self._reader.readexactly(length - HEADER)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChannelError("connection closed") from error
        self._received_at = asyncio.get_running_loop().time()
        return head + body

    def _check_version(self, frame: bytes) -> None:
        version, kind, length, xid = ofproto_parser.header(frame)
        if kind != ofp.OFPT_HELLO:
            raise ChannelError(f"expected an OpenFlow hello, got message type {kind}")
        versions = {
            v for e in parser.OFPHello.parser(self.datapath, version, kind, length, xid, frame).elements for v in e.versions
        }
        # Without a list of versions the lower of both sides' is used (section 6.3.1 of OpenFlow 1.3.5).
        if version < ofp.OFP_VERSION or (versions and ofp.OFP_VERSION not in versions):
            reason = b"OpenFlow 1.3 only"
            self.send(parser.OFPErrorMsg(self.datapath, ofp.OFPET_HELLO_FAILED, ofp.OFPHFC_INCOMPATIBLE, reason))
            raise ChannelError(f"it does not speak OpenFlow 1.3 (hello of version {version}); set protocols=OpenFlow13")


def describe(message: Any) -> str:
    """Return an error message's type and code by name."""
    return f"{ofp.ofp_error_type_to_str(message.type)}, {ofp.ofp_error_code_to_str(message.type, message.code)}"
