"""A connection whose peer gets no more of the event loop and of the memory than its share, whatever protocol it speaks.

    transport -> counted, or closed at once
              -> up to one reading of it kept -> a piece in each turn of the loop -> the protocol's own
              <- nothing is read while the peer does not take what was written, and none waits for that after closing

A parser takes in all of what it is given in one turn: of chunks, frames and pings of a few bytes each, asyncio reads so many at
once that everybody else would wait for some 0.5 s; and every ping is answered, whether or not the peer ever reads it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from controller.http.connections import OpenConnections

PIECE_BYTES = 4096  # Parsing so much of the most costly input, chunks of one byte, takes some 10 ms.
SLICE_S = 0.01  # A peer that keeps sending gets half of the loop's time after so much parsing.
FLUSH_S = 10.0  # After closing, the peer has so long to take what was written: as long as for an answer.


class PacedConnection(asyncio.Transport, asyncio.Protocol):
    """The transport of a protocol, and the protocol of a transport.

    make: returns the protocol, given the connection; it may set another one later. count: counts the connection until its end,
    or `uncount`. flush_s: how long a closed connection waits for its peer.
    """

    def __init__(
        self, make: "Callable[[PacedConnection], asyncio.Protocol]", count: OpenConnections, flush_s: float = FLUSH_S
    ) -> None:
        super().__init__()
        self._protocol = make(self)
        self._count = count
        self._counted: str | None = None  # The peer's address, while the connection is counted.
        self._flush_s = flush_s
        self._kept = bytearray()
        # `_paused`: the protocol asked for it. `_unread`: the peer does not take what was written.
        self._paused = self._unread = False
        self._share_s = 0.0  # Parsing has had no more than half of the time by this loop time.
        self._turn: asyncio.Handle | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Hand the connection on, if there may be another one."""
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if self._count.admit(address):
            self._counted = address
            self._protocol.connection_made(self)
        else:
            self._protocol = asyncio.Protocol()
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Keep what has come, and begin with it."""
        self._kept += data
        if self._turn is None:
            self._take_piece()

    def eof_received(self) -> bool | None:
        """Hand on that the peer sends no more."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Read no more either: what comes might have to be answered."""
        self._unread = True
        self._set_reading()
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Read again."""
        self._unread = False
        self._protocol.resume_writing()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on that it is over."""
        self._lost = True
        for handle in (self._turn, self._flush):
            if handle:
                handle.cancel()
        self._kept.clear()
        self.uncount()
        protocol, self._protocol = self._protocol, asyncio.Protocol()
        protocol.connection_lost(exc)

    def uncount(self) -> None:
        """Count it no more."""
        if self._counted is not None:
            self._count.leave(self._counted)
            self._counted = None

    def _take_piece(self) -> None:
        self._turn = None
        if self._transport.is_closing():
            self._kept.clear()
        if self._kept and not (self._paused or self._unread):
            began = self._loop.time()
            piece = bytes(self._kept[:PIECE_BYTES])
            del self._kept[:PIECE_BYTES]
            self._protocol.data_received(piece)
            now = self._loop.time()
            self._share_s = max(self._share_s, began) + 2 * (now - began)
            if self._share_s - now > SLICE_S and not self._lost:
                self._turn = self._loop.call_at(self._share_s, self._take_piece)
        self._go_on()

    def _go_on(self) -> None:
        """See to what is kept in the next turn, and to whether more is read."""
        if self._kept and self._turn is None and not (self._paused or self._unread or self._lost):
            self._turn = self._loop.call_soon(self._take_piece)
        self._set_reading()

    def _set_reading(self) -> None:
        if self._transport.is_closing():
            return
        if self._kept or self._paused or self._unread or isinstance(self._turn, asyncio.TimerHandle):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def pause_reading(self) -> None:
        """Give the protocol nothing more."""
        self._paused = True
        self._set_reading()

    def resume_reading(self) -> None:
        """Give the protocol what is kept, and what comes."""
        self._paused = False
        self._go_on()

    def close(self) -> None:
        """Close when the peer has taken what was written, or has not for too long."""
        # After a second call TLS takes the connection for ended: nothing more could be asked of it.
        if self._flush is None and not self._lost:
            self._transport.close()
            self._flush = self._loop.call_later(self._flush_s, self._transport.abort)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Say whether it is being closed, or is."""
        return self._transport.is_closing()

    def write(self, data: Any) -> None:
        """Send."""
        self._transport.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what comes to another protocol."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that is given what comes."""
        return self._protocol
