"""A client and controllers of other versions: what it leaves out, what it does not send, and what it says once."""

import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from beamer.client import Client
from beamer.client import request as request_module
from beamer.client.request import Address, PutRequest
from beamer.client.transport import Transport
from beamer.protocol_version import HEADER, PROTOCOL_VERSION, PeerProtocol
from tests.support.fake_controller import PATIENCE_S, FakeBeamer, raw_server, refusal, warnings


@pytest.fixture
def beamer() -> Iterator[FakeBeamer]:
    made = FakeBeamer()
    yield made
    made.stop()


def test_an_answer_says_what_the_controller_speaks_and_takes(beamer: FakeBeamer) -> None:
    beamer.limits = {"body_bytes": 99}
    transport = Transport(beamer.url, PATIENCE_S)
    assert transport.request("GET", "/v1/x").protocol == PeerProtocol(PROTOCOL_VERSION, {"body_bytes": 99})
    transport.close()


@pytest.mark.parametrize("header", ["", "Beamer-Protocol: nonsense\r\n"])
def test_a_controller_that_says_nothing_of_it_speaks_the_first_version(header: str) -> None:
    heard: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        heard.append(request)
        connection.sendall(f"HTTP/1.1 200 OK\r\n{header}Content-Length: 2\r\n\r\n{{}}".encode())

    with raw_server(answer) as url:
        transport = Transport(url, PATIENCE_S)
        assert transport.request("GET", "/v1/x").protocol == PeerProtocol(1)
        transport.close()
    assert f"{HEADER}: {PROTOCOL_VERSION}\r\n".encode() in heard[0]


def test_a_body_that_the_controller_does_not_take_is_refused_here(beamer: FakeBeamer, caplog: pytest.LogCaptureFixture) -> None:
    beamer.limits = {"body_bytes": 200}
    with Client(beamer.url, PATIENCE_S) as client:
        trial = client.study("s", run="r").trial("t")
        assert client.flush(PATIENCE_S)
        trial.start([f"host-{number}" for number in range(100)], attempt="one")
        trial.progress(1)
        assert client.flush(PATIENCE_S)
    assert [path.rpartition("/")[2] for path in beamer.paths()] == ["s", "t", "progress"]
    (said,) = warnings(caplog)
    assert "s/t/attempts/one: body: " in said
    assert "and the controller takes at most 200" in said


@pytest.fixture
def newer_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(request_module.SINCE, (("progress",), "loss"), 2)


@pytest.mark.usefixtures("newer_key")
def test_a_key_that_came_later_is_left_out_for_an_older_controller() -> None:
    request = PutRequest(Address("s", trial="t"), ("progress",), {"step": 1, "loss": 0.5})
    request.encode()
    assert request.content_for(2) == request.content
    assert json.loads(request.content_for(1) or b"") == {"step": 1}
    assert PutRequest(Address("s", trial="t"), ("pause",)).content_for(1) is None


@pytest.mark.usefixtures("newer_key")
def test_a_controller_that_turns_out_to_be_older_is_told_again_without_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    heard: list[Any] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        heard.append(json.loads(request.partition(b"\r\n\r\n")[2]))
        status, body = ("422 X", refusal("loss")) if "loss" in heard[-1] else ("200 OK", {})
        content = json.dumps(body).encode()
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)

    with raw_server(answer) as url, Client(url, PATIENCE_S) as client:
        trial = client.trial("s", "t")
        for step in (1, 2):
            trial.progress(step, 0.5)
            assert client.flush(PATIENCE_S)
    assert heard == [{"step": 1, "loss": 0.5}, {"step": 1}, {"step": 2}]
    said = [record for record in caplog.records if "speaks version 1" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.INFO]
    assert warnings(caplog) == []


@pytest.mark.usefixtures("newer_key")
def test_a_proxys_failure_says_nothing_of_the_controllers_version() -> None:
    heard: list[Any] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        heard.append(json.loads(request.partition(b"\r\n\r\n")[2]))
        said = "502 X\r\n" if len(heard) == 1 else f"200 OK\r\n{HEADER}: {PROTOCOL_VERSION}\r\n"
        connection.sendall(f"HTTP/1.1 {said}Content-Length: 2\r\n\r\n{{}}".encode())

    with raw_server(answer) as url, Client(url, PATIENCE_S) as client:
        client.trial("s", "t").progress(1, 0.5)
        assert client.flush(PATIENCE_S)
    assert heard == 2 * [{"step": 1, "loss": 0.5}]


def test_a_controller_too_far_away_is_said_once_with_what_to_upgrade_first(
    beamer: FakeBeamer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.fake_controller.format_header", lambda _: "4")
    with Client(beamer.url, PATIENCE_S) as client:
        client.study("s", run="r").trial("t")
        assert client.flush(PATIENCE_S)
    (said,) = warnings(caplog)
    assert said.endswith("protocol: got 4, expected version 1 to 3: upgrade the client to protocol version 3 first")
