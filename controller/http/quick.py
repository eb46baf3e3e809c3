"""Valid requests served without FastAPI's general machinery, which takes longer than what most requests ask for.

Only what is valid by the endpoint's own annotations goes this way: whatever else comes, and so whatever is refused, FastAPI
answers. With it a controller takes a third more reports per second (`python -m eval bench`). What a newer client says beyond
this controller's version is left out of a body here, and named once.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from beamer.versioned_messages import unknown_names
from controller.http.versioned_requests import protocol_of
from controller.limited_log import LimitedLog

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_JSON = "application/json"
_MAX_DIGITS = 7  # A longer integer in a path is not read here.
_ABSENT = object()


@dataclass(frozen=True)
class _Endpoint:
    """What an endpoint takes: names of a path, some of them integers, a query, a body, each only if it does.

    model: the body's. needs_body: whether it has to come. limited: the log of what is not used.
    """

    names: tuple[str, ...]
    integers: Mapping[str, Callable[[int], bool]]
    query: tuple[str, ...]
    model: type[BaseModel] | None = None
    needs_body: bool = False
    limited: LimitedLog = field(default_factory=LimitedLog)

    @classmethod
    def of(cls, endpoint: Callable[..., Any], path_names: frozenset[str]) -> "_Endpoint | None":
        """Return what an endpoint takes; None for one that takes something else, or returns no response."""
        hints = get_type_hints(endpoint, include_extras=True)
        answers = hints.pop("return", None)
        if not (isinstance(answers, type) and issubclass(answers, Response)):
            return None
        names: list[str] = []
        integers: dict[str, Callable[[int], bool]] = {}
        query: list[str] = []
        model: type[BaseModel] | None = None
        needs_body = False
        for name, parameter in inspect.signature(endpoint).parameters.items():
            kinds = set(get_args(hints[name]) or (hints[name],))
            if name in path_names and hints[name] is str:
                names.append(name)
            elif name in path_names and (within := _bounds(hints[name])) is not None:
                integers[name] = within
            elif kinds == {str, NoneType} and parameter.default is None:
                query.append(name)
            elif name == "body" and model is None and len(models := kinds - {NoneType}) == 1:
                (model,) = models
                if not (isinstance(model, type) and issubclass(model, BaseModel)):
                    return None
                needs_body = NoneType not in kinds
            else:
                return None
        return cls(tuple(names), integers, tuple(query), model, needs_body)

    async def arguments(self, request: Request) -> dict[str, Any] | None:
        """Return the arguments that a request gives, None where that takes a second look."""
        given = request.path_params
        found = {name: given[name] for name in self.names}
        for name, within in self.integers.items():
            text = given[name]
            if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS and within(int(text))):
                return None
            found[name] = int(text)
        if request.scope["query_string"]:
            found |= {name: request.query_params.get(name) for name in self.query}
        if self.model is not None:
            body = await self._body(request, self.model)
            if body is _ABSENT:
                return None
            found["body"] = body
        return found

    async def _body(self, request: Request, model: type[BaseModel]) -> Any:
        content = await request.body()
        if not content:
            return _ABSENT if self.needs_body else None
        if request.headers.get("content-type") != _JSON:
            return _ABSENT
        try:
            value = json.loads(content)
            return _ABSENT if value is None else model.model_validate(value)
        except ValidationError as error:
            return _known_part(request, model, value, error, self.limited)
        except (ValueError, RecursionError):
            return _ABSENT


def _known_part(request: Request, model: type[BaseModel], value: Any, error: ValidationError, limited: LimitedLog) -> Any:
    """Return what is known of a newer client's body, `_ABSENT` where it is not that which is wrong."""
    protocol = protocol_of(request.scope)
    if protocol is None or not protocol.is_newer or not (unused := unknown_names(error)):
        return _ABSENT
    try:
        known = model.model_validate(value, extra="ignore")
    except ValidationError:
        return _ABSENT
    what = "a client speaks a newer version, of which this is not used"
    limited.warning(what, None, unused, version=protocol.version, fields=", ".join(unused))
    return known


class QuickRoute(APIRoute):
    """A route that asks its dependencies, each of which takes a connection alone, and calls its endpoint."""

    def get_route_handler(self) -> Handler:
        """Return what serves a request."""
        usual = super().get_route_handler()
        endpoint = _Endpoint.of(self.endpoint, frozenset(self.param_convertors))
        if endpoint is None:
            return usual
        call: Callable[..., Awaitable[Response]] = self.endpoint
        checks = [depends.dependency for depends in self.dependencies if depends.dependency is not None]

        async def handle(request: Request) -> Response:
            arguments = await endpoint.arguments(request)
            if arguments is None:
                return await usual(request)
            for check in checks:
                await check(request)
            return await call(**arguments)

        return handle


def _bounds(hint: Any) -> Callable[[int], bool] | None:
    """Return whether an annotated integer may have a value; None for what is no integer between two others."""
    if get_origin(hint) is None or (get_args(hint) or (None,))[0] is not int:
        return None
    limits = [limit for part in get_args(hint)[1:] for limit in getattr(part, "metadata", ())]
    least = [limit.ge for limit in limits if hasattr(limit, "ge")]
    most = [limit.le for limit in limits if hasattr(limit, "le")]
    if len(least) != 1 or len(most) != 1 or len(limits) != 2:
        return None
    return lambda value: least[0] <= value <= most[0]
