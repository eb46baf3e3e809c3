"""The addresses that the controller listens on, from text to sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from beamer.errors import InputError, PlatformError
from beamer.ports import HTTP_PORT


def parse_address(text: str, field: str) -> tuple[str, int]:
    """Return host and port of an address such as `127.0.0.1:80` or `[::1]:80`. Raises `InputError`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InputError(field, text, f"HOST:PORT such as 127.0.0.1:{HTTP_PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def listen(address: str) -> socket.socket:
    """Return a socket bound to `address`. Raises `InputError`, or `PlatformError` if it cannot be had."""
    host, port = parse_address(address, "--http")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        raise _unavailable("", address, "--http", error) from error
    # Accepted connections inherit it; without it, head and body of an answer wait for a delayed acknowledgement in between.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve_switches(
    host: str, port: int, connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> asyncio.Server:
    """Listen for switches. connected: called with each connection. Raises `PlatformError` if the address cannot be had."""
    try:
        return await asyncio.start_server(connected, host, port)
    except (OSError, UnicodeError) as error:
        raise _unavailable(" for switches", f"{host}:{port}", "--openflow", error) from error


def _unavailable(whom: str, address: str, option: str, error: OSError | UnicodeError) -> PlatformError:
    reason = error.strerror if isinstance(error, OSError) else "no host has such a name"
    return PlatformError(f"cannot listen{whom} on {address} ({reason})", f"give another address with {option}")
