"""Which controller to connect to: of several one leads, and an agent finds it by trying them in turn.

One that does not lead closes with 4001, or cannot be connected to; the next is tried at once, and when none of them was of use
there is a pause, longer each time. Whatever a controller does (sends nothing, sends slowly, closes at once), the agent does not
wait for it longer than is stated here.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from beamer.errors import InputError, first_of
from beamer.network.message_limits import REPORT_LIMITS_OF_VERSION_1
from beamer.network.protocol import ReportLimits
from beamer.protocol_version import HEADER, check_version, format_header, parse_header
from hostagent.limits import MAX_MESSAGE_BYTES
from hostagent.link.tls import connection_failure
from hostagent.rate_limited_log import RateLimitedLog

FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 1.0  # Pauses between rounds, before jitter, which takes up to half of them.
_ASSIGNMENT_S = 15.0  # A controller has so long to send the first assignment, which it does at once.
_CONNECT_S = 5.0
_CLOSE_S = 1.0  # The other side has so long for its part in closing.
_PING_EVERY_S, _PING_ANSWER_S = 5.0, 15.0


class Rotation:
    """Whose turn it is among the controllers' URLs, and when. Pure."""

    def __init__(self, urls: Sequence[str], random: Random) -> None:
        self._urls = tuple(urls)
        self._random = random
        self._at = 0
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S

    @property
    def url(self) -> str:
        """The controller to try now."""
        return self._urls[self._at]

    def move_on(self, served: bool) -> float:
        """Go on to the next controller; return the seconds to wait before it is tried: 0 within a round.

        served: whether the one before was of use, so that this begins a new round.
        """
        if served:
            self._failures, self._pause_s = 0, FIRST_PAUSE_S
        self._at = (self._at + 1) % len(self._urls)
        self._failures += 1
        if self._failures % len(self._urls):
            return 0.0
        pause_s = self._pause_s * (1 - self._random.random() / 2)
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        return pause_s


class ControllerConnection:
    """A connection to a controller.

    protocol: what the controller speaks. takes: how much of reports; until it has said so, what one of version 1 takes, which
    never says it. accepted: whether it has sent an assignment that can be carried out. Raises `InputError` for a controller
    whose version is too far away.
    """

    def __init__(self, socket: ClientConnection, patience: asyncio.Timeout) -> None:
        self.socket = socket
        self.protocol = parse_header(socket.response.headers.get(HEADER) if socket.response else None)
        check_version(self.protocol.version, "controller", "agent")
        self.takes: ReportLimits = REPORT_LIMITS_OF_VERSION_1
        self.accepted = False
        self._patience = patience

    def accept(self) -> None:
        """Take note of an assignment that can be carried out."""
        self.accepted = True
        if not self._patience.expired():
            self._patience.reschedule(None)


class _Connect(connect):
    """An attempt to connect to the URL that was given, and to no other one that an answer names."""

    def process_redirect(self, exc: Exception) -> Exception:
        """Return why the attempt has failed."""
        return exc


class ControllerLink:
    """Keeps agent `name` connected to the controller that leads. tls: for wss://."""

    def __init__(self, name: str, urls: Sequence[str], tls: ssl.SSLContext | None, random: Random) -> None:
        self._path = f"v1/agents/{name}"
        self._tls = tls
        self._rotation = Rotation(urls, random)
        self._reasons: dict[str, str] = {}
        self._limited_log = RateLimitedLog()

    async def stay_connected(self, exchange: Callable[[ControllerConnection], Awaitable[None]]) -> None:
        """Connect, let `exchange` talk until it returns or fails, and connect again, until cancelled."""
        while True:
            url, began_s = self._rotation.url, time.monotonic()
            accepted = await self._talk(url, exchange)
            # A task group that fails meanwhile may swallow the cancellation.
            if (this := asyncio.current_task()) and this.cancelling():
                raise asyncio.CancelledError
            # A connection that closes at once may be one of many.
            served = accepted and time.monotonic() - began_s > LAST_PAUSE_S
            if served:
                self._limited_log.reset("connected")
                self._limited_log.reset("connection")
                self._reasons = {url: self._reasons[url]}
            pause_s = self._rotation.move_on(served)
            if pause_s or served:
                reasons = "; ".join(f"{tried}: {reason}" for tried, reason in self._reasons.items())
                self._limited_log.add("connection", f"no controller ({reasons}); keeping the last plan", logging.WARNING)
            await asyncio.sleep(pause_s)

    async def _talk(self, url: str, exchange: Callable[[ControllerConnection], Awaitable[None]]) -> bool:
        """Return whether the controller at `url` has sent an assignment that can be carried out; note why it is over."""
        connection = None
        try:
            async with self._connect(url) as socket, asyncio.timeout(_ASSIGNMENT_S) as patience:
                connection = ControllerConnection(socket, patience)
                self._limited_log.add("connected", url, logging.INFO)
                await exchange(connection)
                self._reasons[url] = f"closed: {socket.close_code} {socket.close_reason}".rstrip()
        except* TimeoutError:
            waiting = connection is not None and not connection.accepted
            self._reasons[url] = f"no assignment within {_ASSIGNMENT_S:g} s" if waiting else "no answer in time"
        except* (OSError, WebSocketException) as errors:
            error = first_of(errors)
            closed = error.rcvd if isinstance(error, ConnectionClosed) else None
            self._reasons[url] = f"closed: {closed}" if closed else connection_failure(error, url.startswith("wss:"))
        except* InputError as errors:  # The controller's version is too far away, or its welcome is not one.
            self._reasons[url] = str(first_of(errors))
        except* Exception as errors:  # noqa: BLE001 - A defect is logged; a new connection brings the whole assignment again.
            self._limited_log.add("defect", f"the exchange with {url} failed", error=first_of(errors))
            self._reasons[url] = repr(first_of(errors))
        return connection is not None and connection.accepted

    def _connect(self, url: str) -> connect:
        return _Connect(
            f"{url.rstrip('/')}/{self._path}",
            ssl=self._tls if url.startswith("wss:") else None,
            additional_headers={HEADER: format_header()},
            open_timeout=_CONNECT_S,
            close_timeout=_CLOSE_S,
            ping_interval=_PING_EVERY_S,
            ping_timeout=_PING_ANSWER_S,
            compression=None,  # Nothing is taken that grows when it is unpacked.
            proxy=None,
            max_size=MAX_MESSAGE_BYTES,
        )
