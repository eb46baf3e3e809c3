"""The connection of one peer, an agent or an engine, on its WebSocket: its messages are read at a bounded rate.

Whatever is long is read for one peer in a turn of the event loop, however many have something to say.
"""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic, TypeVar

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import BaseModel, TypeAdapter, ValidationError

from beamer.errors import InputError
from beamer.protocol_version import HEADER, PeerProtocol, check_version, parse_header
from beamer.validation import input_error
from beamer.versioned_messages import Decoded, decode, encode, is_known
from controller.event_loop.time_slices import TimeSlices
from controller.websocket import close_reason

HELLO_S = 5.0  # A peer has so long to send its hello, which it does at once.
_COUNTED_CHARACTERS = 20_000  # A longer message counts as several: reading so many characters takes under a millisecond.
_LONG_CHARACTERS = 4096  # A longer message waits for its turn to be read: so many take some 50 microseconds.
_BURST_S = 1.0  # Messages and entries of so many seconds may come at once: a peer that has just connected reports everything.

Said = TypeVar("Said")


class Pace:
    """Tell how long to wait so that no more than `per_s` things happen in a second, `burst_s` seconds' worth at once."""

    def __init__(self, per_s: float, burst_s: float = _BURST_S) -> None:
        self._per_s = per_s
        self._burst_s = burst_s
        self._until_s = float("-inf")  # What has happened uses up the pace until this time.

    def wait_s(self, now: float) -> float:
        """Return for how many seconds nothing may happen yet."""
        return max(self._until_s - now, 0.0)

    def count(self, now: float, things: int) -> None:
        """Count what happens now."""
        self._until_s = max(self._until_s, now - self._burst_s) + things / self._per_s


class PeerSession(ABC, Generic[Said]):
    """One peer's connection.

    peer: what program it is. kinds: of its messages, of which `messages_per_s` are read in a second. turns: of all peers.
    """

    def __init__(
        self, peer: str, websocket: WebSocket, kinds: TypeAdapter[Said], messages_per_s: float, turns: TimeSlices
    ) -> None:
        self.protocol = PeerProtocol()
        self.websocket = websocket
        self._turns = turns
        self._peer = peer
        self._kinds = kinds
        self._messages = Pace(messages_per_s)

    def agree(self) -> None:
        """Take in which version the peer speaks. Raises `InputError` for one that is not served."""
        self.protocol = parse_header(self.websocket.headers.get(HEADER))
        check_version(self.protocol.version, self._peer, "controller")

    async def welcome(self, message: BaseModel) -> None:
        """Send the first message, to a peer that knows of it."""
        if is_known(type(message), self.protocol.version):
            with suppress(RuntimeError):  # The connection may have been closed meanwhile.
                await self.websocket.send_text(encode(message, self.protocol.version))

    async def receive(self) -> Said:
        """Return the next message of a kind that is known. Raises `InputError`, or `WebSocketDisconnect` at the end."""
        while True:
            decoded = await self._receive()
            if decoded.unused:
                self._log_unused(decoded.unused)
            if decoded.message is not None:
                return decoded.message

    async def close(self, code: int, reason: str) -> None:
        """Close, unless the peer has closed first."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self.websocket.close(code, close_reason(reason))

    @abstractmethod
    def _log_unused(self, names: tuple[str, ...]) -> None:
        """Log what a newer peer has said that is not known here."""

    async def _receive(self) -> Decoded[Said]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._messages.wait_s(loop.time()))
        message = await self.websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text = message.get("text")
        if text is None:
            raise InputError("message", "bytes", "a text frame with a JSON object")
        self._messages.count(loop.time(), 1 + len(text) // _COUNTED_CHARACTERS)
        if len(text) > _LONG_CHARACTERS:
            await self._turns.granted(self._turns.begin())
        try:
            return decode(self._kinds, text, self.protocol.version)
        except ValidationError as error:
            raise input_error(error) from error
