"""Finds a controller's addresses in bounded time, whatever the name service does and whenever the process forks.

`getaddrinfo` cannot be interrupted, and where a process forks during a call, a name service's module may leave a lock in the
child that nobody unlocks. So a thread of its own calls it, nobody waits for that for longer than he likes, and a child that
was forked meanwhile falls back on the addresses that its parent knew, or else on asking another program.
"""

import ipaddress
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress

from beamer.client.forking import RUNNING, Gate

SocketAddress = tuple[int, tuple[str | int, ...]]
"""A socket's family and the address that it connects to."""

_PATIENCE = 0.5  # The name service may take this share of the time for a connection; the rest is left for connecting.

# A thread that calls `getaddrinfo` is inside; the call takes a millisecond in a data centre.
_resolving = Gate(patience_s=0.02)


class Resolver:
    """The addresses of one host and port. known: those found last."""

    def __init__(self, host: str, port: int, known: tuple[SocketAddress, ...] = ()) -> None:
        # The codec is imported here, in the caller's thread, which does not fork meanwhile; the call needs it, too.
        host.encode("idna")
        self.known = known
        self._host = host
        self._port = port
        self._literal = _parse_literal(host, port)
        self._lock = threading.Lock()
        self._pending: Future[tuple[SocketAddress, ...]] | None = None

    def addresses(self, timeout_s: float) -> tuple[SocketAddress, ...]:
        """Return where to connect to, the preferred one first; the last known ones where the name service does not say.

        Raises `OSError` if there are none within `timeout_s` seconds; what is found later is known then.
        """
        if self._literal:
            return self._literal
        pending = self._begin()
        try:
            with RUNNING.outside():
                self.known = pending.result(_PATIENCE * timeout_s)
        except (OSError, UnicodeError) as error:
            if not self.known and _resolving.interrupted:
                self.known = _ask_getent(self._host, self._port, _PATIENCE**2 * timeout_s)
            if not self.known:
                reason = "the name was not resolved in time" if isinstance(error, TimeoutError) else str(error)
                raise OSError(f"{self._host}: {reason}") from error
        return self.known

    def _begin(self) -> "Future[tuple[SocketAddress, ...]]":
        """Return the resolution under way, or else a new one: a name service that hangs holds one thread, not many."""
        with self._lock:
            if self._pending is None or self._pending.done():
                self._pending = Future()
                thread = threading.Thread(target=self._resolve, args=(self._pending,), name="beamer-resolver", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # No thread can be started.
                    self._pending.set_exception(OSError(str(error)))
            return self._pending

    def _resolve(self, pending: "Future[tuple[SocketAddress, ...]]") -> None:
        try:
            with _resolving.inside():
                found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self.known = tuple((family, tuple(address)) for family, _, _, _, address in found if isinstance(address[0], str))
            pending.set_result(self.known)
        except Exception as error:  # noqa: BLE001  The thread that waits for the result gets the exception.
            pending.set_exception(error if isinstance(error, OSError | UnicodeError) else OSError(repr(error)))


def _parse_literal(host: str, port: int) -> tuple[SocketAddress, ...]:
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.version == 4:
            return ((socket.AF_INET, (str(address), port)),)
        if not address.scope_id:
            return ((socket.AF_INET6, (str(address), port, 0, 0)),)
    return ()


def _ask_getent(host: str, port: int, timeout_s: float) -> tuple[SocketAddress, ...]:
    """Return what the C library's own program finds, none where it is missing or finds nothing."""
    import subprocess  # Few processes need this module.

    try:
        with RUNNING.outside():
            command = ["getent", "ahosts", host]
            asked = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=timeout_s
            )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    streams = [line.split()[0] for line in asked.stdout.splitlines() if "STREAM" in line]
    return tuple(address for found in streams for address in _parse_literal(found, port))
