"""Sends a trainer's requests in the background, in order, for as long as it takes; the trainer itself never waits.

A request waits in memory until the controller has answered it. A job's progress that still waits is replaced by newer progress,
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
_UNKNOWN = 404
_UNAVAILABLE = {429, 502, 503, 504}

_log = logging.getLogger("beamer.client")
_live: "weakref.WeakSet[Outbox]" = weakref.WeakSet()


@dataclass
class PutRequest:
    """A PUT to a study, stage or job.

    names: of the study, its stage and its job, as far as they go. suffix: of the path after them. body: sent as JSON unless
    None. progress: newer progress of the same job replaces it. tries: how often the answer was that the names are unknown.
    """

    names: tuple[str, ...]
    suffix: str = ""
    body: dict[str, Any] | None = None
    progress: bool = False
    tries: int = 0
    key: object = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.names if self.progress else object()

    def content(self) -> bytes | None:
        """Return the body as JSON. Raises `TypeError` or `ValueError` if there is no such form."""
        return None if self.body is None else json.dumps(self.body, default=_plain, allow_nan=False).encode()


def path(names: tuple[str, ...]) -> str:
    """Return the API's path of a study, stage or job. Raises `InputError` for a name that none may have."""
    kinds = (("study", "studies"), ("stage", "stages"), ("job", "jobs"))
    return "/v1" + "".join(f"/{folder}/{check_name(name, kind)}" for name, (kind, folder) in zip(names, kinds, strict=False))


class Outbox:
    """Send requests to the controller at `url`; a request that takes longer than `timeout_s` seconds is tried again.

    One warning is logged when the controller is away, one line when it is back, and one warning for what it refuses. A forked
    child starts with an empty outbox of its own. Raises `InputError` for a URL or time-out that cannot be.
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
        self._closed = False
        self._thread: threading.Thread | None = None
        self._away = False
        self._pause_s = FIRST_PAUSE_S
        self._refused: set[tuple[tuple[str, ...], int]] = set()

    def put(self, request: PutRequest) -> None:
        """Take a request; return at once and never raise for its outcome."""
        with self._changed:
            if self._closed:
                self._refuse(request, 0, "the client is closed")
                return
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

    def poll(self, names: tuple[str, ...], until: Callable[[Any], bool], timeout_s: float) -> bool:
        """Read a stage until `until` holds of the answer, at most `timeout_s` seconds; return whether it does."""
        deadline = time.monotonic() + timeout_s
        try:
            url = path(names)
        except InputError as error:
            self._refuse(PutRequest(names), 0, str(error))
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
            with self._changed:
                self._sending = False
                if pause_s is not None:
                    self._put_back(request)
                    self._changed.wait_for(lambda: self._closed, pause_s)
                self._changed.notify_all()
        self._http.close()

    def _put_back(self, request: PutRequest) -> None:
        newer = self._waiting.get(request.key)
        if newer is not None:
            newer.tries = request.tries
        elif not self._closed:
            self._waiting[request.key] = request
            self._waiting.move_to_end(request.key, last=False)

    def _send(self, request: PutRequest) -> float | None:
        """Return None when done with the request, or else the seconds to wait before trying again."""
        try:
            answer = self._http.request("PUT", path(request.names) + request.suffix, request.content())
        except ConnectionError as error:
            return self._report_away(str(error))
        except (ValueError, TypeError) as error:
            self._refuse(request, 0, str(error))
            return None
        if answer.status_code in _UNAVAILABLE:
            return self._report_away(f"HTTP {answer.status_code}")
        if self._away:
            self._away = False
            _log.info("Beamer at %s answers again", self._url)
        self._pause_s = FIRST_PAUSE_S
        if answer.is_success:
            return None
        unknown = answer.status_code == _UNKNOWN and (request.names, answer.status_code) not in self._refused
        if unknown and request.tries < UNKNOWN_TRIES:
            request.tries += 1
            return FIRST_PAUSE_S * float(2 ** (request.tries - 1))
        self._refuse(request, answer.status_code, _reason(answer))
        return None

    def _report_away(self, reason: str) -> float:
        if not self._away:
            self._away = True
            _log.warning("Beamer at %s does not answer (%s); training continues without it", self._url, reason)
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def _refuse(self, request: PutRequest, status: int, reason: str) -> None:
        """Warn once of a study, stage or job that is refused in this way: the repeats of a loop would hide the first."""
        kind = (request.names, status)
        level = logging.DEBUG if kind in self._refused else logging.WARNING
        self._refused.add(kind)
        _log.log(level, "Beamer refused %s%s: %s", "/".join(map(str, request.names)), request.suffix, reason)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "item"):  # a number of NumPy or PyTorch
        return value.item()
    raise TypeError(f"{value!r} has no JSON form")


def _reason(answer: "Response") -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return f"HTTP {answer.status_code}"


def _close_all() -> None:
    for outbox in list(_live):
        outbox.close_at_exit()


def _reset_after_fork() -> None:
    for outbox in list(_live):
        outbox.reset_after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_reset_after_fork)
