"""The addresses that the controller listens on, from text to sockets."""

import socket

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
    except UnicodeError as error:
        raise PlatformError(
            f"cannot listen on {address} (no host has such a name)", "give another address with --http"
        ) from error
    except OSError as error:
        raise PlatformError(f"cannot listen on {address} ({error.strerror})", "give another address with --http") from error
    # Accepted connections inherit it; without it, head and body of an answer wait for a delayed acknowledgement in between.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
