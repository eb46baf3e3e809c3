"""Controllers for the client's tests: one that answers as it is told, and one that speaks no HTTP or speaks it badly."""

import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from beamer.protocol_version import HEADER, format_header

PATIENCE_S = 30.0  # for what must come; nothing is measured by it


class FakeBeamer:
    """A controller that keeps what it receives, and of which runs that is.

    It answers as `answer` returns: a status and a body, by method and path, and says what `limits` holds. context: of a
    controller at https. members: what is
    said of the processes that take part; `received` is kept without that.
    """

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.received: list[tuple[str, Any]] = []
        self.runs: list[str | None] = []
        self.members: list[Any] = []
        self.connections = 0
        self.limits: dict[str, int] = {}
        self.answer: Callable[[str, str], tuple[int, Any]] = lambda method, path: (200, {})
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # its two writes would wait for each other

            def setup(self) -> None:
                super().setup()
                fake.connections += 1

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path, _, query = self.path.partition("?run=")
                status, answer = fake.answer("PUT", path)
                content = json.loads(body) if body else None
                of_study, _, member = path.partition("/members/")
                if status == 200 and member and not member.endswith("/leave"):
                    fake.members.append(content)
                elif status == 200:
                    left = {name: value for name, value in content.items() if name != "member"} if content else content
                    fake.received.append((f"{of_study}/members/M/leave" if member else path, left))
                    fake.runs.append(query or None)
                self._respond(status, answer)

            def do_GET(self) -> None:
                self._respond(*fake.answer("GET", self.path.partition("?")[0]))

            def _respond(self, status: int, answer: Any) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header(HEADER, format_header(fake.limits))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if context is not None:  # the handshake is the thread's that serves the connection
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
            self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  of clients that trust it not
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.received]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def refusal(message: str) -> dict[str, Any]:
    return {"error": {"field": "f", "value": None, "expected": "e", "message": message}}


def read_request(connection: socket.socket) -> bytes:
    """Return the bytes of one request, none where the connection has ended."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while len(body) < int((lengths or [b"0"])[0]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def raw_server(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """Serve every request, as bytes, by what `answer` does with its connection; yield the URL."""

    def attend(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while request := read_request(connection):
                answer(connection, request)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=attend, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
