"""TLS in front of an HTTP connection: counted while it is agreed on, and for a bounded time.

asyncio would make uvicorn's protocol only afterwards: a peer that says nothing would hold a descriptor that nobody counts.

    accepted -> counted, or closed at once -> handshake within `within_s` -> no more counted here -> the protocol's own
"""

import asyncio
import ssl
from collections.abc import Callable

from controller.http.connections import OpenConnections

SHUTDOWN_S = 2.0  # The peer has so long for its part in closing, which need not come.


class TlsHandshake(asyncio.Protocol):
    """Agrees on TLS, then hands the connection to a protocol of its own.

    within_s: of the handshake. count: counts the connection meanwhile. make: returns the protocol. tasks: where the
    handshake's is kept while it lasts. failed: called with the peer's address and the reason.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        within_s: float,
        count: OpenConnections,
        make: Callable[[], asyncio.Protocol],
        tasks: "set[asyncio.Task[None]]",
        failed: Callable[[str, str], None],
    ) -> None:
        self._context = context
        self._within_s = within_s
        self._count = count
        self._make = make
        self._tasks = tasks
        self._failed = failed
        self._early = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if there may be another connection."""
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._count.admit(address):
            transport.abort()
            return
        transport.pause_reading()  # TLS reads what arrives.
        task = asyncio.get_running_loop().create_task(self._agree(transport, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def data_received(self, data: bytes) -> None:
        """Keep what comes with the handshake's last message: the protocol is told of its connection first."""
        self._early += data

    async def _agree(self, transport: asyncio.Transport, address: str) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._within_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:  # `ssl.SSLError` and time-outs are `OSError`s.
            self._failed(address, str(error))
            return
        finally:
            self._count.leave(address)
        if secured is None or secured.is_closing():
            return
        protocol = self._make()
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        if self._early:
            protocol.data_received(bytes(self._early))
