"""A client of 0.1.0, as recorded, at today's agent, and today's client at 0.1.0's; clients that are newer."""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from beamer.client.lease import attach
from beamer.network.protocol import WorkerLease
from tests.support.recordings import check, entries
from tests.unit.hostagent.workers.test_attach import Served

PATIENCE_S = 20.0
LINES = [entry.content for entry in entries("attach")]
REQUEST = {"study": "s", "trial": "t", "rank": 0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


@contextmanager
def agent(path: Path) -> Iterator[Served]:
    """Serve an agent's socket."""
    server = Served(path)
    try:
        yield server
    finally:
        server.stop()


def say(path: Path, line: str) -> Any:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(str(path))
        sock.sendall(line.encode())
        return json.loads(sock.makefile().readline())


def test_a_recorded_client_is_answered_as_it_was(path: Path) -> None:
    with agent(path):
        for request, answer in zip(LINES[::2], LINES[1::2], strict=True):
            assert say(path, request) == json.loads(answer)


def test_a_client_of_today_is_told_the_agents_version_and_its_lease_is_as_ever(path: Path) -> None:
    with agent(path) as server, socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(str(path))
        sock.sendall(json.dumps(REQUEST | {"protocol": 2}).encode() + b"\n")
        assert json.loads(sock.makefile().readline()) == {"attached": True, "agent": "h1", "protocol": 2}
        (lease,) = server.leases
        assert isinstance(lease, WorkerLease)
        assert (lease.study, lease.trial, lease.rank, lease.run) == ("s", "t", 0, None)


def test_of_a_newer_client_what_is_not_known_is_named_once_and_not_used(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with agent(path):
        for _ in range(2):
            assert say(path, json.dumps(REQUEST | {"protocol": 3, "mood": "good"}) + "\n")["attached"]
    named = [record.getMessage() for record in caplog.records if "mood" in record.getMessage()]
    assert named == ["newer client: a client speaks version 3: mood is not used"]


@pytest.mark.parametrize("more", [{"mood": "good"}, {"mood": "good", "protocol": 2}])
def test_a_client_that_is_not_newer_is_refused_what_is_unknown(path: Path, more: dict[str, Any]) -> None:
    with agent(path) as server:
        answer = say(path, json.dumps(REQUEST | more) + "\n")
        assert answer["error"].startswith("mood: got 'good', expected one of")
        assert answer.get("protocol") == more.get("protocol")
        assert server.leases == ()


@pytest.mark.parametrize("version", [4, 10**6])
def test_a_client_too_far_away_is_told_what_to_upgrade_first(path: Path, version: int) -> None:
    with agent(path):
        error = say(path, json.dumps(REQUEST | {"protocol": version}) + "\n")["error"]
        expected = f"version 1 to 3: upgrade the agent to protocol version {version - 1} first"
        assert error == f"protocol: got {version}, expected {expected}"


@contextmanager
def fake_agent(path: Path, answer: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """Answer clients at a path; yield what they say."""
    heard: list[Any] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    def attend(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            heard.append(json.loads(stream.readline()))
            said = answer(heard[-1])
            connection.sendall(json.dumps(said).encode() + b"\n")
            if "error" not in said:
                stream.readline()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        yield heard
        listener.shutdown(socket.SHUT_RDWR)


def test_todays_client_attaches_at_an_agent_of_0_1_0(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def answer(request: Any) -> Any:
        if "protocol" in request:
            return {"error": "protocol: got 2, expected one of rank, run, study, trial"}
        check("attach", request)
        return {"attached": True, "agent": "old"}

    with fake_agent(path, answer) as heard:
        held = attach("s", "t", 0, run="one", path=str(path))
        assert held is not None
        assert (held.attached, held.agent) == (True, "old")
        held.close()
    assert heard == [REQUEST | {"run": "one", "protocol": 2}, REQUEST | {"run": "one"}]
    (said,) = [record for record in caplog.records if "speaks version 1" in record.getMessage()]
    assert said.levelno == logging.INFO


def test_an_agent_that_has_read_nothing_is_not_taken_for_an_old_one(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with fake_agent(path, lambda _: {"error": "too many processes are attached"}) as heard:
        assert attach("s", "t", 0, path=str(path)) is None
    assert len(heard) == 1
    assert "speaks version" not in caplog.text


def test_another_refusal_is_the_agents_word(path: Path) -> None:
    with fake_agent(path, lambda _: {"error": "too many processes are attached", "protocol": 2}) as heard:
        assert attach("s", "t", 0, path=str(path)) is None
    assert len(heard) == 1
