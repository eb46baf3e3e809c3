"""The port at which rank 0 waits for the other ranks: handed out, kept for it, and recognised where another program has it.

Only rank 0 can listen on it, and it does so seconds later. Until then, and as long as the run lasts, the port is *kept*: bound,
with SO_REUSEADDR, and not listened on. Linux gives a port that is bound to no connection and to no program that asks for any
port, while one that names it and sets SO_REUSEADDR, as TCPStore of PyTorch and nearly every server do, may listen on it all the
same. So a program that names the same port can still take it: the run fails then, which `is_taken` and `says_taken` recognise.
Other servers that begin to listen some time after their port was told keep it in the same way (`kept_port`).
"""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)


class KeptPort:
    """A port that is kept until it is released. number: 0: none is."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    @property
    def number(self) -> int:
        """The port, 0 if none is kept."""
        return 0 if self._socket is None else int(self._socket.getsockname()[1])

    def take(self) -> int:
        """Keep a port that nobody has, instead of the one that was kept, and return it."""
        self.release()
        self._socket = _bound(0)
        return self.number

    def release(self) -> None:
        """Keep no port any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@contextmanager
def kept_port() -> Iterator[int]:
    """Keep a port that nobody has during the context, and yield it."""
    kept = KeptPort()
    try:
        yield kept.take()
    finally:
        kept.release()


def free_port() -> int:
    """Return a port that nobody has now, and which is not kept."""
    with _bound(0) as one:
        port: int = one.getsockname()[1]
    return port


def is_taken(port: int) -> bool:
    """Say whether nobody can listen on a port now, as another does or connects from it."""
    try:
        with _bound(port) as one:
            one.listen(1)
    except OSError:
        return True
    return False


def says_taken(text: str) -> bool:
    """Say whether a program's last words are that its port is in use."""
    return bool(_IN_USE.search(text))


def _bound(port: int) -> socket.socket:
    """Return a socket that is bound to a port at every address, of both versions of IP where there are both."""
    with suppress(OSError):
        return _made(socket.AF_INET6, "::", port)
    return _made(socket.AF_INET, "", port)


def _made(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    one = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((address, port))
    except OSError:
        one.close()
        raise
    return one
