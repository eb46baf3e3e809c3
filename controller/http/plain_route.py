"""Routes whose requests are read by pydantic alone, and which FastAPI documents.

FastAPI's own reading takes longer than what most requests ask for: with it a controller takes in a quarter fewer reports. What
a newer client says beyond this controller's version is left out of a body here, and named once.
"""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, get_type_hints

from fastapi.params import Depends
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from beamer.errors import InputError
from beamer.validation import input_error
from beamer.versioned_messages import unknown_names
from controller.http.errors import refused_input
from controller.http.versioned_requests import protocol_of
from controller.limited_log import LimitedLog

_JSON = re.compile(r"\s*application/(?:[^\s;]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)


class PlainRoute(APIRoute):
    """A route that asks its dependencies, each of which takes a connection alone, and calls its endpoint.

    An endpoint returns a response. It takes names of its path, texts of the query, what another dependency returns, and, as
    `body`, what JSON in the body says.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what serves a request."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        hints, parameters = get_type_hints(endpoint, include_extras=True), inspect.signature(endpoint).parameters
        if not inspect.iscoroutinefunction(endpoint) or not issubclass(hints.get("return", object), Response):
            raise TypeError(f"{self.path}: {endpoint.__name__} is to be `async` and to return a response")
        asked: dict[str, Any] = {
            name: one.default.dependency for name, one in parameters.items() if isinstance(one.default, Depends)
        }
        named = {name: TypeAdapter(hints[name]) for name in parameters if name != "body" and name not in asked}
        body = _Body(hints["body"]) if "body" in parameters else None
        checks = [depends.dependency for depends in self.dependencies if depends.dependency is not None]

        async def handle(request: Request) -> Response:
            for check in checks:
                await check(request)
            arguments = {name: await dependency(request) for name, dependency in asked.items()}
            given = request.path_params
            if request.scope["query_string"]:
                given = {**request.query_params, **given}
            try:
                arguments |= {name: _validated(kind, given.get(name), name) for name, kind in named.items()}
                if body is not None:
                    arguments["body"] = body.read(request, await request.body())
            except InputError as error:  # Every controller would refuse it, whichever leads.
                return refused_input(error)
            return await endpoint(**arguments)

        return handle


class _Body:
    """What an endpoint takes as a body. hint: a model, or that or None."""

    def __init__(self, hint: Any) -> None:
        self._hint = hint
        self._kind = TypeAdapter(hint)
        self._limited = LimitedLog()

    def read(self, request: Request, content: bytes) -> Any:
        """Return what a body says, which is as good as null where there is none. Raises `InputError`."""
        if not content:
            return _validated(self._kind, None, "body")
        if _JSON.fullmatch(said := request.headers.get("content-type", "")) is None:
            raise InputError("body", said, "JSON, with Content-Type: application/json")
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            is_json = not isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
            expected = "JSON whose integers and depth are within bounds" if is_json else "JSON in UTF-8"
            raise InputError("body", content.decode(errors="replace"), expected) from error
        try:
            return self._kind.validate_python(value)
        except ValidationError as error:
            return self._known_part(request, value, error)

    def _known_part(self, request: Request, value: Any, error: ValidationError) -> Any:
        """Return what is known of a newer client's body. Raises `InputError` where it is not that which is wrong."""
        protocol, unused = protocol_of(request.scope), unknown_names(error)
        if protocol is None or not protocol.is_newer or not unused:
            raise _refused(error, "body", self._hint) from error
        known = _validated(self._kind, value, "body", extra="ignore")
        what = "a client speaks a newer version, of which this is not used"
        self._limited.warning(what, None, unused, version=protocol.version, fields=", ".join(unused))
        return known


def _validated(kind: TypeAdapter[Any], value: Any, name: str, extra: Literal["ignore"] | None = None) -> Any:
    """Return a value as it is meant. name: what it is refused as. Raises `InputError`."""
    try:
        return kind.validate_python(value, extra=extra)
    except ValidationError as error:
        raise _refused(error, name) from error


def _refused(error: ValidationError, name: str, record: Any = None) -> InputError:
    """Return what is wrong with a value. name: of the whole of it. record: its model, where it has one."""
    found = input_error(error, record)
    return found if found.field else InputError(name, found.value, found.expected)
