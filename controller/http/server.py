"""The HTTP server: uvicorn with bounds on connections, on the time that a request takes, and on what it may hold.

    accepted -> counted (`connections`), or closed at once -> TLS, if any (`tls`), and headers and body, each within
                `request_s`, a piece at a time (`paced`)
             -> its version is served (`versioned_requests`)
             -> body no larger than `body_bytes` -> one of `requests` under way (`bounded_requests`) -> the application
             -> answer taken off within `request_s` -> idle or closed

An agent's WebSocket leaves the count once the hub of agents, which has one of each name, serves it.

Connections are counted, paced and encrypted by protocols of asyncio in front of uvicorn's. It has no option for the rest, for
which methods of its own are overridden here:

    H11Protocol               data_received, on_response_complete   bound the time of a request and of its answer
                              send_400_response                     has the form of every refusal, and may come within an answer
    WebSocketsSansIOProtocol  data_received                         answers a handshake that cannot be read
                              handle_cont                           bounds the frames of a message
                              keepalive_timeout                     waits for a pong that is behind what is not read yet
    Server                    capture_signals                       leaves signals to the loop
                              startup                               lets many connections wait in the kernel

So pyproject.toml allows one minor version of uvicorn. `tests/unit/controller/http/test_uvicorn.py` fails where another one has
changed what these methods rely on.
"""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame

from beamer.log_limit import LimitedRecords, LogLimit
from controller.http.bounded_requests import BoundedRequests
from controller.http.connections import ACCEPTED_AT_ONCE, OpenConnections
from controller.http.errors import refusal_content
from controller.http.paced import PacedConnection
from controller.http.tls import TlsHandshake
from controller.http.versioned_requests import VersionedRequests
from controller.limits import Limits
from controller.websocket import AGENT_PING_S, PEER_CERTIFICATE, UNCOUNT

LAST_REQUESTS_S = 1  # Requests under way have so long when the server is asked to stop.
KERNEL_BACKLOG = 1024  # connections that wait to be accepted: trainers of a large search start together
_CLOSE_S = 2.0  # The other side of a WebSocket has so long to answer that it closes, too.
# A message has at most so many frames: each takes some 60 bytes more than its content, and any number of empty ones would pass.
_MAX_FRAGMENTS = 1024

_LIBRARY_LOGS = ("asyncio", "uvicorn.error")

log = structlog.get_logger("beamer-controller")


class _Config(uvicorn.Config):
    """uvicorn's configuration and what its connections need beside. tls: not uvicorn's own, see `controller.http.tls`."""

    def __init__(
        self,
        app: ASGIApp,
        open_connections: OpenConnections,
        log_limit: LogLimit,
        request_s: float,
        tls: ssl.SSLContext | None,
        **options: Any,
    ) -> None:
        super().__init__(app, **options)
        self.open_connections = open_connections
        self.request_s = request_s
        self.tls = tls
        self._log_limit = log_limit

    def log_failed_handshake(self, address: str, reason: str) -> None:
        """Log a peer with which TLS fails, once in a while."""
        if self._log_limit.take("handshake"):
            log.warning("no TLS with a peer", peer=address, reason=reason)


class _Protocol(H11Protocol):
    """uvicorn's connection, aborted when a request or its answer takes too long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._request_s = cast(_Config, self.config).request_s
        self._phase: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        headers, body = _bad_request(msg, "one HTTP/1.1 request after the other, with short headers")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no answer has begun
            for sent in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(sent) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Give a request, and then its answer, their time; between requests uvicorn's own time-out holds."""
        arriving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        is_over = self.transport.get_protocol() is not self  # The connection is lost, or a WebSocket's.
        phase = None if is_over or self.timeout_keep_alive_task else "request" if arriving else "answer"
        if phase != self._phase:
            if self._timer:
                self._timer.cancel()
            self._phase = phase
            self._timer = self.loop.call_later(self._request_s, self.transport.abort) if phase else None


def _bad_request(message: str, expected: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of an answer to what is no request."""
    body = json.dumps(refusal_content(message, expected)).encode("ascii")
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode("ascii")),
        (b"connection", b"close"),
    ]
    return headers, body


def _accepted(config: _Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> asyncio.Protocol:
    """Return the protocol of a connection that has just been accepted. more: what uvicorn gives its own beside."""

    def protocol(connection: PacedConnection) -> asyncio.Protocol:
        state = {UNCOUNT: connection.uncount, PEER_CERTIFICATE: partial(connection.get_extra_info, "peercert")}
        return _Protocol(config=config, server_state=server_state, app_state=app_state | state, **more)

    make = partial(PacedConnection, protocol, config.open_connections, config.request_s)
    if config.tls is None:
        return make()
    tasks, failed = server_state.tasks, config.log_failed_handshake
    return TlsHandshake(config.tls, config.request_s, config.open_connections, make, tasks, failed)


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, whose peer can hold no more than it is granted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.close_timeout = _CLOSE_S

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            # websockets cannot read the request, of which nothing more comes, and uvicorn would wait for ever.
            headers, body = _bad_request("Invalid WebSocket request received.", "a GET with few, short headers and no body")
            head = b"".join(b"%b: %b\r\n" % header for header in headers)
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + body)
            self.transport.close()

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        if len(self.frames) < _MAX_FRAGMENTS:
            super().handle_cont(event)
        else:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message in more than {_MAX_FRAGMENTS} frames")
            self.handle_parser_exception()

    def keepalive_timeout(self) -> None:
        if not self.read_paused:
            super().keepalive_timeout()
            return
        # The answer to a ping waits behind what is not read yet, at the rate that is granted to the peer.
        self.pong_timer = self.pending_ping_payload = None
        self.schedule_ping()


class HttpServer(uvicorn.Server):
    """Leaves signals to the loop: uvicorn would raise them again before the runtime has stopped."""

    def stop(self) -> None:
        """Ask it to finish."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen: few are accepted in a turn of the loop, so that they are counted soon, and many may wait."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(KERNEL_BACKLOG)


def http_server(app: ASGIApp, limits: Limits, connections: int, tls: ssl.SSLContext | None = None) -> HttpServer:
    """Return a server of `app` for at most so many connections; `serve` it on listening sockets. tls: None: plain text."""
    log_limit = LogLimit(1, 60.0)
    for name in _LIBRARY_LOGS:
        logger = logging.getLogger(name)
        if not any(isinstance(known, LimitedRecords) for known in logger.filters):
            logger.addFilter(LimitedRecords(log_limit))
    config = _Config(
        VersionedRequests(BoundedRequests(app, limits), limits),
        OpenConnections(connections, limits.connections_per_address, log_limit),
        log_limit,
        limits.request_s,
        tls,
        http=_accepted,
        ws=_WebSocket,
        ws_max_size=limits.message_bytes,
        ws_ping_interval=AGENT_PING_S,
        ws_ping_timeout=AGENT_PING_S,
        # Compression is of little use on a network this fast, and a small frame could become a large one.
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # A peer's address is that of its connection.
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_graceful_shutdown=LAST_REQUESTS_S,
    )
    return HttpServer(config)
