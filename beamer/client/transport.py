"""HTTP requests to the controller that end in time, in bounded memory, whatever answers them.

A module of its own, as httpcore takes longer to import than the rest of the client. Its time-outs are each socket operation's:
an answer that drips would last for ever. So its connections are made here, as streams that know by when the whole request must
end.
"""

import json
import os
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpcore

from beamer.client.forking import RUNNING
from beamer.client.resolver import Resolver, SocketAddress
from beamer.errors import InputError
from beamer.ports import HTTP_PORT
from beamer.protocol_version import HEADER, PeerProtocol, format_header, parse_header

MAX_HEAD_BYTES = 1 << 16  # httpcore takes no longer head of an answer.
MAX_ANSWER_BYTES = 4 << 20  # The largest answer is a stage of 40 000 trials with names of full length.
KEEP_ALIVE_S = 4.0  # uvicorn closes an idle connection after 5 s; a connection must not be used while it is being closed.
_HEADER = HEADER.lower().encode("ascii")
_PORTS = {"http": 80, "https": 443}
_EXAMPLE = f"the controller's URL such as 'http://127.0.0.1:{HTTP_PORT}'"


@dataclass(frozen=True)
class Answer:
    """A response, read whole. protocol: what the controller says that it speaks."""

    status_code: int
    content: bytes
    protocol: PeerProtocol = field(default=PeerProtocol())

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status_code < 300

    @property
    def text(self) -> str:
        """The content as text, whatever it is."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the content as JSON. Raises `ValueError` if it is none that this process can read."""
        try:
            return json.loads(self.content)
        except RecursionError as error:
            raise ValueError("JSON that is nested too deeply") from error


class Transport:
    """Send requests to the controller at `url`, each aborted after `timeout_s` seconds. Raises `InputError` for a bad URL.

    headers: sent with each. ca: the file of the certificates that sign the controller's; None: those that the system trusts.
    known: addresses of its host that were found before. max_answer_bytes: a larger answer is not read. May be used by several
    threads; a forked child makes one of its own.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        headers: Iterable[tuple[str, str]] = (),
        ca: str | None = None,
        known: tuple[SocketAddress, ...] = (),
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        try:
            parsed = urlsplit(url)
            if parsed.username is not None:  # A user's name would be logged with the URL, and is never sent.
                raise InputError("url", f"{parsed.scheme}://...@{parsed.hostname}", f"{_EXAMPLE}, without a user or a password")
            host, port = (parsed.hostname or "").encode("idna"), parsed.port
            self._target = parsed.path.rstrip("/").encode("ascii")
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError("url", url, f"{_EXAMPLE} ({error})") from error
        if parsed.scheme not in _PORTS or not host:
            raise InputError("url", url, _EXAMPLE)
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._origin = (parsed.scheme.encode(), host, port)
        self._resolver = Resolver(host.decode(), _PORTS[parsed.scheme] if port is None else port, known)
        named = f"[{host.decode()}]" if b":" in host else host.decode()
        at = ("Host", named if port is None else f"{named}:{port}")
        self._headers = [at, ("Content-Type", "application/json"), (HEADER, format_header()), *headers]
        self._backend = _Backend(self._resolver)
        self._pool = httpcore.ConnectionPool(
            ssl_context=trust(ca) if parsed.scheme == "https" else None,
            keepalive_expiry=KEEP_ALIVE_S,
            network_backend=self._backend,
        )

    @property
    def known(self) -> tuple[SocketAddress, ...]:
        """The controller's addresses that were found last."""
        return self._resolver.known

    def request(self, method: str, path: str, content: bytes | None = None) -> Answer:
        """Return the response to a request, read whole.

        Raises `ConnectionError` if none arrives in time, or none of HTTP or of a reasonable size, and `ValueError` for a path
        that cannot be part of a URL.
        """
        scheme, host, port = self._origin
        try:
            url = httpcore.URL(scheme=scheme, host=host, port=port, target=self._target + path.encode("ascii"))
            self._backend.begin(self._timeout_s)
            with self._pool.stream(method, url, headers=self._headers, content=content) as response:
                read = bytearray()
                for part in response.iter_stream():
                    read += part
                    if len(read) > self._max_answer_bytes:
                        raise ConnectionError(f"an answer of more than {self._max_answer_bytes} bytes")
                stream = response.extensions.get("network_stream")
                if isinstance(stream, _Stream):
                    stream.end_answer(len(read))
                return Answer(response.status, bytes(read), _protocol(response.headers))
        except httpcore.LocalProtocolError as error:
            raise ValueError(str(error)) from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def abandon(self) -> None:
        """Close the descriptors of a parent's connections in a forked child, and nothing of the connections themselves."""
        self._backend.abandon()


def trust(ca: str | None) -> ssl.SSLContext:
    """Return what verifies a controller's certificate. ca: as of `Transport`. Raises `InputError` for a file that is none."""
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InputError("ca", ca, f"a file of certificates in PEM ({error})") from error


def _protocol(headers: Iterable[tuple[bytes, bytes]]) -> PeerProtocol:
    """Return what an answer's headers say, version 1 where they say nothing that can be read."""
    said = next((value for name, value in headers if name.lower() == _HEADER), None)
    try:
        return parse_header(None if said is None else said.decode("latin-1"))
    except InputError:
        return PeerProtocol()


def _answer_bytes(head: bytearray, body_bytes: int) -> int | None:
    """Return the length of an answer that begins with `head`, None if it is not known: in chunks, say."""
    start = 0
    while (end := head.find(b"\r\n\r\n", start)) >= 0:
        lines = bytes(head[start:end]).split(b"\r\n")
        start = end + 4
        # Interim responses come before the answer.
        if lines[0].split(b" ")[1:2] and not lines[0].split(b" ")[1].startswith(b"1"):
            is_chunked = any(line.lower().startswith(b"transfer-encoding") for line in lines)
            return None if is_chunked else start + body_bytes
    return None


class _Backend(httpcore.NetworkBackend):
    """Makes the connections, and holds every request of a thread to its deadline."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._request = threading.local()
        self._streams: weakref.WeakSet[_Stream] = weakref.WeakSet()

    def begin(self, timeout_s: float) -> None:
        """Start the time of this thread's next request."""
        self._request.deadline = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the seconds that are left for this thread's request. Raises `TimeoutError` if there are none."""
        left_s: float = self._request.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first of the host's addresses that answers within its share of the time that is left."""
        failure: OSError = OSError("the host has no address")
        try:
            addresses = self._resolver.addresses(self.left_s())
            for i, (family, address) in enumerate(addresses):
                stream = _Stream(self, socket.socket(family, socket.SOCK_STREAM))
                self._streams.add(stream)
                try:
                    stream.connect(address, self.left_s() / (len(addresses) - i))
                    return stream
                except OSError as error:
                    stream.close()
                    failure = error
        except OSError as error:
            failure = error
        raise httpcore.ConnectError(str(failure)) from failure

    def abandon(self) -> None:
        """Close the descriptors alone."""
        for stream in list(self._streams):
            stream.abandon()


class _Stream(httpcore.NetworkStream):
    """A connection; its operations may take as long as the request of the thread that calls them."""

    def __init__(self, backend: _Backend, sock: socket.socket) -> None:
        self._backend = backend
        self._sock = sock
        self._head = bytearray()  # the start of the data read since the last write
        self._read_bytes = 0
        self._is_spoilt = False

    def connect(self, address: tuple[str | int, ...], timeout_s: float) -> None:
        self._sock.settimeout(timeout_s)
        with RUNNING.outside():
            self._sock.connect(address)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            self._sock.settimeout(self._backend.left_s())
            with RUNNING.outside():
                data = self._sock.recv(max_bytes)
            self._read_bytes += len(data)
            self._head += data[: MAX_HEAD_BYTES - len(self._head)]
            return data
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._head.clear()
        self._read_bytes = 0
        try:
            self._sock.settimeout(self._backend.left_s())
            with RUNNING.outside():
                self._sock.sendall(buffer)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            left_s = self._backend.left_s()
            # The handshake comes after the change of sockets, so that a fork in between finds the open one.
            sock = self._sock = ssl_context.wrap_socket(
                self._sock, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            sock.settimeout(left_s)
            with RUNNING.outside():
                sock.do_handshake()
        except (OSError, ValueError) as error:
            self.close()
            raise httpcore.ConnectError(str(error)) from error
        return self

    def close(self) -> None:
        self._sock.close()

    def abandon(self) -> None:
        descriptor = self._sock.detach()
        if descriptor >= 0:
            os.close(descriptor)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # An idle connection that is readable has ended.
            return self._is_spoilt or self._is_readable()
        return self._sock if info == "socket" else None

    def end_answer(self, body_bytes: int) -> None:
        """Take note that an answer was read; whatever was read beyond it would pass for the answer to the next request."""
        self._is_spoilt = _answer_bytes(self._head, body_bytes) != self._read_bytes

    def _is_readable(self) -> bool:
        if self._sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))
