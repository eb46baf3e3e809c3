"""A client of 0.1.0, as recorded, with today's controller, and today's client with 0.1.0's; clients that are newer."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from beamer.client import Client
from beamer.protocol_version import HEADER, PROTOCOL_VERSION, parse_header
from beamer.studies.model import Rung
from controller.limits import Limits
from tests.compat.test_recorded_agents import FABRIC
from tests.support import plain_http
from tests.support.fake_controller import raw_server
from tests.support.recordings import check, entries
from tests.support.served_controller import Served, served

PATIENCE_S = 20.0
RECORDING = entries("client")
REQUESTS = [entry.content for entry in RECORDING if entry.sender == "client"]
ANSWERS = [entry.content for entry in RECORDING if entry.sender == "server"]
NAMED = {
    "studies": "StudyBody",
    "stages": "EmptyBody",
    "trials": "TrialBody",
    "attempts": "AttemptBody",
    "workers": "AttachBody",
}
"""The bodies of what is registered, by its folder."""
DONE = {
    "progress": "ProgressBody",
    "target": "TargetBody",
    "drop": "DropBody",
    "status": "StatusBody",
    "detach": "DetachBody",
    "seal": "EmptyBody",
    "pause": "EmptyBody",
}
STUDY = "/v1/studies/s"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(FABRIC, tmp_path / "journal.db") as made:
        yield made


@pytest.fixture
def http(controller: Served) -> Iterator[httpx.Client]:
    with plain_http.Client(base_url=controller.url, timeout=PATIENCE_S) as client:
        yield client


def test_a_recorded_client_is_answered_as_it_was(controller: Served) -> None:
    assert len(REQUESTS) == len(ANSWERS) > 15
    with socket.create_connection(controller.address) as connection, connection.makefile("rb") as stream:
        for request, recorded in zip(REQUESTS, ANSWERS, strict=True):
            connection.sendall(request.encode("latin-1"))
            status, headers, body = _read_answer(stream)
            before = recorded.partition("\r\n\r\n")
            assert status == before[0].split(" ")[1], request
            assert _comparable(json.loads(body)) == _comparable(json.loads(before[2]))
            assert parse_header(headers[HEADER.lower()]).version == PROTOCOL_VERSION


def _read_answer(stream: Any) -> tuple[str, dict[str, str], bytes]:
    status = stream.readline().decode().split(" ")[1]
    headers = {}
    while line := stream.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return status, headers, stream.read(int(headers["content-length"]))


def _comparable(value: Any) -> Any:
    """Return an answer without when things have happened, and without what it did not have in 0.1.0."""
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items() if not name.endswith("_s") and name != "members"}
    return [_comparable(one) for one in value] if isinstance(value, list) else value


def body_of(path: str) -> str:
    """Return the name of the body that a path takes."""
    parts = path.partition("?")[0].strip("/").split("/")[1:]  # without the version
    if parts[-1] == "end":
        return "AttemptEndBody" if "attempts" in parts else "EmptyBody"
    return DONE[parts[-1]] if parts[-1] in DONE else NAMED[parts[-2]]


@pytest.mark.parametrize("said", [None, "1"])
def test_todays_client_says_nothing_that_a_controller_of_0_1_0_does_not_know(
    said: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BEAMER_AGENT", "/nonexistent/agent.sock")
    heard: list[str] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        head, _, body = request.decode().partition("\r\n\r\n")
        heard.append(head.split(" ")[1])
        if body:
            check(f"body.{body_of(heard[-1])}", json.loads(body))
        header = "" if said is None else f"{HEADER}: {said}\r\n"
        connection.sendall(f"HTTP/1.1 200 OK\r\n{header}Content-Length: 16\r\n\r\n".encode() + b'{"changed":true}')

    with raw_server(answer) as url, Client(url, PATIENCE_S) as client:
        study = client.study("c", run="one", weight=2.0, rungs=[Rung("r1", 2, 10)], barriers=True)
        stage = study.stage("first")
        trial = study.trial("a", budget=20)
        stage.add(trial, 10)
        trial.milestone(15)
        trial.start(["h1", "h2"], 4096, "ring", 0.5, 0.25, attempt="one")
        trial.attach(0)
        assert client.flush(PATIENCE_S)
        trial.progress(3, 0.5)
        trial.detach(0)
        trial.pause()
        stage.remove(trial)
        stage.seal()
        trial.finish()
        study.end()
        assert client.flush(PATIENCE_S)
    assert len(heard) == 14
    assert not [record for record in caplog.records if "refused" in record.getMessage()]


def test_every_answer_says_the_version_and_the_limits_of_requests(http: httpx.Client) -> None:
    for answer in (http.get("/v1/health"), http.get("/nothing"), http.put(STUDY, content=b"x" * 600_000)):
        said = parse_header(answer.headers[HEADER])
        assert (said.version, said.limits) == (PROTOCOL_VERSION, {"body_bytes": Limits().body_bytes})


def test_of_a_newer_client_what_is_not_known_is_named_once_and_not_used(
    http: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        body = {"rungs": [{"name": "r", "trials": 1, "step": 5, "colour": "red"}], "mood": "good"}
        assert http.put(f"{STUDY}{number}", json=body, headers={HEADER: "3"}).status_code == 200
    (rung,) = http.get(f"{STUDY}0").json()["rungs"]
    assert (rung["name"], rung["step"]) == ("r", 5)
    log = capfd.readouterr().out
    assert log.count("a client speaks a newer version, of which this is not used") == 1
    assert "mood" in log
    assert "rungs.colour" in log


@pytest.mark.parametrize("said", [None, "1", "2"])
def test_a_client_that_is_not_newer_is_refused_what_is_unknown(http: httpx.Client, said: str | None) -> None:
    answer = http.put(STUDY, json={"wight": 1.0}, headers={HEADER: said} if said else {})
    assert answer.status_code == 422
    reason = "wight: got 1.0, expected one of barriers, run, rungs, weight (did you mean 'weight'?)"
    assert answer.json()["error"]["message"] == reason


def test_what_is_wrong_is_refused_of_a_newer_client_too(http: httpx.Client) -> None:
    answer = http.put(STUDY, json={"mood": "good", "weight": "heavy"}, headers={HEADER: "3"})
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("4", "protocol: got 4, expected version 1 to 3: upgrade the controller to protocol version 3 first"),
        ("soon", "Beamer-Protocol: got 'soon', expected a version such as 2, or one with limits such as 2;body_bytes=524288"),
    ],
)
def test_a_client_too_far_away_is_told_what_to_upgrade_first(http: httpx.Client, said: str, reason: str) -> None:
    answer = http.get("/v1/health", headers={HEADER: said})
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, reason)
    assert parse_header(answer.headers[HEADER]).version == PROTOCOL_VERSION
