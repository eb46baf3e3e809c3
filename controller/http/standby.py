"""What a controller answers while another one leads, and how its application takes over when it leads itself."""

from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from controller.http.errors import refusal
from controller.websocket import NOT_LEADING

_REASON = "this controller follows another one, which leads"


async def following(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse everything, as an ASGI application."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": NOT_LEADING, "reason": _REASON})
    elif scope["type"] == "http":
        answer = refusal(HTTPStatus.SERVICE_UNAVAILABLE, _REASON, "the address of the controller that leads")
        await answer(scope, receive, send)


class ReplaceableApplication:
    """An ASGI application that hands on to `application`, which may be replaced while the server runs."""

    def __init__(self) -> None:
        self.application: ASGIApp = following

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request to the application of this moment."""
        await self.application(scope, receive, send)
