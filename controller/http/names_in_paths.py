"""Names in a request's path, which may hold any character: a slash of a name separates nothing.

A client percent-encodes each name. Servers decode a whole path at once, so that `a%2Fb` would become two names; here each
segment is decoded by itself, and its slashes are escaped again until the route that matches has taken the names out.
"""

from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from beamer.studies.model import escape_name, unescape_name


class _NameConvertor(Convertor[str]):
    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unescape_name(value)

    def to_string(self, value: str) -> str:
        return escape_name(value)


register_url_convertor("name", _NameConvertor())


class NamesInPaths:
    """Lets routes match a path whose names are escaped; a route takes one as `{study:name}`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as ASGI has it."""
        raw = scope.get("raw_path")
        if raw is not None and b"%" in raw:
            segments = raw.partition(b"?")[0].decode("latin-1").split("/")
            scope = {**scope, "path": "/".join(escape_name(unquote(segment, errors="surrogateescape")) for segment in segments)}
        await self._app(scope, receive, send)
