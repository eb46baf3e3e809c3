"""An engine of 0.1.0, as recorded, with today's controller, and today's engine with 0.1.0's; peers that are newer."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

from beamer.gpu.events import ReportRefused
from beamer.gpu.link import EngineLink
from beamer.gpu.model import Node
from beamer.gpu.protocol import MAX_EVENTS, EngineHello, EngineLimits, EngineWelcome, SearchLimits
from beamer.protocol_version import HEADER
from beamer.studies.events import decode
from controller.limits import Limits
from tests.support.recordings import check, entries
from tests.support.served_controller import Served, served
from topologies.single import build

PATIENCE_S = 20.0
NODES = (Node("h1", 2), Node("h2", 2))
RECORDING = [entry for entry in entries("engine") if entry.kind == "text"]
SAID = [entry.json for entry in RECORDING if entry.sender == "client"]
ANSWERED = [entry.json for entry in RECORDING if entry.sender == "server"]
EVENTS = [tuple(event) for message in SAID if message["kind"] == "events" for event in message["events"]]
EMPTY = {"number": 1, "taken": 0, "known": False, "settled": True, "ended": False, "left": False, "policy": "fifo"}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(build(hosts=2), tmp_path / "journal.db", gpus="hermes") as made:
        yield made


@contextmanager
def engine(controller: Served, said: str | None = None) -> Iterator[ClientConnection]:
    url = f"{controller.url.replace('http', 'ws')}/v1/studies/s1/engine"
    headers = {} if said is None else {HEADER: said}
    with connect(url, additional_headers=headers, compression=None, proxy=None) as socket:
        yield socket


def test_every_kind_of_message_is_recorded() -> None:
    assert {message["kind"] for message in SAID} == {"hello", "events", "used", "left"}
    assert {message["kind"] for message in ANSWERED} == {"assignment"}
    assert any(message["grants"] for message in ANSWERED)
    assert {kind for kind, _ in EVENTS} > {"StudyRegistered", "GpusRequested", "RanksSeen", "TrialReported", "RunFinished"}


@pytest.mark.timeout(180)
def test_a_recorded_engine_is_served_to_its_end(controller: Served) -> None:
    with engine(controller) as socket:
        last: Any = {"taken": 0, "left": False}
        for message in SAID:
            socket.send(json.dumps(message))
            if message["kind"] == "hello":
                last = _received(socket)
            while message["kind"] == "events" and last["taken"] < message["first"] + len(message["events"]) - 1:
                last = _received(socket)
        while not last["left"]:
            last = _received(socket)
        assert last["taken"] == len(EVENTS)
        assert last["ended"]


def _received(socket: ClientConnection) -> Any:
    message = json.loads(socket.recv(PATIENCE_S))
    check("to_engine", message)
    assert message["kind"] == "assignment", message
    return message


def test_an_engine_that_knows_of_it_is_told_what_is_taken(controller: Served) -> None:
    with engine(controller, "2") as socket:
        welcome = EngineWelcome.model_validate_json(socket.recv(PATIENCE_S))
        assert welcome.limits == SearchLimits(message_bytes=Limits().message_bytes, events=MAX_EVENTS)
        socket.send(EngineHello(run="r", nodes=NODES, limits=EngineLimits(message_bytes=4096)).model_dump_json())
        assert json.loads(socket.recv(PATIENCE_S))["kind"] == "assignment"


def test_what_exceeds_an_engines_limits_is_not_sent_and_said_once(
    controller: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    with engine(controller, "2") as socket:
        socket.recv(PATIENCE_S)
        socket.send(EngineHello(run="r", nodes=NODES, limits=EngineLimits(message_bytes=100)).model_dump_json())
        with pytest.raises(TimeoutError):
            socket.recv(0.5)
    log = capfd.readouterr().out
    assert log.count("an assignment is not sent, as it is more than its engine takes") == 1
    assert "the engine takes at most 100" in log


def test_of_a_newer_engine_what_is_not_known_is_named_once_and_not_used(
    controller: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    with engine(controller, "3") as socket:
        socket.recv(PATIENCE_S)
        hello = {"kind": "hello", "run": "r", "nodes": [{"name": "h1", "gpus": 2, "colour": "red"}], "mood": "good"}
        socket.send(json.dumps(hello))
        socket.recv(PATIENCE_S)
        socket.send('{"kind": "weather"}')
        socket.send('{"kind": "used", "assignment": 0, "devices": []}')
        while not json.loads(socket.recv(PATIENCE_S))["settled"]:
            pass
    log = capfd.readouterr().out
    assert log.count("an engine speaks a newer version, of which this is not used") == 2
    for name in ("hello.mood", "hello.nodes.colour", "weather"):
        assert log.count(name) == 1, log


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, "hello.mood: got 'good'"),
        ("2", "hello.mood: got 'good'"),
        ("4", "protocol: got 4, expected version 1 to 3: upgrade the controller to protocol version 3 first"),
    ],
)
def test_an_engine_that_is_not_next_is_refused(controller: Served, said: str | None, reason: str) -> None:
    with engine(controller, said) as socket:
        with suppress(ConnectionClosed):
            socket.send(json.dumps({"kind": "hello", "run": "r", "nodes": [], "mood": "good"}))
        messages = []
        with suppress(ConnectionClosed):
            while True:
                messages.append(json.loads(socket.recv(PATIENCE_S)))
    assert messages[-1]["kind"] == "refused"
    assert messages[-1]["reason"].startswith(reason)


def test_an_event_of_a_later_version_is_refused_with_what_to_upgrade(controller: Served) -> None:
    with engine(controller, "3") as socket:
        assert json.loads(socket.recv(PATIENCE_S))["kind"] == "welcome"
        socket.send(EngineHello(run="r", nodes=NODES).model_dump_json())
        socket.send(json.dumps({"kind": "events", "first": 1, "events": [["StudyRegistered@2", "{}"]]}))
        while (message := json.loads(socket.recv(PATIENCE_S)))["kind"] == "assignment":
            pass
    assert "StudyRegistered@2" in message["reason"]
    assert "a newer Beamer wrote it: upgrade this one" in message["reason"]


@contextmanager
def fake_controller(answer: Callable[[ServerConnection, Any], None], said: str | None = None) -> Iterator[list[Any]]:
    """Serve engines by what `answer` does with each of their messages; yield the URL, and then what they say."""
    heard: list[Any] = []

    def attend(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            for text in socket:
                heard.append(json.loads(text))
                answer(socket, heard[-1])

    def add_header(_: ServerConnection, __: Any, response: Any) -> None:
        if said is not None:
            response.headers[HEADER] = said

    with serve(attend, "127.0.0.1", 0, process_response=add_header, compression=None) as server:
        heard.append(f"http://127.0.0.1:{server.socket.getsockname()[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield heard
        server.shutdown()


def assign(socket: ServerConnection, **changed: Any) -> None:
    socket.send(json.dumps({"kind": "assignment", "grants": {}, "devices": {}} | EMPTY | changed))


def test_todays_engine_says_nothing_that_a_controller_of_0_1_0_does_not_know() -> None:
    def answer(socket: ServerConnection, message: Any) -> None:
        check("engine", message)
        for kind, content in message.get("events", ()):
            check(f"event.{kind}", json.loads(content))
        taken = message["first"] + len(message["events"]) - 1 if message["kind"] == "events" else 0
        assign(socket, taken=taken, left=message["kind"] == "left")

    with fake_controller(answer) as heard:
        link = EngineLink(heard.pop(), "s1", "r", NODES, {})
        link.start()
        for event in EVENTS:
            link.offer(decode(*event))
        assert link.flush(PATIENCE_S)
        link.use((("h1", 0),))
        assert link.leave(PATIENCE_S)
        link.close()
    assert [message["kind"] for message in heard[:1] + heard[-1:]] == ["hello", "left"]
    assert "limits" not in heard[0]
    assert [tuple(event) for m in heard if m["kind"] == "events" for event in m["events"]] == EVENTS


def test_recorded_assignments_hold_for_todays_engine() -> None:
    def answer(socket: ServerConnection, message: Any) -> None:
        if message["kind"] == "hello":
            for assignment in ANSWERED:
                socket.send(json.dumps(assignment))

    with fake_controller(answer) as heard:
        link = EngineLink(heard.pop(), "s1", "r", NODES, {})
        link.start()
        while link._assignment is None or link._assignment.number < ANSWERED[-1]["number"]:
            link.wait(PATIENCE_S)
            assert not link.refusal
        link.close()


def test_events_are_sent_in_messages_that_the_controller_takes() -> None:
    def answer(socket: ServerConnection, message: Any) -> None:
        if message["kind"] == "hello":
            assert message["limits"] == {"message_bytes": 4 << 20}
            socket.send(json.dumps({"kind": "welcome", "limits": {"message_bytes": 2000, "events": 5}}))
            assign(socket)
        elif message["kind"] == "events":
            assign(socket, taken=message["first"] + len(message["events"]) - 1)

    with fake_controller(answer, said="2") as heard:
        link = EngineLink(heard.pop(), "s1", "r", NODES, {})
        for event in EVENTS:
            link.offer(decode(*event))
        link.start()
        assert link.flush(PATIENCE_S)
        link.close()
    sent = [message for message in heard if message["kind"] == "events"]
    assert all(len(message["events"]) <= 5 for message in sent)
    assert all(len(json.dumps(message, separators=(",", ":"))) <= 2000 for message in sent)


def test_an_event_that_the_controller_can_never_take_ends_its_service_with_the_reason() -> None:
    def answer(socket: ServerConnection, message: Any) -> None:
        if message["kind"] == "hello":
            socket.send(json.dumps({"kind": "welcome", "limits": {"message_bytes": 80, "events": 5}}))
            assign(socket)

    with fake_controller(answer, said="2") as heard:
        link = EngineLink(heard.pop(), "s1", "r", NODES, {})
        link.offer(decode(*EVENTS[0]))
        link.start()
        assert not link.flush(PATIENCE_S)
        assert "StudyRegistered takes" in link.refusal
        assert "the controller takes at most 80 of them" in link.refusal
        link.close()


def test_a_report_that_the_controller_can_never_take_is_left_out_and_all_else_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(socket: ServerConnection, message: Any) -> None:
        if message["kind"] == "hello":
            socket.send(json.dumps({"kind": "welcome", "limits": {"message_bytes": 400, "events": 5}}))
            assign(socket)
        elif message["kind"] == "events":
            assign(socket, taken=message["first"] + len(message["events"]) - 1)

    reports = [ReportRefused(1.0, "s1/t", reason) for reason in ("short", "x" * 1000, "y" * 1000, "last", "z" * 1000)]
    with fake_controller(answer, said="2") as heard:
        link = EngineLink(heard.pop(), "s1", "r", NODES, {})
        for report in reports:
            link.offer(report)
        link.start()
        assert link.flush(PATIENCE_S), "the last one is left out, too, and is not waited for"
        assert link.refusal == ""
        link.close()
    sent = [event for message in heard if message["kind"] == "events" for event in message["events"]]
    assert [json.loads(content)["reason"] for _, content in sent] == ["short", "last"]
    assert caplog.text.count("a report is left out") == 1


def test_of_a_newer_controller_what_is_not_known_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    def answer(socket: ServerConnection, message: Any) -> None:
        if message["kind"] == "hello":
            socket.send(json.dumps({"kind": "welcome", "limits": {"message_bytes": 2000, "events": 5, "moons": 1}}))
            socket.send(json.dumps({"kind": "horoscope"}))
            for number in (1, 2):
                assign(socket, number=number, mood="good")

    with fake_controller(answer, said="3") as heard:
        link = EngineLink(heard.pop(), "s1", "r", NODES, {})
        link.start()
        while link._assignment is None or link._assignment.number < 2:
            link.wait(PATIENCE_S)
        link.close()
    named = [r.getMessage() for r in caplog.records if "speaks version 3" in r.getMessage()]
    assert named == [
        f"the controller speaks version 3: {field} is not used"
        for field in ("welcome.limits.moons", "horoscope", "assignment.mood")
    ]


def test_a_controller_too_far_away_is_not_talked_to(caplog: pytest.LogCaptureFixture) -> None:
    with fake_controller(lambda *_: None, said="4") as heard:
        link = EngineLink(heard.pop(), "s1", "r", NODES, {})
        link.start()
        while not any("upgrade the engine to protocol version 3 first" in record.getMessage() for record in caplog.records):
            link.wait(0.05)
        link.close()
    assert heard == []
