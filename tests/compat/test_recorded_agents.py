"""Agents of 0.1.0, as recorded, with today's controller, and today's agent with 0.1.0's controller; peers that are newer."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from beamer.network.fabric import Fabric
from beamer.network.protocol import Welcome
from beamer.protocol_version import HEADER, PROTOCOL_VERSION, parse_header
from controller.agents.hello import report_limits
from controller.limits import Limits
from hostagent.desired import desired_state, parse_message
from tests.support import plain_http
from tests.support.recordings import Entry, check, entries
from tests.support.served_controller import Served, served

PATIENCE_S = 20.0
HOSTS = {"h1": "10.77.0.1", "h2": "10.77.0.2"}
LINKS = [
    {"src": src, "dst": dst, "rate_bps": 20_000_000, "port": port, "interface": interface}
    for number, name in enumerate(HOSTS, 1)
    for src, dst, port, interface in ((name, "s1", 1, "data"), ("s1", name, number, f"to-{name}"))
]
FABRIC = Fabric.from_dict(
    {
        "name": "pair",
        "hosts": [
            {"name": name, "ip": ip, "mac": f"02:00:00:00:00:0{number}", "agent": name}
            for number, (name, ip) in enumerate(HOSTS.items(), 1)
        ],
        "switches": [{"name": "s1", "dpid": 1}],
        "links": LINKS,
    }
)
RECORDING = entries("agents")


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(FABRIC, tmp_path / "journal.db") as made:
        yield made


@contextmanager
def agent(controller: Served, name: str = "h1", said: str | None = None) -> Iterator[ClientConnection]:
    headers = {} if said is None else {HEADER: said}
    url = f"{controller.url.replace('http', 'ws')}/v1/agents/{name}"
    with connect(url, additional_headers=headers, compression=None, proxy=None) as socket:
        yield socket


def reason_of_end(socket: ClientConnection) -> str:
    with suppress(ConnectionClosed):
        while True:
            socket.recv(PATIENCE_S)
    return socket.protocol.close_reason or ""


def test_the_recording_holds_every_kind_of_message() -> None:
    texts = [entry for entry in RECORDING if entry.kind == "text"]
    kinds = {(entry.sender, entry.json["kind"]) for entry in texts}
    of_agents = ("hello", "workers", "connections", "counters", "applied")
    assert kinds == {("client", kind) for kind in of_agents} | {("server", "assignment")}
    assert any(entry.json.get("leases") for entry in texts)
    assert any(entry.json.get("gone") or entry.json.get("refused") for entry in texts), "a worker was killed"
    assert any(entry.sender == "server" and entry.json["connections"] for entry in texts), "some were marked"


def test_recorded_agents_are_served_to_their_last_report(controller: Served) -> None:
    _declare(controller)
    numbers = {"h1": 0, "h2": 0}
    for entry in RECORDING:
        if entry.kind == "text" and entry.json["kind"] == "hello":
            numbers[entry.json["agent"]] = entry.connection
    with ExitStack() as stack:
        sockets = {number: stack.enter_context(agent(controller, name)) for name, number in numbers.items()}
        sent = [entry for entry in RECORDING if entry.kind == "text" and entry.sender == "client"]
        received: list[Any] = []
        for entry in sent:
            _say(sockets[entry.connection], entry, received)
        assert controller.until(lambda runtime: set(runtime.agents.connected) == set(HOSTS))
        last = {e.connection: e.json for e in sent if e.json["kind"] == "counters"}
        assert controller.until(
            lambda runtime: (
                {name: counters.at_s for name, counters in runtime.agents.counters.items()}
                == {name: last[number]["at_s"] for name, number in numbers.items()}
            )
        )
        for socket in sockets.values():
            assert socket.protocol.close_code is None
            _receive(socket, received)
    assert received
    for message in received:
        check("assignment", message)
    assert any(message["workers"] for message in received), "leases were taken in"


def test_an_agent_of_version_1_is_sent_no_welcome_and_nothing_that_it_does_not_know(controller: Served) -> None:
    with agent(controller) as socket:
        assert socket.response is not None
        assert parse_header(socket.response.headers[HEADER]).version == PROTOCOL_VERSION
        socket.send('{"kind":"hello","agent":"h1","generation":0}')
        check("assignment", json.loads(socket.recv(PATIENCE_S)))


@pytest.mark.parametrize("version", [PROTOCOL_VERSION, PROTOCOL_VERSION + 1])
def test_an_agent_that_knows_of_it_is_told_what_is_taken_before_anything_else(controller: Served, version: int) -> None:
    with agent(controller, said=str(version)) as socket:
        welcome = Welcome.model_validate_json(socket.recv(PATIENCE_S))
        assert welcome.limits == report_limits(Limits())
        socket.send('{"kind":"hello","agent":"h1","generation":0}')
        assert json.loads(socket.recv(PATIENCE_S))["kind"] == "assignment"


def test_of_a_newer_agent_what_is_not_known_is_named_once_and_not_used(
    controller: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    with agent(controller, said="3") as socket:
        socket.recv(PATIENCE_S)
        socket.send('{"kind":"hello","agent":"h1","generation":0,"cooling":"water"}')
        socket.recv(PATIENCE_S)
        for at_s in (1, 2):
            socket.send('{"kind":"temperature","celsius":40}')
            socket.send(
                json.dumps({"kind": "counters", "at_s": at_s, "ports": [{"interface": "data", "classes": [], "hot": 1}]})
            )
        assert controller.until(lambda runtime: "h1" in runtime.agents.counters and runtime.agents.counters["h1"].at_s == 2)
        assert controller.ask(lambda runtime: runtime.agents.connected) == {"h1"}
    log = capfd.readouterr().out
    for name in ("hello.cooling", "temperature", "counters.ports.hot"):
        assert log.count(name) == 1, log
    assert "an agent speaks a newer version, of which this is not used" in log


@pytest.mark.parametrize("said", [None, "2"])
def test_an_agent_that_is_not_newer_is_refused_what_is_unknown(controller: Served, said: str | None) -> None:
    with agent(controller, said=said) as socket:
        socket.send('{"kind":"hello","agent":"h1","generation":0,"cooling":"water"}')
        assert "hello.cooling: got 'water'" in reason_of_end(socket)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("4", "protocol: got 4, expected version 1 to 3: upgrade the controller to protocol version 3 first"),
        ("two", "Beamer-Protocol: got 'two', expected a version such as 2"),
    ],
)
def test_an_agent_too_far_away_is_told_what_to_upgrade_first(controller: Served, said: str, reason: str) -> None:
    with agent(controller, said=said) as socket:
        assert reason_of_end(socket).startswith(reason)


def test_what_exceeds_an_agents_limits_is_left_out_and_said_once(controller: Served, capfd: pytest.CaptureFixture[str]) -> None:
    limits = {"message_bytes": 4000, "ports": 1, "workers": 1, "connections": 1, "addresses": 1, "classes": 100}
    with agent(controller, said="2") as socket:
        socket.recv(PATIENCE_S)
        socket.send(json.dumps({"kind": "hello", "agent": "h1", "generation": 0, "limits": limits}))
        assert len(json.loads(socket.recv(PATIENCE_S))["addresses"]) == 1
        assert controller.until(lambda runtime: runtime.agents.left_out == {("h1", "assignment", "addresses"): 1})
    log = capfd.readouterr().out
    assert log.count("an agent takes less than it is assigned") == 1
    assert "1 addresses" in log


def test_recorded_assignments_are_carried_out_by_todays_agent() -> None:
    sent = [entry.content for entry in RECORDING if entry.kind == "text" and entry.sender == "server"]
    assert sent
    for text in sent:
        decoded = parse_message(text)
        assert decoded.message is not None
        assert decoded.message.kind == "assignment"
        desired_state(decoded.message)


def test_the_schema_refuses_what_0_1_0_refuses() -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        check("agent", {"kind": "hello", "agent": "h1", "generation": 0, "limits": None})
    check("agent", {"kind": "hello", "agent": "h1", "generation": 0})
    with pytest.raises(jsonschema_rs.ValidationError):
        check("assignment", {"generation": 1, "workers": [], "new": 1})


def _declare(controller: Served) -> None:
    with plain_http.Client(base_url=controller.url) as http:
        workers = [{"rank": rank, "host": host} for rank, host in enumerate(HOSTS)]
        for path, body in (
            ("/v1/studies/s", {}),
            ("/v1/studies/s/trials/t", {}),
            ("/v1/studies/s/trials/t/attempts/first", {"workers": workers, "sync_bytes": 16384}),
        ):
            assert http.put(path, json=body).is_success


def _say(socket: ClientConnection, entry: Entry, received: list[Any]) -> None:
    socket.send(entry.content)
    _receive(socket, received)


def _receive(socket: ClientConnection, received: list[Any]) -> None:
    while True:
        try:
            received.append(json.loads(socket.recv(0.05)))
        except TimeoutError:
            return
