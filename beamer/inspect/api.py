"""Reads a controller's HTTP API for the commands, and says in words why it cannot.

The transport and the credentials are the client's, so that whatever reaches a controller from a trainer reaches it from here.
Where several controllers are named, the one that leads is asked.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from beamer.client.controllers import NOT_LEADING, Controllers
from beamer.client.credentials import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, controller_access
from beamer.client.transport import Answer, Transport
from beamer.client.urls import URL, URL_VARIABLE
from beamer.errors import BeamerError, ConflictError, InputError, NoControllerError, NotFoundError, PlatformError

REQUEST_S = 30.0  # The answer about ten thousand trials takes some seconds.
MAX_ANSWER_BYTES = 1 << 28  # A hundred thousand trials with several attempts each, of which no other limit is known.
HEALTH = "/v1/health"
LEADS, FOLLOWS, SILENT = "leads", "follows", "does not answer"
_HEALTH_KEYS = {"status", "journal", "switches", "agents"}  # Of every version.
_PROXY_ERRORS = (502, 504)
_REFUSED = (401, 403)
_KINDS: Mapping[int, type[InputError]] = {404: NotFoundError, 409: ConflictError, 422: InputError}


@dataclass(frozen=True)
class ControllerState:
    """What one of the named controllers says when it is asked for its health.

    state: `LEADS`, `FOLLOWS` or `SILENT`. detail: why, where it does not lead. health: as the API has it, of one that leads.
    """

    url: str
    state: str
    detail: str = ""
    health: Mapping[str, Any] | None = None


class ControllerApi(AbstractContextManager["ControllerApi"]):
    """The API of the controller that leads among those at `url`, None: at `BEAMER_URL`, or the one on this machine.

    Every call raises `NoControllerError` where none answers that leads, `PlatformError` where the token does not allow it, and
    what the controller refuses as the `InputError` that it is. Leaving its block closes its connections. Raises `InputError`
    for an invalid URL, token or file.
    """

    def __init__(self, url: str | None = None, timeout_s: float = REQUEST_S) -> None:
        access = controller_access(url or os.environ.get(URL_VARIABLE) or URL, os.environ)
        self.urls = access.urls
        self._connect: Callable[[str], Transport] = lambda one: Transport(
            one, timeout_s, access.headers, access.ca, max_answer_bytes=MAX_ANSWER_BYTES
        )
        self._is_ours = False
        self._controllers = Controllers(self.urls, lambda one, _known: self._connect(one))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._controllers.close()

    @property
    def named(self) -> str:
        """The controllers as the user named them."""
        return ", ".join(self.urls)

    def get(self, path: str) -> Any:
        """Return what a path answers."""
        return self._ask("GET", path, None)

    def put(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer to a PUT."""
        return self._ask("PUT", path, None if body is None else json.dumps(body).encode())

    def allowed(self, path: str) -> Any:
        """Return what a path answers, None where the token does not allow to read it."""
        answer = self._answer("GET", path, None)
        return None if answer.status_code in _REFUSED else self._content(answer)

    def states(self) -> Iterator[ControllerState]:
        """Yield what each of the named controllers says, in that order; none raises."""
        for url in self.urls:
            transport = self._connect(url)
            try:
                answer = transport.request("GET", HEALTH)
                if answer.status_code == NOT_LEADING:
                    yield ControllerState(url, FOLLOWS, _refusal(answer)["message"])
                else:
                    health = self._content(answer)
                    self._check_health(health)
                    yield ControllerState(url, LEADS, health=health)
            except (ConnectionError, BeamerError) as error:
                yield ControllerState(url, SILENT, str(error))
            finally:
                transport.close()

    def _ask(self, method: str, path: str, content: bytes | None) -> Any:
        if not self._is_ours:  # A service that answers whatever it is asked is not to be taken for a controller.
            self._check_health(self._content(self._answer("GET", HEALTH, None)))
            self._is_ours = True
        return self._content(self._answer(method, path, content))

    def _check_health(self, health: Any) -> None:
        if not isinstance(health, dict) or not health.keys() >= _HEALTH_KEYS:
            raise self._not_ours(f"{HEALTH} does not answer as a controller's")

    def _answer(self, method: str, path: str, content: bytes | None) -> Answer:
        """Return the answer of the first controller that leads."""
        reasons = []
        for _ in self.urls:
            try:
                answer = self._controllers.request(method, path, content)
            except ConnectionError as error:
                reasons.append(str(error))
                continue
            if answer.status_code == NOT_LEADING or answer.status_code in _PROXY_ERRORS:
                reasons.append(_refusal(answer)["message"])
                continue
            return answer
        why = "; ".join(dict.fromkeys(reasons))
        raise NoControllerError(
            f"no controller that leads answers at {self.named} ({why})",
            f"start one with beamer-controller, or name another with --url or {URL_VARIABLE}",
        )

    def _content(self, answer: Answer) -> Any:
        """Return what an answer says, or raise what it refuses."""
        if answer.is_success:
            try:
                return answer.json()
            except ValueError as error:
                raise self._not_ours("its answer is no JSON") from error
        refusal = _refusal(answer)
        if answer.status_code in _REFUSED:
            raise PlatformError(
                f"the controller at {self.named} does not allow it: {refusal['message']}",
                f"give a token that does in {TOKEN_VARIABLE}, or its file in {TOKEN_FILE_VARIABLE} (`beamer token` prints one)",
            )
        kind = _KINDS.get(answer.status_code)
        if kind is not None and refusal.get("field") is not None:
            raise kind(refusal["field"], refusal["value"], refusal["expected"])
        raise self._not_ours(f"HTTP {answer.status_code}: {refusal['message']}")

    def _not_ours(self, what: str) -> PlatformError:
        return PlatformError(f"what answers at {self.named} is no controller ({what})", "check the URL")


def _refusal(answer: Answer) -> dict[str, Any]:
    """Return what a refusal says; of one that is no controller's, the start of its text."""
    try:
        error = answer.json()["error"]
        return {"field": error["field"], "value": error["value"], "expected": error["expected"], "message": error["message"]}
    except (ValueError, LookupError, TypeError):
        text = " ".join(answer.text.split())[:100]
        return {"field": None, "value": None, "expected": "", "message": text or f"HTTP {answer.status_code}"}
