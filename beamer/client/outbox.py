"""Sends a trainer's requests in the background, in order, for as long as it takes; the trainer itself never waits.

A request waits in memory until the controller has answered it; `pending` says in which order, and what is dropped where too
much waits. A trial's progress that still waits gives way to newer progress. Every request is idempotent, so that sending again
is safe.

What the controller answers decides what becomes of a request:

    2xx                                it is done with
    none, garbage, 408, 425, 429, 5xx  it is tried again, for as long as there is room for it
    404                                it is tried again for a while: another process may be about to register what it names
    else                               it is refused

One that is tried again delays only what builds on it. Failures at several in a row are the controller's: then everything
pauses. One that the controller always fails at, while it carries out others, is set aside: tried less and less often, and the
first to be dropped for want of room.
"""

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from beamer.client.forking import RUNNING
from beamer.client.pending import Entry, PendingRequests
from beamer.client.refusals import Refusals, clip
from beamer.client.request import Address, PutRequest, Scope
from beamer.errors import InputError
from beamer.log_limit import DIFFERENCES_AGAIN_S, MAX_DIFFERENCES, LogLimit, VariedLogLimit
from beamer.protocol_version import PROTOCOL_VERSION, PeerProtocol, check_version

if TYPE_CHECKING:
    from beamer.client.controllers import Controllers
    from beamer.client.transport import Answer

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 2.0
UNKNOWN_TRIES = 6  # The tries last about 6 s, as another process may be about to register the names in a request.
OWN_FAILURES = 20  # A request at which the controller fails for about 35 s is set aside.
ASIDE_PAUSE_S = 60.0  # A pause between tries of a request that was set aside is at most this long.
_AFTER_OTHERS_S = 0.01  # After a pause, a failed request waits this much longer, so that others go first.
EXIT_PATIENCE_S = 1.0  # A process that ends waits so long for an answer,
EXIT_S = 5.0  # and so long in all where requests are answered, but many wait.
IDLE_S = 10.0  # The idle thread ends after this time, so that a client without holders is freed.
MAX_WAITING_REQUESTS = 10_000  # A search of 1000 trials makes so many requests in its whole length.
MAX_WAITING_BYTES = 16 << 20  # Bytes of contents: 1600 per request, as for an attempt of 20 workers.
MAX_LOGGED_OUTAGES = 20  # So many outages are logged in an hour.
MAX_UNKNOWN_NAMES = 1000  # Requests that use one of these names, which were given up, do not wait for it again.
_HANDLER_PAUSE_S = 0.05  # The thread checks at this interval whether a signal's handler has ended.
_SHORT_ANSWER = len('{"changed":false}')  # A longer one says more than that.
_INVALID = 422
_BODY_LIMIT = "body_bytes"  # The controller announces its limit by this name.
_OTHER_VERSION = "Beamer at %s speaks version %d of the protocol, and this client %d: %s"
_UNKNOWN = 404
_CONFLICT = 409
_OVERLOADED = {408, 425, 429, 502, 503, 504}  # The controller may give these answers to any request.
_NOT_OURS = {401, 403, *range(300, 400)}  # Any request may get these answers; they are logged once.

_TOO_MANY = (
    "more than Beamer's client keeps, %d requests or %d bytes, waits for the controller at %s: the first of the trials that "
    "have ended are dropped, and else what comes last"
)

_log = logging.getLogger("beamer.client")
_live: "weakref.WeakSet[Outbox]" = weakref.WeakSet()


class Outbox:
    """Send requests to the controller at `url` through what `connect` makes, None: drop them.

    One warning is logged when the controller is away, one line when it is back, and one for each way in which it refuses
    something. A forked child starts with an empty outbox of its own.

    connect: makes a transport; is given the one before a fork, if any. Raises what `connect` raises.
    """

    def __init__(self, url: str, connect: "Callable[[Controllers | None], Controllers] | None") -> None:
        self.is_unset = connect is None
        self._url = url
        self._connect = connect
        # The import happens here, in the caller's thread: a fork during another thread's import would leave import locks held.
        self._http: Controllers | None = connect(None) if connect is not None else None
        self._before_fork: Controllers | None = None
        self._reset()
        _live.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._arrived: deque[PutRequest] = deque()
        self._is_taking = False
        self._waiting = PendingRequests(MAX_WAITING_REQUESTS, MAX_WAITING_BYTES)
        self._sent: Entry | None = None  # the request that was sent and not yet answered
        self._dropped = 0
        self._closing = self._closed = False
        self._thread: threading.Thread | None = None
        self._away = self._away_is_logged = False
        self._log_limit = LogLimit(MAX_LOGGED_OUTAGES, 3600.0)
        self._failures = 0  # failures since the last answer
        self._failed: tuple[object, ...] = ()  # the kind of request that failed last
        self._pause_s = FIRST_PAUSE_S
        self._resume_at = 0.0
        self._unknown: dict[Scope, None] = {}
        self._refusals, self._remarks = Refusals("Beamer refused %s: %s"), Refusals("Beamer on %s: %s")
        self._warned: set[str] = set()
        # Each other version that a controller speaks is logged once.
        self._versions = VariedLogLimit(MAX_DIFFERENCES, DIFFERENCES_AGAIN_S)

    def put(self, request: PutRequest) -> None:
        """Take a request; return at once and never raise for its outcome."""
        if self.is_unset:
            _finish(request)
            return
        try:
            request.encode()
        except Exception as error:  # noqa: BLE001  The request's values are the trainer's.
            self._refuse(request, str(error) or repr(error))
            _finish(request)
            return
        self._arrived.append(request)
        changed = self._changed  # A fork in a signal's handler replaces the condition.
        with changed:
            # A signal's handler may put a request while its thread is in this block; the block takes it in afterwards.
            if self._is_taking:
                return
            self._is_taking = True
            try:
                done_with = self._take_arrived()
                if self._waiting:
                    self._ensure_thread()
                changed.notify_all()
            finally:
                self._is_taking = False
        for one in done_with:
            _finish(one)

    def _take_arrived(self) -> list[PutRequest]:
        """Let what has arrived wait; return what does not."""
        done_with: list[PutRequest] = []
        while self._arrived:
            request = self._arrived.popleft()
            if self._closed:
                self._refuse(request, "the client is closed")
                done_with.append(request)
                continue
            dropped = self._waiting.put(request)
            if dropped:
                self._dropped += len(dropped)
                done_with += dropped
                self.warn_once(_TOO_MANY, MAX_WAITING_REQUESTS, MAX_WAITING_BYTES, self._url)
        return done_with

    @property
    def is_closed(self) -> bool:
        """Whether it takes no requests."""
        return self._closed or self.is_unset

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything was answered, at most `timeout_s` seconds; return whether it was."""
        with self._changed:
            if self.is_unset:
                return False
            return self._changed.wait_for(lambda: not self._waiting and not self._arrived, _bounded(timeout_s))

    def close(self, timeout_s: float, most_s: float | None = None) -> None:
        """Wait like `flush`, then drop what is left and log how much that is, and was before.

        most_s: for how long in all, as long as some requests are answered in each `timeout_s`; None: no longer than that.
        """
        with self._changed:
            if self._closed:
                return
            # Unknown names are tried again without a pause from now on, as requests that follow would be lost.
            self._closing = True
            self._changed.notify_all()
            until, before = time.monotonic() + (most_s or 0.0), MAX_WAITING_REQUESTS + 1
            while not self.flush(timeout_s) and len(self._waiting) < before and time.monotonic() < until:
                before = len(self._waiting)
            left = self._waiting.clear()
            lost = sum(not request.renews for request in left) + self._dropped
            if lost:
                _log.warning("Beamer at %s did not receive everything: %d requests are dropped", self._url, lost)
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        for request in left:
            _finish(request)
        if thread is not None:
            thread.join(_bounded(timeout_s))
        elif self._http is not None:
            self._http.close()

    def close_at_exit(self, patience_s: float = EXIT_PATIENCE_S) -> None:
        """Close without waiting for a controller that is away; one that answers is told all, within `EXIT_S` seconds.

        patience_s: for each answer.
        """
        if self._away:
            self.close(0.0)
        else:
            self.close(patience_s, EXIT_S)

    def warn_once(self, message: str, *values: object, exc_info: bool = False) -> None:
        """Log a warning unless it was logged before. message: one of this package's, which are few."""
        if message not in self._warned:
            self._warned.add(message)
            _log.warning(message, *values, exc_info=exc_info)

    @property
    def named(self) -> str:
        """The controllers that requests go to, in words."""
        return "at no controller" if self.is_unset else f"at {self._url}"

    def poll(self, address: Address, until: Callable[[Any], bool], timeout_s: float) -> bool:
        """Read what an address names until `until` holds of the answer, at most `timeout_s` seconds; return whether it does."""
        deadline = time.monotonic() + _bounded(timeout_s)
        try:
            url = address.path()
        except InputError as error:
            self._refuse(PutRequest(address), str(error))
            return False
        while not self.is_closed:
            try:
                answer = self._transport().request("GET", url)
                if answer.is_success and until(answer.json()):
                    return True
                if answer.status_code in _NOT_OURS:
                    self._refuse(PutRequest(address), _reason(answer)[0], (answer.status_code,))
            except (ConnectionError, ValueError, LookupError, TypeError, RecursionError) as error:
                _log.debug("reading %s: %s", url, error)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(FIRST_PAUSE_S, left_s))
        return False

    def reset_after_fork(self) -> None:
        """Forget the parent's requests, which the parent sends, and its thread and connection, which this process lacks."""
        if self._http is not None:
            self._http.abandon()
            self._before_fork, self._http = self._http, None
        self._reset()

    def _transport(self) -> "Controllers":
        if self._http is None:
            assert self._connect is not None  # Nothing is sent without it.
            self._http = self._connect(self._before_fork)
            self._before_fork = None
        return self._http

    def _ensure_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        if self._sent is not None:  # The thread that sent the request has ended.
            self._waiting.delay(self._sent, 0.0)
            self._sent = None
        try:
            self._thread = threading.Thread(target=self._run, args=(self._transport(),), name="beamer-client", daemon=True)
            self._thread.start()
        except (RuntimeError, InputError) as error:  # No thread can be started, or a child's certificates have gone.
            self._thread = None
            self._report_away(str(error))

    def _run(self, http: "Controllers") -> None:
        with RUNNING.inside():
            while (entry := self._next(http)) is not None:
                delay_s = self._try(http, entry)
                if delay_s is None:
                    _finish(entry.request)
                with self._changed:
                    self._sent = None
                    if delay_s is None:
                        self._waiting.done(entry)
                    else:
                        self._waiting.delay(entry, time.monotonic() + delay_s)
                    self._changed.notify_all()

    def _try(self, http: "Controllers", entry: Entry) -> float | None:
        """Send as `_send` does; a defect takes this request alone."""
        try:
            return self._send(http, entry)
        except Exception:  # noqa: BLE001  The thread must go on whatever the defect is.
            with self._changed:
                self._dropped += 1
            with suppress(Exception):  # A log handler may raise, too.
                self.warn_once("a defect of Beamer's client: %s is dropped", entry.request, exc_info=True)
            return None

    def _next(self, http: "Controllers") -> Entry | None:
        """Wait for the next request that may be sent; return None once the outbox is closed, or has been idle for long."""
        with self._changed:
            while not self._closed:
                if self._is_taking:  # The thread that takes requests may wait for this one in a signal's handler.
                    self._wait(_HANDLER_PAUSE_S)
                    continue
                now = time.monotonic()
                at_once = self._closing and not self._away
                resume_at = 0.0 if at_once else self._resume_at
                self._sent = self._waiting.take(now, at_once) if resume_at <= now else None
                if self._sent is not None:
                    return self._sent
                until = resume_at if resume_at > now else self._waiting.due()
                if self._waiting or self._arrived:
                    self._wait(None if until is None else max(until - now, 0.0))
                elif not self._wait(IDLE_S) and not self._waiting and not self._arrived:
                    break
            http.close()
            self._thread = None
        return None

    def _wait(self, timeout_s: float | None) -> bool:
        with RUNNING.outside():
            return self._changed.wait(timeout_s)

    def _send(self, http: "Controllers", entry: Entry) -> float | None:
        """Return None when done with the request, or else the seconds to wait before trying again."""
        known = http.protocol
        version = known.version if known else PROTOCOL_VERSION
        request = entry.request.for_version(version)
        if request is None or (request.unless is not None and request.unless()):
            return None
        content = request.content_for(version)
        if known and len(content or b"") > (most := known.limits.get(_BODY_LIMIT, MAX_WAITING_BYTES)):
            self._refuse(request, f"body: {len(content or b'')} bytes, and the controller takes at most {most}")
            return None
        try:
            answer = http.request("PUT", request.path, content)
            if answer.status_code in (_INVALID, _UNKNOWN) and answer.protocol.version != version:
                # The version that the controller speaks was not known before.
                other = entry.request.for_version(answer.protocol.version)
                if other is None:
                    self._report_back()
                    self._compare(answer.protocol)
                    return None
                request, before = other, request
                older = request.content_for(answer.protocol.version)
                if request is not before or older != content:
                    answer = http.request("PUT", request.path, older)
        except ConnectionError as error:
            return self._fail(entry, str(error), is_overload=False, is_answer=False)
        except ValueError as error:
            self._refuse(request, str(error))
            return None
        if answer.status_code in _OVERLOADED or answer.status_code >= 500:
            return self._fail(entry, f"HTTP {answer.status_code}", answer.status_code in _OVERLOADED, is_answer=True)
        self._report_back()
        self._compare(answer.protocol)
        if not answer.is_success:
            return self._judge(entry, answer)
        if len(answer.content) > _SHORT_ANSWER and (warning := _warning(answer)):
            self._remarks.log(str(request), warning, _kind(request))
        return None

    def _compare(self, protocol: PeerProtocol) -> None:
        """Say once that the controller speaks another version, and what comes of that."""
        if protocol.version == PROTOCOL_VERSION:
            return
        try:
            check_version(protocol.version, "controller", "client")
            level, what = logging.INFO, "what only one of them knows is not used"
        except InputError as error:
            level, what = logging.WARNING, str(error)
        if self._versions.take("version", protocol.version):
            _log.log(level, _OTHER_VERSION, self._url, protocol.version, PROTOCOL_VERSION, what)

    def _judge(self, entry: Entry, answer: "Answer") -> float | None:
        """Refuse a request as its answer says, or return the seconds after which it may be known what it names."""
        request = entry.request
        reason, field_name = _reason(answer)
        kind: tuple[object, ...] = _kind(request)
        if answer.status_code == _UNKNOWN:
            scope = request.address.scope
            if scope not in self._unknown and entry.tries < UNKNOWN_TRIES:
                entry.tries += 1
                return FIRST_PAUSE_S * float(2 ** (entry.tries - 1))
            self._unknown[scope] = None
            if len(self._unknown) > MAX_UNKNOWN_NAMES:
                del self._unknown[next(iter(self._unknown))]
            kind = scope
        elif answer.status_code in _NOT_OURS:
            kind = (answer.status_code,)
        elif answer.status_code == _CONFLICT and field_name == "run":
            # Every other request of this study is refused in the same way.
            kind = (request.address.study,)
        elif answer.status_code == _CONFLICT and field_name == "step":
            self._refusals.log(str(request), reason, kind, "step")  # Its numbers differ every time.
            return None
        self._refuse(request, reason, kind)
        return None

    def _fail(self, entry: Entry, reason: str, is_overload: bool, is_answer: bool) -> float:
        """Return the seconds after which to try again. is_answer: whether the controller has said so itself."""
        failed = _kind(entry.request)
        # Repeated failures of one request say nothing of the controller. While closing, all count, as none repeats often.
        self._failures += not (is_answer and failed == self._failed and not self._closing)
        self._failed = failed
        entry.failures += 1
        pause_s = min(FIRST_PAUSE_S * float(2 ** min(entry.failures - 1, 16)), MAX_PAUSE_S)
        if self._failures > 1 or is_overload:
            self._report_away(reason)
            return max(pause_s, self._resume_at - time.monotonic() + _AFTER_OTHERS_S)
        entry.own_failures += 1
        beyond = entry.own_failures - OWN_FAILURES
        if beyond < 0:
            return pause_s
        if beyond == 0:
            self._refuse(entry.request, f"{reason}, {OWN_FAILURES} times; it is tried again less often")
            with self._changed:
                self._waiting.set_aside(entry)
        return min(MAX_PAUSE_S * float(2 ** min(beyond, 16)), ASIDE_PAUSE_S)

    def _report_away(self, reason: str) -> None:
        with self._changed:  # The lock keeps this out of the middle of `close`, which itself logs the requests not received.
            is_new = not self._away and not self._closed
        if is_new:
            self._away, self._away_is_logged = True, self._log_limit.take("away")
            if self._away_is_logged:
                _log.warning("Beamer at %s does not answer (%s); training continues without it", self._url, clip(reason))
        self._resume_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)

    def _report_back(self) -> None:
        if self._away:
            self._away = False
            if self._away_is_logged:
                _log.info("Beamer at %s answers again", self._url)
        self._failures, self._failed = 0, ()
        self._pause_s = FIRST_PAUSE_S

    def _refuse(self, request: PutRequest, reason: str, kind: tuple[object, ...] | None = None) -> None:
        self._refusals.log(str(request), reason, kind or _kind(request))


def _bounded(timeout_s: float) -> float:
    """Return a time-out that threads can wait for: neither infinite nor below 0. What is no number does not wait."""
    try:
        return min(max(0.0, timeout_s), threading.TIMEOUT_MAX)
    except TypeError as error:
        _log.warning("timeout_s: got %s, expected seconds (%s): nothing is waited for", clip(repr(timeout_s)), error)
        return 0.0


def _kind(request: PutRequest) -> tuple[object, ...]:
    """Return what refusals are told apart by, besides their reasons: whom requests are about, and what they do.

    A process joins a study with its registration, and is refused with it.
    """
    about = replace(request.address, member=None)
    return (clip(str(about)), *map(clip, request.kind))


def _finish(request: PutRequest) -> None:
    """Call what is to be called when a request is done with."""
    if request.then is not None:
        try:
            request.then()
        except Exception:  # noqa: BLE001  A defect must not end the sender.
            _log.warning("after %s", request, exc_info=True)


def _reason(answer: "Answer") -> tuple[str, str | None]:
    """Return why a request was refused, and the field that is to blame."""
    try:
        error = answer.json()["error"]
        return str(error["message"]), error.get("field")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return f"HTTP {answer.status_code}", None


def _warning(answer: "Answer") -> str | None:
    """Return what a controller says of a request that it has carried out."""
    try:
        warning = answer.json().get("warning")
        return None if warning is None else str(warning)
    except (ValueError, TypeError, AttributeError):
        return None


def _close_all() -> None:
    for outbox in list(_live):
        outbox.close_at_exit()


def _reset_after_fork() -> None:
    for outbox in list(_live):
        outbox.reset_after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_reset_after_fork)
