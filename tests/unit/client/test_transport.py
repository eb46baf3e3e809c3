"""The client's connections: where they lead, in bounded time, whatever the name service does."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from beamer.client import resolver
from beamer.client.resolver import Resolver
from beamer.client.transport import Transport
from tests.support.fake_controller import PATIENCE_S, raw_server

FOUND = ((socket.AF_INET, ("192.0.2.1", 80)),)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class NameService:
    """What `getaddrinfo` does, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, host: str, port: int, type: int) -> list[Any]:
        self.calls += 1
        assert self.answers.wait(PATIENCE_S)
        if self.fails is not None:
            raise self.fails
        return [(family, type, 6, "", address) for family, address in FOUND]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameService]:
    service = NameService()
    monkeypatch.setattr(socket, "getaddrinfo", service)
    yield service
    service.answers.set()


@pytest.mark.parametrize(
    ("host", "address"),
    [("192.0.2.7", (socket.AF_INET, ("192.0.2.7", 80))), ("2001:db8::7", (socket.AF_INET6, ("2001:db8::7", 80, 0, 0)))],
)
def test_an_address_is_not_looked_up(names: NameService, host: str, address: object) -> None:
    assert Resolver(host, 80).addresses(PATIENCE_S) == (address,)
    assert names.calls == 0


def test_a_name_is_looked_up_for_every_connection(names: NameService) -> None:
    found = Resolver("controller", 80)
    assert found.addresses(PATIENCE_S) == found.addresses(PATIENCE_S) == FOUND
    assert names.calls == 2


@pytest.mark.parametrize("error", [socket.gaierror(-3, "try again"), UnicodeError("label too long"), KeyError("a defect")])
def test_where_the_name_service_fails_the_last_known_addresses_hold(names: NameService, error: Exception) -> None:
    names.fails = error
    with pytest.raises(OSError, match="controller: "):
        Resolver("controller", 80).addresses(PATIENCE_S)
    known = Resolver("controller", 80, FOUND)
    assert known.addresses(PATIENCE_S) == known.known == FOUND


def test_one_thread_waits_for_a_name_service_that_hangs(names: NameService) -> None:
    names.answers.clear()
    hanging = Resolver("controller", 80)
    for _ in range(5):
        with pytest.raises(OSError, match="not resolved in time"):
            hanging.addresses(0.02)
    assert names.calls == 1
    names.answers.set()
    deadline = time.monotonic() + PATIENCE_S
    while not hanging.known and time.monotonic() < deadline:
        time.sleep(0.01)
    assert hanging.known == FOUND, "what is found later is known then"


def test_a_name_service_that_hangs_for_one_controller_serves_another(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def resolve(host: str, port: int, type: int) -> list[Any]:
        if host == "lost":
            assert hangs.wait(PATIENCE_S)
        return [(family, type, 6, "", address) for family, address in FOUND]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(OSError, match="lost: "):
        Resolver("lost", 80).addresses(0.02)
    assert Resolver("controller", 80).addresses(PATIENCE_S) == FOUND
    hangs.set()


def test_without_a_thread_to_be_had_the_name_is_not_found(names: NameService, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            Resolver("controller", 80).addresses(PATIENCE_S)
    assert Resolver("controller", 80).addresses(PATIENCE_S) == FOUND


def test_another_program_finds_what_this_process_cannot(monkeypatch: pytest.MonkeyPatch, names: NameService) -> None:
    monkeypatch.setattr(resolver._resolving, "interrupted", True)
    names.answers.clear()
    assert Resolver("localhost", 80).addresses(4.0)[0][1][0] in ("127.0.0.1", "::1")
    with pytest.raises(OSError, match="not resolved in time"):
        Resolver("nobody.invalid", 80).addresses(0.5)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(OSError, match="not resolved in time"):
        Resolver("localhost", 80).addresses(0.5)


def test_the_second_address_is_tried_where_the_first_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[bytes] = []

    def respond(connection: socket.socket, request: bytes) -> None:
        requests.append(request)
        connection.sendall(OK)

    with raw_server(respond) as url, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        full = [socket.socket() for _ in range(8)]  # its queue is full: it answers no more
        for sock in full:
            sock.setblocking(False)
            sock.connect_ex(deaf.getsockname())
        port = int(url.rpartition(":")[2])
        found = [(socket.AF_INET, 1, 6, "", deaf.getsockname()), (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        http = Transport(f"http://controller:{port}/api/", 4.0)
        answer = http.request("PUT", "/v1/studies/s", b"{}")
        http.close()
        for sock in full:
            sock.close()
    assert (answer.is_success, answer.json(), answer.text) == (True, {}, "{}")
    [request] = requests
    assert request.startswith(b"PUT /api/v1/studies/s HTTP/1.1\r\n")
    assert b"\r\nHost: controller:%d\r\n" % port in request


def test_a_path_that_cannot_be_is_an_error_of_the_caller() -> None:
    with raw_server(lambda connection, _: connection.sendall(OK)) as url:
        http = Transport(url, PATIENCE_S)
        for path in ("/a b", "/\xfc", "/a\r\nb"):
            with pytest.raises(ValueError):  # noqa: PT011  of whichever library
                http.request("GET", path)
        assert http.request("GET", "/v1/studies").is_success
        http.close()
