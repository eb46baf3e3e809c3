"""The connection of a search's engine to the controller that leads: events there, what holds for the search back.

Whatever runs searches uses it: see `beamer.gpu.remote`.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import BaseModel, ValidationError
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect

from beamer.client.controllers import NOT_LEADING
from beamer.client.credentials import controller_access
from beamer.client.transport import Transport, trust
from beamer.errors import InputError, PlatformError
from beamer.gpu.devices import Devices
from beamer.gpu.events import FREEING, Allocated, RanksSeen, ReportRefused, TrialReported, TrialSampled
from beamer.gpu.model import Node
from beamer.gpu.protocol import (
    MAX_EVENTS,
    PING_ANSWER_S,
    PING_EVERY_S,
    EngineHello,
    EngineLeft,
    EngineLimits,
    EngineRefused,
    EngineWelcome,
    GpusUsed,
    SearchAssignment,
    SearchEvents,
    SearchLimits,
    ToEngine,
    to_engine,
)
from beamer.log_limit import DIFFERENCES_AGAIN_S, MAX_DIFFERENCES, VariedLogLimit
from beamer.ports import HTTP_PORT
from beamer.protocol_version import HEADER, PROTOCOL_VERSION, PeerProtocol, check_version, format_header, parse_header
from beamer.studies.events import EncodedEvent, Event, encode, encoded_for
from beamer.versioned_messages import decode as decode_message
from beamer.versioned_messages import encode as encode_message

CONNECT_S = 5.0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 1.0  # pauses between rounds of the controllers, seconds
MAX_MESSAGE_BYTES = 4 << 20  # A message for 10 000 trials fits.
MAX_SHOWN = 200  # So many characters of a refusal are shown.
NOTHING: Mapping[str, int] = MappingProxyType({})
_REPORTS = frozenset(kind.versioned.stored_name for kind in (TrialReported, ReportRefused, RanksSeen))
"""The kinds of events that nothing else builds on."""
SCHEMES: Mapping[str, str] = {"http": "ws", "https": "wss"}

log = logging.getLogger("beamer.gpu")


class _Hosts(BaseModel):
    """What a controller answers about its hosts."""

    hosts: dict[str, str]


class ReceivedAssignment(NamedTuple):
    """An assignment, and the number of the connection that it came over."""

    connection: int
    assignment: SearchAssignment


class EngineLink:
    """Keeps a search's engine connected to the controller that leads.

    urls: of the controllers, separated by commas, http or https. study, run: of the search. nodes: all that the engine can
    start processes on. environment: that holds token and certificates, as of `beamer.client.Client`. acted_upon: what has been
    decided to be carried out last. Raises `InputError`.
    """

    def __init__(self, urls: str, study: str, run: str, nodes: Sequence[Node], environment: Mapping[str, str]) -> None:
        access = controller_access(urls, environment)
        self._urls = [_engine_url(url, study) for url in access.urls]
        self._headers = {**dict(access.headers), HEADER: format_header()}
        self._tls = trust(access.ca) if any(url.startswith("wss:") for url in self._urls) else None
        self.acted_upon: ReceivedAssignment | None = None
        self._hello = EngineHello(run=run, nodes=tuple(nodes), limits=EngineLimits(message_bytes=MAX_MESSAGE_BYTES))
        self._takes: SearchLimits | None = None
        self._said = VariedLogLimit(MAX_DIFFERENCES, DIFFERENCES_AGAIN_S)
        self._changed = threading.Condition()
        self._events: list[EncodedEvent] = []
        self._sent = self._taken = self._freeing = 0  # numbers of events so far
        self._assignment: SearchAssignment | None = None
        self._uses: GpusUsed | None = None
        self._connection = 0
        self._leaves = self._closing = False
        self._refusal = ""
        self._news = self._noticed = 0
        self._socket: ClientConnection | None = None
        self._thread = threading.Thread(target=self._stay_connected, name="beamer-controller", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def offer(self, event: Event) -> None:
        """Have an event reported; a decision is the controller's own, and a draw the search's."""
        if isinstance(event, Allocated | TrialSampled):
            return
        with self._changed:
            self._events.append(encode(event))
            if isinstance(event, FREEING):
                self._freeing = len(self._events)
            self._changed.notify_all()

    @property
    def held(self) -> ReceivedAssignment | None:
        """What holds, None while that is not known: what has been freed since may be another's by now."""
        with self._changed:
            if self._assignment is None or not self._assignment.settled or self._taken < self._freeing:
                return None
            return ReceivedAssignment(self._connection, self._assignment)

    def use(self, devices: Devices, held_bytes: Mapping[str, int] = NOTHING) -> None:
        """Have it reported what processes compute on, now that `acted_upon` is carried out as far as it can be.

        held_bytes: as of `GpusUsed`.
        """
        with self._changed:
            acted = self.acted_upon
            is_of_now = acted is not None and acted.connection == self._connection
            number = acted.assignment.number if acted is not None and is_of_now else 0
            self._uses = GpusUsed(assignment=number, devices=devices, held_bytes=dict(held_bytes))
            self._changed.notify_all()

    @property
    def refusal(self) -> str:
        """Why the controller does not serve this search, "" if it does or has not been reached yet."""
        return self._refusal

    def wait(self, timeout_s: float) -> None:
        """Wait until something else holds than at the end of the last wait, or for a time."""
        with self._changed:
            self._changed.wait_for(lambda: self._news != self._noticed, timeout_s)
            self._noticed = self._news

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was offered is durable at the controller; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._taken >= len(self._events) or bool(self._refusal), timeout_s) and not (
                self._refusal
            )

    def leave(self, timeout_s: float) -> bool:
        """Say that no process of the search runs, and wait until its GPUs are free; return whether they are."""
        with self._changed:
            self._leaves = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._assignment is not None and self._assignment.left, timeout_s)

    def close(self) -> None:
        """End the connection."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            socket = self._socket
        if socket is not None:
            socket.close()
        if self._thread.is_alive():
            self._thread.join(CONNECT_S + PING_ANSWER_S)

    def _stay_connected(self) -> None:
        pause_s, reasons = FIRST_PAUSE_S, {}
        while not (self._closing or self._refusal):
            was_served = False
            for url in self._urls:
                try:
                    was_served = self._serve(url) or was_served
                    reasons[url] = "it has closed the connection"
                except (OSError, WebSocketException, ValidationError, InputError) as error:
                    reasons[url] = str(error) or type(error).__name__
                except Exception as error:  # After a defect, what runs goes on, and the next connection may work.
                    log.exception("the exchange with %s failed", url)
                    reasons[url] = repr(error)
                if self._closing or self._refusal:
                    return
            known = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
            log.warning("no controller (%s): what runs goes on, nothing else is started", known)
            pause_s = FIRST_PAUSE_S if was_served else min(2 * pause_s, LAST_PAUSE_S)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, pause_s)

    def _serve(self, url: str) -> bool:
        """Talk with the controller at a URL until the connection ends; return whether it has said what holds."""
        with connect(
            url,
            ssl=self._tls if url.startswith("wss:") else None,
            additional_headers=self._headers,
            open_timeout=CONNECT_S,
            close_timeout=1.0,
            ping_interval=PING_EVERY_S,
            ping_timeout=PING_ANSWER_S,
            compression=None,
            proxy=None,
            max_size=MAX_MESSAGE_BYTES,
        ) as socket:
            with self._changed:
                self._socket = socket
            protocol = parse_header(socket.response.headers.get(HEADER) if socket.response else None)
            check_version(protocol.version, "controller", "engine")
            if protocol.version < PROTOCOL_VERSION and self._said.take("older", protocol.version):
                what = "the controller speaks version %d, and this engine %d: what is newer is not used"
                log.info(what, protocol.version, PROTOCOL_VERSION)
            self._takes = None
            ended = threading.Event()
            sender = threading.Thread(target=self._send_all, args=(socket, ended, protocol), name="beamer-events", daemon=True)
            served = False
            try:
                socket.send(encode_message(self._hello, protocol.version))
                for text in socket:
                    message = self._decode(text, protocol)
                    if message is None:
                        continue
                    if isinstance(message, EngineWelcome):
                        self._takes = message.limits
                        continue
                    if isinstance(message, EngineRefused):
                        self._refuse(message.reason)
                        break
                    self._take(message, is_first=not served)
                    if not served:
                        sender.start()
                    served = True
            except ConnectionClosed as error:
                if error.rcvd is None or error.rcvd.code != CloseCode.POLICY_VIOLATION:
                    raise
                self._refuse(error.rcvd.reason)
            finally:
                ended.set()
                with self._changed:
                    self._socket = None
                    self._assignment = self._assignment and self._assignment.model_copy(update={"left": False})
                    self._changed.notify_all()
                if served:
                    sender.join()
            return served

    def _decode(self, text: str | bytes, protocol: PeerProtocol) -> ToEngine | None:
        """Return a controller's message, None for one of a kind that only a newer controller knows."""
        decoded = decode_message(to_engine, text, protocol.version)
        if decoded.unused and self._said.take("newer", decoded.unused):
            log.warning("the controller speaks version %d: %s is not used", protocol.version, ", ".join(decoded.unused))
        return decoded.message

    def _take(self, assignment: SearchAssignment, is_first: bool) -> None:
        with self._changed:
            if is_first:
                self._uses = None
                self._connection += 1
                self._taken = self._taken if assignment.known else 0
                self._sent = self._taken
            self._taken = max(self._taken, assignment.taken)
            self._assignment = assignment
            self._news += 1
            self._changed.notify_all()

    def _refuse(self, reason: str) -> None:
        with self._changed:
            self._refusal = reason
            self._news += 1
            self._changed.notify_all()

    def _next_events(self) -> SearchEvents | None:
        """Return the next events that the controller takes in one message, None where the next one alone is too much.

        A report that is too much is left out: the message that says so has no events, and the next one's number.
        """
        most = self._takes.events if self._takes else MAX_EVENTS
        waiting = self._events[self._sent : self._sent + min(most, MAX_EVENTS)]
        message = SearchEvents(first=self._sent + 1, events=tuple(waiting))
        while self._takes and (size := len(message.model_dump_json().encode())) > self._takes.message_bytes:
            if len(message.events) == 1:
                kind = message.events[0][0]
                too_much = f"{kind} takes {size} bytes, and the controller takes at most {self._takes.message_bytes} of them"
                if kind not in _REPORTS:
                    self._refuse(too_much)
                    return None
                self._sent += 1
                if self._said.take("left out", kind):
                    log.warning("a report is left out, and so is each further one that is as long: %s", too_much)
                return SearchEvents(first=self._sent + 1, events=())
            message = message.model_copy(update={"events": message.events[: len(message.events) // 2]})
        return message

    def _send_all(self, socket: ClientConnection, ended: threading.Event, protocol: PeerProtocol) -> None:
        says_left, said = True, None
        while True:
            with self._changed:
                while not (
                    ended.is_set() or self._sent < len(self._events) or self._uses != said or (self._leaves and says_left)
                ):
                    self._changed.wait()
                if ended.is_set():
                    return
                happened = self._next_events() if self._sent < len(self._events) else None
                self._sent += len(happened.events) if happened else 0
                uses = self._uses
            try:
                if happened is not None:
                    known = tuple(encoded_for(event, protocol.version) for event in happened.events)
                    happened = happened.model_copy(update={"events": known})
                    socket.send(encode_message(happened, protocol.version))
                elif self._refusal:
                    socket.close()
                    return
                elif uses is not None and uses != said:
                    socket.send(encode_message(uses, protocol.version))
                    said = uses
                else:
                    socket.send(encode_message(EngineLeft(), protocol.version))
                    says_left = False
            except (OSError, WebSocketException):
                # The connection ends, and everything that is not durable is sent on the next one.
                return


def hosts_of(urls: str, study: str, environment: Mapping[str, str], timeout_s: float) -> dict[str, str]:
    """Return the addresses of the hosts of a controller's network, by name. urls, study, environment: as of `EngineLink`.

    Raises `InputError` for a controller that refuses to tell, and `PlatformError` where none answers in time.
    """
    access = controller_access(urls, environment)
    transports = [Transport(url, CONNECT_S, access.headers, access.ca) for url in access.urls]
    until, reason = time.monotonic() + timeout_s, ""
    try:
        while True:
            for url, transport in zip(access.urls, transports, strict=True):
                try:
                    answer = transport.request("GET", f"/v1/studies/{quote(study, safe='')}/hosts")
                    if answer.is_success:
                        return _Hosts.model_validate_json(answer.content).hosts
                    reason = f"{url}: {answer.status_code} {answer.text[:MAX_SHOWN]}"
                    if answer.status_code != NOT_LEADING:
                        raise InputError("controller", url, f"one that says which hosts its network has: {reason}")
                except (ConnectionError, ValidationError) as error:
                    reason = f"{url}: {error}"
            if time.monotonic() > until:
                raise PlatformError(f"no controller answers ({reason})", "start it, and then the search again")
            time.sleep(FIRST_PAUSE_S)
    finally:
        for transport in transports:
            transport.close()


def _engine_url(url: str, study: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise InputError("controller", url, f"a controller's URL such as http://127.0.0.1:{HTTP_PORT}")
    return urlunsplit(
        (SCHEMES[parts.scheme], parts.netloc, f"{parts.path.rstrip('/')}/v1/studies/{quote(study, safe='')}/engine", "", "")
    )
