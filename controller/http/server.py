"""The HTTP server: uvicorn with bounds on connections, on the time that a request takes, and on what it may hold.

    accepted -> counted, or closed at once -> TLS, if any, and headers and body, each within `request_s`, paced (`paced`)
             -> body no larger than `body_bytes` -> one of `requests` under way -> the application
             -> answer taken off within `request_s` -> idle or closed

An agent's WebSocket leaves the count once the hub of agents, which has one of each name, serves it.
"""

import asyncio
import json
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame

from beamer.errors import PlatformError
from beamer.log_limit import LimitedRecords, LogLimit
from controller.http.errors import refusal, refusal_content
from controller.http.paced import PacedConnection
from controller.http.tls import TlsHandshake
from controller.limits import Limits
from controller.websocket import AGENT_PING_S, PEER_CERTIFICATE, UNCOUNT

LAST_REQUESTS_S = 1  # for requests under way when asked to stop
ACCEPTED_AT_ONCE = 32  # connections before any of them is counted
KERNEL_BACKLOG = 1024  # connections that wait to be accepted: trainers of a large search start together
OWN_DESCRIPTORS = 64  # the journal, logs, listening sockets, libraries
_BEING_CLOSED = 4 * ACCEPTED_AT_ONCE  # surplus ones, whose descriptors are freed turns of the loop later
_PER_ELEMENT = 4  # a switch or an agent, and the connection that replaces a dead one
_CLOSE_S = 2.0  # for the other side of a WebSocket to answer that it closes, too
_MOST_FRAGMENTS = 1024  # of a message: each takes some 60 bytes more than its content, or any number of empty ones would do

_LIBRARY_LOGS = ("asyncio", "uvicorn.error")

log = structlog.get_logger("beamer-controller")


def raise_descriptor_limit() -> int:
    """Raise the process's soft limit of descriptors to the hard one, as far as it may be; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a hard limit that the kernel does not grant
        return soft
    return hard


def connections_within(descriptors: int, limits: Limits, elements: int) -> int:
    """Return how many HTTP connections may be open: what switches, agents and the journal need is kept for them.

    descriptors: that the process may have. elements: switches and agents. Raises `PlatformError` if none is left.
    """
    reserved = OWN_DESCRIPTORS + _BEING_CLOSED + _PER_ELEMENT * elements
    left = descriptors - reserved if descriptors != resource.RLIM_INFINITY else limits.connections
    if left < 1:
        remedy = f"let it open more than {reserved} (ulimit -n)"
        raise PlatformError(f"the controller may open {descriptors} files, too few for its switches and agents", remedy)
    return min(limits.connections, left)


class OpenConnections:
    """Count the connections that are open, in all and by address."""

    def __init__(self, most: int, most_per_address: int, log_limit: LogLimit) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._log_limit = log_limit
        self._by_address: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many there are."""
        return self._by_address.total()

    def admit(self, address: str) -> bool:
        """Count a connection from `address` and return True, or False if there are as many as may be."""
        if self.total >= self._most or self._by_address[address] >= self._most_per_address:
            if self._log_limit.take("connections"):
                log.warning(
                    "surplus connections are closed at once",
                    peer=address,
                    of_peer=self._by_address[address],
                    of_all=self.total,
                    limits=(self._most_per_address, self._most),
                )
            return False
        self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection no more."""
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]


class BoundedRequests:
    """Hands requests to an application once their body has come, if it is no larger and they are no more than may be."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as ASGI has it; a WebSocket is handed on as it is."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._under_way >= self._limits.requests:
            expected = f"at most {self._limits.requests} requests at once: repeat it later"
            await _refuse(503, "too many requests are under way", expected, None, scope, receive, send)
        else:
            self._under_way += 1
            try:
                await self._serve(scope, receive, send)
            finally:
                self._under_way -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        size = _declared_bytes(scope)
        more = True
        while more and size <= self._limits.body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            size = max(size, len(body))
            more = message.get("more_body", False)
        if size > self._limits.body_bytes:
            expected = f"at most {self._limits.body_bytes} bytes"
            await _refuse(413, "the body is too large", expected, size, scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def receive_whole() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, receive_whole, send)


def _declared_bytes(scope: Scope) -> int:
    """Return the length of the body that is announced, 0 where none is; h11 has checked that it is a number."""
    return max((int(value) for name, value in scope["headers"] if name == b"content-length"), default=0)


async def _refuse(
    status: int, message: str, expected: str, size: int | None, scope: Scope, receive: Receive, send: Send
) -> None:
    answer = refusal(status, message, expected, None if size is None else "body", size)
    answer.headers["connection"] = "close"  # what is left of the body is not read
    await answer(scope, receive, send)


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
    """uvicorn's connection, counted, and aborted when a request or its answer takes too long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        config = cast(_Config, self.config)
        self._open, self._request_s = config.open_connections, config.request_s
        self._address = self.client[0] if self.client else ""
        self._counted = self._open.admit(self._address)
        self._phase: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        if self._counted:
            self._watch()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._leave()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._leave()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        headers, body = _bad_request(msg, "one HTTP/1.1 request after the other, with short headers")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no answer has begun
            for sent in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(sent) or b"")
        self.transport.close()

    def _leave(self) -> None:
        if self._counted:
            self._counted = False
            self._open.leave(self._address)
        if self._timer:
            self._timer.cancel()

    def _watch(self) -> None:
        """Give a request, and then its answer, their time; between requests uvicorn's own time-out holds."""
        if not self._counted:
            return
        arriving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        phase = None if self.timeout_keep_alive_task else "request" if arriving else "answer"
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


def _accepted(config: _Config, server_state: ServerState, **more: Any) -> asyncio.Protocol:
    """Return the protocol of a connection that has just been accepted. more: what uvicorn gives its own beside."""
    protocol = partial(_Protocol, config=config, server_state=server_state, **more)
    make = partial(PacedConnection, protocol, config.request_s)
    if config.tls is None:
        return make()
    tasks, failed = server_state.tasks, config.log_failed_handshake
    return TlsHandshake(config.tls, config.request_s, config.open_connections, make, tasks, failed)


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, counted until the application takes it out of the count, or it ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.close_timeout = _CLOSE_S
        self._open = cast(_Config, self.config).open_connections
        self._address = self.client[0] if self.client else ""
        self._counted = self._open.admit(self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._uncount()

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
        if len(self.frames) < _MOST_FRAGMENTS:
            super().handle_cont(event)
        else:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message in more than {_MOST_FRAGMENTS} frames")
            self.handle_parser_exception()

    def keepalive_timeout(self) -> None:
        if not self.read_paused:
            super().keepalive_timeout()
            return
        # Its answer waits behind what is not read yet, at the rate that is granted to it.
        self.pong_timer = self.pending_ping_payload = None
        self.schedule_ping()

    async def run_asgi(self) -> None:
        state = cast(dict[str, Any], self.scope)["state"]
        state[UNCOUNT] = self._uncount
        if self.scheme == "wss":
            state[PEER_CERTIFICATE] = self.transport.get_extra_info("peercert")
        await super().run_asgi()

    def _uncount(self) -> None:
        if self._counted:
            self._counted = False
            self._open.leave(self._address)


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
        BoundedRequests(app, limits),
        OpenConnections(connections, limits.connections_per_address, log_limit),
        log_limit,
        limits.request_s,
        tls,
        http=_accepted,
        ws=_WebSocket,
        ws_max_size=limits.message_bytes,
        ws_ping_interval=AGENT_PING_S,
        ws_ping_timeout=AGENT_PING_S,
        ws_per_message_deflate=False,  # of little use on a network this fast, and a small frame could become a large one
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # an address is that of the connection
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_graceful_shutdown=LAST_REQUESTS_S,
    )
    return HttpServer(config)
