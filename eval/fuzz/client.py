"""A hostile controller against the real client, which has to deliver what a trial reports when it is answered well again.

an answer       that is no HTTP, or HTTP with parts changed; of a length that it has not, in pieces that are none
no answer       a connection that ends, or drips, or says more than was asked
"""

import json
import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import BinaryIO
from unittest import mock

from beamer.client import Client, outbox
from eval.fuzz.findings import Findings
from eval.fuzz.json_values import HOSTILE, to_json
from eval.fuzz.loops import PATIENCE_S, defects_of
from eval.fuzz.mutations import mutated
from eval.fuzz.tally import Tally
from eval.fuzz.turns import TurnProbe

ANSWER_S = 0.2  # The client waits so long.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.001, 0.01  # The client pauses so long between its tries, in place of its own pauses.
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"changed":true}'
STATUSES = (100, 101, 103, 199, 204, 205, 206, 226, 300, 301, 304, 307, 400, 401, 403, 404, 407, 408, 409, 413, 418, 422, 425)
HEADERS = (
    b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 1\r\nContent-Length: 2",
    b"Content-Length: 5, 5", b"Content-Length: 0x10", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Content-Encoding: gzip", b"Content-Encoding: br",
    b"Location: http://127.0.0.1:1/", b"Set-Cookie: a=b", b"Connection: upgrade\r\nUpgrade: websocket", b"Connection: close",
    b"X: " + b"y" * 100_000, b"X: y\r\n" * 5000 + b"Z: z", b"\x00: x", b": x", b"A B: x", b"X: a\x00b", b" folded: x",
)  # fmt: skip
CONTENTS = (
    b"", b"{}", b"[" * 100_000, b'{"error":' * 5000, b"\xff\xfe", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"-1\r\n\r\n",
    b"FFFFFFFFFFFFFFFFF\r\nx", b"5;" + b"e" * 100_000 + b"\r\nhello\r\n", b"1" * 100_000, b'{"error": {"message": 7}}',
)  # fmt: skip
NO_HTTP = (
    b"", b"\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 99999 X\r\n\r\n", b"HTTP/1.1 -1 X\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-OpenSSH_9\r\n", b"\x00" * 5000,
    b"HTTP/1.1 200 " + b"O" * 200_000, b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
)  # fmt: skip


def run(seconds: float, seed: int, most_inputs: int | None = None) -> Findings:
    """Try inputs for a time, or so many of them if that is sooner, and return what was found."""
    faults: list[str] = []
    with ExitStack() as stack:
        for name, pause_s in (("FIRST_PAUSE_S", FIRST_PAUSE_S), ("MAX_PAUSE_S", LAST_PAUSE_S)):
            stack.enter_context(mock.patch.object(outbox, name, pause_s))
        stack.enter_context(defects_of("beamer.client", faults))
        controller = stack.enter_context(hostile_controller())
        with closing(Client(controller.url, timeout_s=ANSWER_S)) as client:
            fuzzer = ClientFuzzer(client, controller, faults, random.Random(seed))
            fuzzer.run(time.monotonic() + seconds, most_inputs)
        return fuzzer.tally.findings("client", seed)


class HostileController:
    """A controller that answers well, but for each of the answers that it is given, one request after the other.

    url: where it listens. delivered: what was answered well.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.delivered: list[bytes] = []
        self.answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._listener = listener

    def serve(self) -> None:
        """Serve until the listener is closed."""
        with suppress(OSError):
            while True:
                threading.Thread(target=self._attend, args=(self._listener.accept()[0],), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            connection.settimeout(PATIENCE_S)
            while request := _read_request(stream):
                try:
                    answer = self.answers.get_nowait()
                except queue.Empty:
                    self.delivered.append(request)
                    connection.sendall(OK)
                    continue
                connection.sendall(answer)
                if len(answer) % 2:  # Whether the connection is closed is as random as this length.
                    return


@contextmanager
def hostile_controller() -> Iterator[HostileController]:
    """Serve one until the context ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = HostileController(listener)
        thread = threading.Thread(target=made.serve, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)


class ClientFuzzer:
    """Has the client report, answers badly, and looks whether a later report arrives."""

    def __init__(self, client: Client, controller: HostileController, faults: list[str], rng: random.Random) -> None:
        self.tally = Tally(TurnProbe())
        self._client = client
        self._trial = client.trial("good", "t")
        self._controller = controller
        self._faults = faults
        self._rng = rng
        self._step = 0

    def run(self, until: float, most_inputs: int | None) -> None:
        """Try inputs until a time, in monotonic seconds, or so many."""
        while self.tally.goes_on(until, most_inputs):
            answers = [self._answer() for _ in range(self._rng.choice((1, 1, 2, 3)))]
            before = len(self._controller.delivered)
            for answer in answers:
                self._controller.answers.put(answer)
            if self._rng.random() < 0.2:
                self._client.wait_stage("good", "s", 0.0)
            self._client.study(f"s{self._step}")
            self._client.flush(PATIENCE_S)
            self._forget_answers()
            delivered = any(b"/v1/studies/s" in request for request in self._controller.delivered[before:])
            self.tally.add(not delivered, self._disturbance(), answers)

    def _disturbance(self) -> str | None:
        """Report something, answered well; return in what that has failed, None if in nothing."""
        self._step += 1
        self._trial.progress(self._step)
        if not self._client.flush(PATIENCE_S):
            return f"a report was not answered within {PATIENCE_S:g} s"
        if not any(json.loads(_body(one) or b"{}").get("step") == self._step for one in self._controller.delivered):
            return "a report was not delivered"
        del self._controller.delivered[:]
        return self._faults[0] if self._faults else None

    def _forget_answers(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._controller.answers.get_nowait()

    def _answer(self) -> bytes:
        return self._rng.choice(_KINDS)(self._rng)


def _changed(rng: random.Random) -> bytes:
    return mutated(rng, OK, (OK, *NO_HTTP[:6]))


def _with_headers(rng: random.Random) -> bytes:
    headers = b"\r\n".join(rng.sample(HEADERS, rng.choice((1, 1, 2))))
    return b"HTTP/1.1 %d X\r\n%s\r\n\r\n%s" % (rng.choice((200, *STATUSES, 500, 503)), headers, rng.choice(CONTENTS))


def _with_content(rng: random.Random) -> bytes:
    content = rng.choice((*CONTENTS, to_json({"error": {"message": rng.choice(HOSTILE), "field": rng.choice(HOSTILE)}})))
    length = len(content) + rng.choice((0, 0, 0, 1, -1, 10**6))
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (rng.choice((200, *STATUSES, 500, 599)), length, content)


def _no_http(rng: random.Random) -> bytes:
    return rng.choice(NO_HTTP)


def _twice(rng: random.Random) -> bytes:
    """Answer what has not been asked yet, too."""
    return OK * rng.choice((2, 50))


_KINDS: Sequence[Callable[[random.Random], bytes]] = (_changed, _changed, _with_headers, _with_content, _no_http, _twice)


def _read_request(stream: BinaryIO) -> bytes:
    """Return the bytes of one request, none where the connection has ended; what follows it is the next one's."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    lengths = [int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    body = stream.read(sum(lengths))
    return head + body if len(body) == sum(lengths) else b""


def _body(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]
