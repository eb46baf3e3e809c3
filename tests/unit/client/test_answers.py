"""The client and answers that no controller gives: training goes on, and so do the requests, in bounded time and memory."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from beamer.client import Client, outbox
from beamer.client.transport import MAX_ANSWER_BYTES, Transport
from tests.support.fake_controller import PATIENCE_S, FakeBeamer, raw_server, warnings

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
TIMEOUT_S = 0.3  # long enough for a good answer on a busy machine, and many times shorter than a bad one takes


def path_of(request: bytes) -> bytes:
    return request.split()[1].partition(b"?")[0]


def headed(status: str, content: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(content), content)


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        time.sleep(TIMEOUT_S / 3)
        connection.sendall(b"x")


def drip_the_head(connection: socket.socket) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000:
        time.sleep(TIMEOUT_S / 3)
        connection.sendall(bytes([byte]))


def stream_without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def head_without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"a: b\r\n" * 10_000)


def continue_without_end(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def say(content: bytes, then_close: bool = False) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(content)
        if then_close:
            close(connection)

    return answer


TRIED_AGAIN: dict[str, Callable[[socket.socket], None]] = {
    "dripping body": drip,
    "dripping head": drip_the_head,
    "endless body": stream_without_end,
    "endless head": head_without_end,
    "endless informational answers": continue_without_end,
    "closed": close,
    "no HTTP": say(b"\x00\xff" * 1000 + b"\r\n\r\n"),
    "an SSH server": say(b"SSH-2.0-OpenSSH_9.2p1\r\n"),
    "too short for its length": say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", then_close=True),
    "a length that is none": say(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"),
    "a status that is none": say(b"HTTP/1.1 99999 OK\r\nContent-Length: 2\r\n\r\n{}"),
    "another protocol": say(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"),
    "HTTP 500": say(headed("500 Internal Server Error", b"[" * 100_000)),
    "HTTP 501": say(headed("501 Not Implemented", b"")),
    "HTTP 503": say(headed("503 Service Unavailable", b"{}")),
    "HTTP 408": say(headed("408 Request Timeout", b"{}")),
}
REFUSED: dict[str, bytes] = {
    "nested too deeply": headed("422 Unprocessable Content", b"[" * 100_000 + b"]" * 100_000),
    "nested too deeply in an object": headed("422 Unprocessable Content", b'{"a":' * 100_000),
    "no JSON": headed("422 Unprocessable Content", b"\xff\xfe\x00"),
    "an enormous number": headed("422 Unprocessable Content", b"9" * 100_000),
    "an error of another shape": headed("409 Conflict", b'{"error": {"message": {"a": []}, "field": ["run"]}}'),
    "a redirect": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
    "unauthorized": headed("401 Unauthorized", b"{}"),
    "forbidden": headed("403 Forbidden", b"{}"),
    "gone": headed("410 Gone", b"{}"),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.01)


@pytest.mark.parametrize("kind", TRIED_AGAIN)
def test_what_is_no_answer_is_tried_again(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[bytes] = []
    both = threading.Event()
    failed: set[bytes] = set()  # Failures of one request alone say nothing of the controller, and are not logged: both fail.

    def answer(connection: socket.socket, request: bytes) -> None:
        both.wait(PATIENCE_S)
        asked.append(path_of(request))
        fails = len(failed) < 2
        failed.update(asked[-1:] if fails else ())
        (TRIED_AGAIN[kind] if fails else say(OK))(connection)

    with raw_server(answer) as url, Client(url, TIMEOUT_S) as client:
        client.study("s")
        client.study("t")
        both.set()
        assert client.flush(PATIENCE_S)
    assert {b"/v1/studies/s", b"/v1/studies/t"} == set(asked) == failed
    assert len(asked) >= 4
    assert len([logged for logged in warnings(caplog) if "does not answer" in logged]) == 1
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_an_answer_is_final(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(path_of(request))
        connection.sendall(REFUSED[kind] if asked[-1].endswith(b"/s") else OK)

    with raw_server(answer) as url, Client(url, TIMEOUT_S) as client:
        client.study("s")
        client.study("t")
        assert client.flush(PATIENCE_S)
    assert asked == [b"/v1/studies/s", b"/v1/studies/t"]
    [logged] = warnings(caplog)
    assert logged.startswith("Beamer refused s: ")
    assert len(logged) < 1000


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "301 Moved Permanently"])
def test_what_holds_of_every_request_is_said_once(status: str, caplog: pytest.LogCaptureFixture) -> None:
    with raw_server(lambda connection, _: connection.sendall(headed(status, b"{}"))) as url, Client(url, TIMEOUT_S) as client:
        for name in "abc":
            client.study(name).trial("t").finish()
        assert client.flush(PATIENCE_S)
        assert not client.wait_stage("a", "r", 0.05)
    assert warnings(caplog) == [f"Beamer refused a: HTTP {status[:3]}"]


def test_a_long_reason_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    content = headed("422 Unprocessable Content", b'{"error": {"field": "f", "message": "%s"}}' % (b"x" * 1_000_000))
    with raw_server(lambda connection, _: connection.sendall(content)) as url, Client(url, PATIENCE_S) as client:
        client.study("s")
        assert client.flush(PATIENCE_S)
    [logged] = warnings(caplog)
    assert len(logged) < 1000


def test_a_stage_is_waited_for_whatever_answers() -> None:
    bad = iter([headed("200 OK", b"[" * 100_000), headed("200 OK", b"7"), headed("500 X", b""), b"nonsense\r\n\r\n"])
    with raw_server(lambda connection, _: connection.sendall(next(bad, headed("200 OK", b'{"status": "done"}')))) as url:
        client = Client(url, TIMEOUT_S)
        assert client.wait_stage("s", "r", PATIENCE_S)
        client.close()


MEMORY = """
import resource, sys, time
from beamer.client import Client
client = Client(sys.argv[1], timeout_s=0.5)
client.study("warm")
client.flush(1.5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
client.study("s")
client.flush(2.0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", ["endless body", "endless head", "endless informational answers"])
def test_an_answer_without_end_takes_bounded_memory(kind: str) -> None:
    asked: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(request)
        (say(OK) if path_of(request).endswith(b"/warm") else TRIED_AGAIN[kind])(connection)

    with raw_server(answer) as url:
        ended = subprocess.run([sys.executable, "-c", MEMORY, url], capture_output=True, text=True, check=True, timeout=60)
    assert len(asked) > 2, "it was not tried again"
    assert int(ended.stdout) * 1024 < 8 * MAX_ANSWER_BYTES


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
INFORMED = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"


@pytest.mark.parametrize(
    ("answered", "connections"),
    [(OK, 1), (INFORMED + OK, 1), (OK * 2, 3), (OK + b"x", 3), (INFORMED + OK + OK[:9], 3), (CHUNKED, 3), (CHUNKED * 2, 3)],
    ids=["one", "informed", "two", "more", "half of one more", "in chunks", "two in chunks"],
)
def test_what_was_not_asked_for_answers_nothing(answered: bytes, connections: int) -> None:
    """What comes behind an answer must not pass for the next one: the next request would be taken for delivered."""
    asked: list[bytes] = []
    seen: set[int] = set()

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(path_of(request))
        seen.add(connection.getpeername()[1])
        connection.sendall(answered)

    with raw_server(answer) as url, Client(url, timeout_s=PATIENCE_S) as client:
        for name in "abc":
            client.study(name)
            assert client.flush(PATIENCE_S)
    assert asked == [b"/v1/studies/a", b"/v1/studies/b", b"/v1/studies/c"]
    assert len(seen) == connections


@pytest.mark.parametrize("heals", [True, False])
def test_one_request_that_the_controller_fails_at_stops_no_other_and_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, heals: bool
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr(outbox, "MAX_PAUSE_S", 0.01)
    monkeypatch.setattr(outbox, "ASIDE_PAUSE_S", 0.05)
    asked: list[bytes] = []
    healed = threading.Event()

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(path_of(request))
        connection.sendall(headed("500 X", b"") if asked[-1].endswith(b"/bad") and not healed.is_set() else OK)

    def until_asked(path: bytes, times: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while asked.count(path) < times:
            assert time.monotonic() < deadline
            time.sleep(0.002)

    with raw_server(answer) as url, Client(url, timeout_s=PATIENCE_S) as client:
        client.study("bad").trial("t")
        for number in range(20):  # while it fails, before and after it was set aside
            client.study(f"s{number}")
            until_asked(f"/v1/studies/s{number}".encode(), 1)
            until_asked(b"/v1/studies/bad", 2 * number)
        until_asked(b"/v1/studies/bad", 2 * outbox.OWN_FAILURES)
        assert not client.flush(0.0)
        assert b"/v1/studies/bad/trials/t" not in asked, "what builds on it waits for it"
        if heals:
            healed.set()
            assert client.flush(PATIENCE_S)
            assert asked[-2:] == [b"/v1/studies/bad", b"/v1/studies/bad/trials/t"]
        client.close(0.0)
    assert warnings(caplog)[0] == f"Beamer refused bad: HTTP 500, {outbox.OWN_FAILURES} times; it is tried again less often"
    assert [logged for logged in warnings(caplog) if "does not answer" in logged] == []
    assert len(warnings(caplog)) == (1 if heals else 2), "and how much was not received"


def test_what_fails_once_the_client_is_closed_says_nothing_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.005)
    is_asked_again, is_closed = threading.Event(), threading.Event()
    asked: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(path_of(request))
        if len(asked) == 2:
            is_asked_again.set()
            assert is_closed.wait(PATIENCE_S)
        connection.sendall(headed("500 X", b""))

    with raw_server(answer) as url:
        client = Client(url, timeout_s=PATIENCE_S)
        client.study("bad")
        assert is_asked_again.wait(PATIENCE_S)
        sender = client._outbox._thread
        assert sender is not None
        client.close(0.0)
        is_closed.set()
        sender.join(PATIENCE_S)
        assert not sender.is_alive()
    (logged,) = warnings(caplog)
    assert "did not receive everything: 1 requests" in logged


def test_a_new_request_does_not_wait_for_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_PAUSE_S", 10 * PATIENCE_S)
    fails = threading.Event()
    asked: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(path_of(request))
        if asked.count(b"/v1/studies/bad") >= 3:
            fails.set()
        connection.sendall(headed("500 X", b"") if asked[-1].endswith(b"/bad") else OK)

    with raw_server(answer) as url:
        client = Client(url, timeout_s=PATIENCE_S)
        client.study("bad")
        assert fails.wait(PATIENCE_S)
        client.study("good")
        deadline = time.monotonic() + PATIENCE_S
        while b"/v1/studies/good" not in asked:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        client.close(0.0)


def test_a_controller_that_fails_at_everything_is_not_asked_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 10 * PATIENCE_S)
    monkeypatch.setattr(outbox, "MAX_PAUSE_S", 10 * PATIENCE_S)
    asked: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(path_of(request))
        connection.sendall(headed("500 X", b""))

    with raw_server(answer) as url:
        client = Client(url, timeout_s=PATIENCE_S)
        for number in range(50):
            client.study(f"s{number}")
        time.sleep(0.3)
        assert 1 <= len(asked) <= 2
        client.close(0.0)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the client have a defect: what is sent to studies that are called so."""
    request = Transport.request
    failed: list[str] = []

    def fail(transport: Transport, method: str, path: str, content: bytes | None = None) -> object:
        if "/defect?" in path:
            failed.append(path)
            raise AssertionError("a defect")
        return request(transport, method, path, content)

    monkeypatch.setattr(Transport, "request", fail)
    yield failed
    assert failed, "nothing failed"


def test_a_defect_takes_one_request_and_is_logged_once(broken: list[str], caplog: pytest.LogCaptureFixture) -> None:
    beamer = FakeBeamer()
    with Client(beamer.url, timeout_s=PATIENCE_S) as client:
        for name in ("defect", "s", "defect", "t"):
            client.study(name)
        assert client.flush(PATIENCE_S)
    beamer.stop()
    assert beamer.paths() == ["/v1/studies/s", "/v1/studies/t"]
    assert len(broken) == 2
    assert [(logged[:8], logged[-7:]) for logged in warnings(caplog)] == [("a defect", "dropped"), ("Beamer a", "dropped")]
    assert "2 requests" in warnings(caplog)[-1]


class Unruly:
    """A value whose every use fails."""

    def item(self) -> object:
        raise KeyError("unruly")


def test_no_value_of_the_trainer_fails_training(caplog: pytest.LogCaptureFixture) -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    beamer = FakeBeamer()
    with Client(beamer.url, timeout_s=PATIENCE_S) as client:
        client.study("s", weight=Unruly())  # type: ignore[arg-type]
        client.study("t", weight=nested)  # type: ignore[arg-type]
        client.trial("u", "v").start([nested])  # type: ignore[list-item]
        client.study("w")
        assert client.flush(PATIENCE_S)
    beamer.stop()
    assert beamer.paths() == ["/v1/studies/w"]
    assert len(warnings(caplog)) == 3
    while nested:  # one by one: freeing it at once recurses as deeply
        nested = nested[0]  # type: ignore[assignment]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_is_gone_is_replaced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    request = Transport.request
    ended: list[threading.Thread] = []

    def end(transport: Transport, *given: object) -> object:
        if not ended:
            ended.append(threading.current_thread())
            raise SystemExit  # ends a thread and says nothing
        return request(transport, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Transport, "request", end)
    beamer = FakeBeamer()
    with Client(beamer.url, timeout_s=PATIENCE_S) as client:
        client.study("s")
        while not ended:
            time.sleep(0.01)
        ended[0].join(PATIENCE_S)
        client.study("t")
        assert client.flush(PATIENCE_S)
    beamer.stop()
    assert beamer.paths() == ["/v1/studies/s", "/v1/studies/t"]
    assert warnings(caplog) == []


def test_a_process_that_ends_tells_all_to_a_controller_that_answers_slowly(caplog: pytest.LogCaptureFixture) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        time.sleep(0.02)
        connection.sendall(OK)

    with raw_server(answer) as url:
        client = Client(url, PATIENCE_S)
        for number in range(80):  # It takes longer than the patience for one.
            client.trial("s", f"t{number}").finish()
        client.close_at_exit()
    assert warnings(caplog) == []
