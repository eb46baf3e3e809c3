"""ASGI middleware by which a controller and whoever talks to it over HTTP say which version they speak.

A request without a version is served as it is: people and other programs send none. A WebSocket's version is checked by who
serves it, as its peer is told why over the WebSocket itself.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from beamer.errors import InputError
from beamer.protocol_version import HEADER, PeerProtocol, check_version, format_header, parse_header
from controller.http.errors import refused_input
from controller.limits import Limits

_BEGINNINGS = ("http.response.start", "websocket.accept")


class VersionedRequests:
    """Adds the version and the limits of requests to every answer, and refuses requests of versions that are not served."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._said = format_header({"body_bytes": limits.body_bytes})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as ASGI has it."""

        async def say(message: Message) -> None:
            if message["type"] in _BEGINNINGS:
                message.setdefault("headers", [])
                MutableHeaders(scope=message)[HEADER] = self._said
            await send(message)

        if scope["type"] == "http":
            try:
                protocol = protocol_of(scope)
                if protocol is not None:
                    check_version(protocol.version, "client", "controller")
            except InputError as error:
                await refused_input(error)(scope, receive, say)
                return
        await self._app(scope, receive, say)


def protocol_of(scope: Scope) -> PeerProtocol | None:
    """Return what a request's header says, None where it has none. Raises `InputError`."""
    text = Headers(scope=scope).get(HEADER)
    return None if text is None else parse_header(text)
