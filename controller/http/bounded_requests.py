"""ASGI middleware that bounds requests: how many are under way at once, and how large the body of each may be.

An application sees a request when its body is complete, so that one that comes slowly holds no more than its bytes.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.http.errors import refusal
from controller.limits import Limits


class BoundedRequests:
    """Hands requests to an application once their body has come, if it is no larger and they are no more than may be."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as ASGI has it; a WebSocket is handed on as it is."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._under_way >= self._limits.requests:
            expected = f"at most {self._limits.requests} requests at once: repeat it later"
            await _refuse(503, "too many requests are under way", expected, None, scope, receive, send)
        else:
            self._under_way += 1
            try:
                await self._serve(scope, receive, send)
            finally:
                self._under_way -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        size = _declared_bytes(scope)
        more = True
        while more and size <= self._limits.body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            size = max(size, len(body))
            more = message.get("more_body", False)
        if size > self._limits.body_bytes:
            expected = f"at most {self._limits.body_bytes} bytes"
            await _refuse(413, "the body is too large", expected, size, scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def receive_whole() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, receive_whole, send)


def _declared_bytes(scope: Scope) -> int:
    """Return the length of the body that is announced, 0 where none is; h11 has checked that it is a number."""
    return max((int(value) for name, value in scope["headers"] if name == b"content-length"), default=0)


async def _refuse(
    status: int, message: str, expected: str, size: int | None, scope: Scope, receive: Receive, send: Send
) -> None:
    answer = refusal(status, message, expected, None if size is None else "body", size)
    answer.headers["connection"] = "close"  # The rest of the body is not read.
    await answer(scope, receive, send)
