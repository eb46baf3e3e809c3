"""Sends a trainer's requests in the background, in order, for as long as it takes; the trainer itself never waits.

A request waits in memory until the controller has answered it. A trial's progress that still waits gives way to newer progress,
so that what waits is bounded by what was registered. Every request is idempotent, so that sending again is safe.
"""

import atexit
import json
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any

from beamer.errors import InputError
from beamer.studies.model import check_name

if TYPE_CHECKING:
    from httpx import Response

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
UNKNOWN_TRIES = 6  # about 6 s: another process may be about to register what this one names
EXIT_PATIENCE_S = 1.0
MOST_REASONS = 5  # that are logged of one request's refusals
MOST_REFUSED = 1000  # requests whose refusals are logged
_UNKNOWN = 404
_CONFLICT = 409
_UNAVAILABLE = {429, 502, 503, 504}

_log = logging.getLogger("beamer.client")
_live: "weakref.WeakSet[Outbox]" = weakref.WeakSet()


@dataclass(frozen=True)
class Address:
    """What a request is about: a run of a study (None: the present one), or a stage or a trial of it."""

    study: str
    run: str | None = None
    stage: str | None = None
    trial: str | None = None

    def path(self, *parts: str) -> str:
        """Return the API's path of it, and of `parts` below. Raises `InputError` for a name that none may have."""
        named = [("study", "studies", self.study), ("stage", "stages", self.stage), ("trial", "trials", self.trial)]
        path = "/v1" + "".join(f"/{folder}/{check_name(name, kind)}" for kind, folder, name in named if name is not None)
        path += "".join(f"/{check_name(part, 'name')}" for part in parts)
        return path if self.run is None else f"{path}?run={check_name(self.run, 'run')}"

    def __str__(self) -> str:
        return "/".join(str(name) for name in (self.study, self.stage, self.trial) if name is not None)


Kind = tuple[str, tuple[str, ...]]
"""What refusals are told apart by, besides their reasons: whom requests are about, and what they do."""


@dataclass
class PutRequest:
    """A PUT to a study, stage or trial.

    parts: of the path below it: what is done, in every other place a name. body: sent as JSON unless None. progress: newer
    progress of the same trial replaces it. then: called when it is done with, answered or not. tries: how often the answer was
    that the names are unknown.
    """

    address: Address
    parts: tuple[str, ...] = ()
    body: dict[str, Any] | None = None
    progress: bool = False
    then: Callable[[], None] | None = None
    tries: int = 0
    key: object = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.address if self.progress else object()

    @property
    def kind(self) -> Kind:
        """What it does to whom, whichever the worker or attempt."""
        return str(self.address), self.parts[::2]

    def follow(self, older: "PutRequest") -> None:
        """Take the place of older progress that was not sent: its loss is the last one known unless this has one."""
        if self.body is not None and older.body is not None and "loss" in older.body:
            self.body.setdefault("loss", older.body["loss"])

    def content(self) -> bytes | None:
        """Return the body as JSON. Raises `TypeError` or `ValueError` if there is no such form."""
        return None if self.body is None else json.dumps(self.body, default=_plain, allow_nan=False).encode()

    def __str__(self) -> str:
        return "/".join((str(self.address), *self.parts))


class Outbox:
    """Send requests to the controller at `url`; a request that takes longer than `timeout_s` seconds is tried again.

    One warning is logged when the controller is away, one line when it is back, and one for each way in which it refuses
    something. A forked child starts with an empty outbox of its own. Raises `InputError` for a URL or time-out that cannot be.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        if not timeout_s > 0:
            raise InputError("timeout_s", timeout_s, "seconds above 0")
        self._url = url
        self._timeout_s = timeout_s
        self._reset()
        _live.add(self)

    def _reset(self) -> None:
        # Imported here, so that importing Beamer costs a trainer little; and in the caller's thread: a fork while another
        # thread imports what it needs would leave import locks held.
        from beamer.client.transport import Transport

        self._http = Transport(self._url, self._timeout_s)
        self._changed = threading.Condition()
        self._waiting: OrderedDict[object, PutRequest] = OrderedDict()
        self._sending = False
        self._closing = self._closed = False
        self._thread: threading.Thread | None = None
        self._away = False
        self._pause_s = FIRST_PAUSE_S
        self._unknown: set[Address] = set()
        self._refused: dict[Kind, set[str]] = {}
        self._warned: set[str] = set()

    def put(self, request: PutRequest) -> None:
        """Take a request; return at once and never raise for its outcome."""
        with self._changed:
            if self._closed:
                self._refuse(request, "the client is closed")
                if request.then is not None:
                    request.then()
                return
            older = self._waiting.get(request.key)
            if older is not None:
                request.follow(older)
            self._waiting[request.key] = request
            self._ensure_thread()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything was answered, at most `timeout_s` seconds; return whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._sending, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Wait like `flush`, then drop what is left and log how much that is."""
        with self._changed:
            if self._closed:
                return
            self._closing = True  # there is no pause any more before what is unknown is tried again: what follows would be lost
            self._changed.notify_all()
            if not self.flush(timeout_s):
                left = len(self._waiting) + self._sending
                _log.warning("Beamer at %s did not receive everything: %d requests are dropped", self._url, left)
            self._waiting.clear()
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None:
            self._http.close()
        else:
            thread.join(timeout_s)

    def close_at_exit(self) -> None:
        """Close without waiting for a controller that is away."""
        self.close(0.0 if self._away else EXIT_PATIENCE_S)

    def warn_once(self, message: str, *values: object) -> None:
        """Log a warning unless it was logged before."""
        if message not in self._warned:
            self._warned.add(message)
            _log.warning(message, *values)

    def poll(self, address: Address, until: Callable[[Any], bool], timeout_s: float) -> bool:
        """Read a stage until `until` holds of the answer, at most `timeout_s` seconds; return whether it does."""
        deadline = time.monotonic() + timeout_s
        try:
            url = address.path()
        except InputError as error:
            self._refuse(PutRequest(address), str(error))
            return False
        while not self._closed:
            try:
                answer = self._http.request("GET", url)
                if answer.is_success and until(answer.json()):
                    return True
            except (ConnectionError, ValueError, LookupError, TypeError) as error:
                _log.debug("reading %s: %s", url, error)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(FIRST_PAUSE_S, left_s))
        return False

    def reset_after_fork(self) -> None:
        """Forget the parent's requests, which the parent sends, and its thread and connection, which this process lacks."""
        self._reset()

    def _ensure_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, name="beamer-client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            self._report_away(str(error))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    break
                _, request = self._waiting.popitem(last=False)
                self._sending = True
            pause_s = self._send(request)
            if pause_s is None and request.then is not None:
                request.then()
            with self._changed:
                self._sending = False
                if pause_s is not None:
                    self._put_back(request)
                    self._changed.wait_for(lambda: self._closed or (self._closing and not self._away), pause_s)
                self._changed.notify_all()
        self._http.close()

    def _put_back(self, request: PutRequest) -> None:
        newer = self._waiting.get(request.key)
        if newer is not None:
            newer.tries = request.tries
            newer.follow(request)
        elif not self._closed:
            self._waiting[request.key] = request
            self._waiting.move_to_end(request.key, last=False)

    def _send(self, request: PutRequest) -> float | None:
        """Return None when done with the request, or else the seconds to wait before trying again."""
        try:
            answer = self._http.request("PUT", request.address.path(*request.parts), request.content())
        except ConnectionError as error:
            return self._report_away(str(error))
        except (ValueError, TypeError) as error:
            self._refuse(request, str(error))
            return None
        if answer.status_code in _UNAVAILABLE:
            return self._report_away(f"HTTP {answer.status_code}")
        if self._away:
            self._away = False
            _log.info("Beamer at %s answers again", self._url)
        self._pause_s = FIRST_PAUSE_S
        if answer.is_success:
            return None
        reason, field_name = _reason(answer)
        kind = request.kind
        if answer.status_code == _UNKNOWN:
            if request.address not in self._unknown and request.tries < UNKNOWN_TRIES:
                request.tries += 1
                return FIRST_PAUSE_S * float(2 ** (request.tries - 1))
            self._unknown.add(request.address)
            kind = str(request.address), ()
        elif answer.status_code == _CONFLICT and field_name == "run":  # so is everything else that is said of it
            kind = request.address.study, ()
        self._refuse(request, reason, kind)
        return None

    def _report_away(self, reason: str) -> float:
        if not self._away:
            self._away = True
            _log.warning("Beamer at %s does not answer (%s); training continues without it", self._url, reason)
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def _refuse(self, request: PutRequest, reason: str, kind: Kind | None = None) -> None:
        """Warn once of every way in which a request is refused, within bounds: the repeats of a loop would hide the first."""
        kind = kind or request.kind
        reasons = self._refused.setdefault(kind, set()) if len(self._refused) < MOST_REFUSED else self._refused.get(kind)
        is_new = reasons is not None and reason not in reasons and len(reasons) < MOST_REASONS
        if reasons is not None and is_new:
            reasons.add(reason)
        _log.log(logging.WARNING if is_new else logging.DEBUG, "Beamer refused %s: %s", request, reason)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "item"):  # a number of NumPy or PyTorch
        return value.item()
    raise TypeError(f"{value!r} has no JSON form")


def _reason(answer: "Response") -> tuple[str, str | None]:
    """Return why a request was refused, and the field that is to blame."""
    try:
        error = answer.json()["error"]
        return str(error["message"]), error.get("field")
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"HTTP {answer.status_code}", None


def _close_all() -> None:
    for outbox in list(_live):
        outbox.close_at_exit()


def _reset_after_fork() -> None:
    for outbox in list(_live):
        outbox.reset_after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_reset_after_fork)
