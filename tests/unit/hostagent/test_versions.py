"""An agent and controllers of other versions: what it says, what it waits for, what it does not use, and whom it leaves."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from beamer.errors import InputError
from beamer.network.connection import Connection
from beamer.network.protocol import Assignment, Connections, Message, ReportLimits, Welcome, WorkerId
from beamer.protocol_version import HEADER, PeerProtocol
from hostagent import agent as module
from hostagent.agent import Agent, AgentOptions
from hostagent.desired import parse_message
from hostagent.enforce import PollResult
from hostagent.expiry.state import StateDirectory
from hostagent.limits import ASSIGNMENT_LIMITS
from hostagent.link import controllers
from tests.support.recordings import check
from tests.unit.hostagent.test_agent import PORT, FakeEnforcer, NoGuard, eventually

LIMITS = {"message_bytes": 100_000, "connections": 2, "leases": 1, "ports": 1, "classes": 1}
WELCOME = {"kind": "welcome", "limits": LIMITS}
ASSIGNED = Assignment(generation=1, ports=(PORT,), addresses=("10.0.0.1",))


class Controller:
    """A controller that says what it is told to. heard: the agent's messages. said: its header."""

    def __init__(self, said: str | None, messages: list[Any]) -> None:
        self.said = said
        self.messages = messages
        self.heard: list[Any] = []
        self.headers: list[str | None] = []
        self.url = ""

    def kinds(self) -> list[str]:
        return [message["kind"] for message in self.heard]

    def attend(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.headers.append(socket.request.headers.get(HEADER))
        with suppress(ConnectionClosed):
            self.heard.append(json.loads(socket.recv()))
            for message in self.messages:
                socket.send(json.dumps(message))
            for text in socket:
                self.heard.append(json.loads(text))

    def add_header(self, _: ServerConnection, __: Any, response: Any) -> None:
        if self.said is not None:
            response.headers[HEADER] = self.said


@contextmanager
def exchange(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str | None,
    *messages: Any,
    enforcer: FakeEnforcer | None = None,
) -> Iterator[Controller]:
    """Have an agent talk with a controller that sends messages after the hello."""
    monkeypatch.setattr(module, "Guard", NoGuard)
    monkeypatch.setattr(module, "Enforcer", lambda _: enforcer or FakeEnforcer())
    controller = Controller(said, [*messages])
    loop = asyncio.new_event_loop()
    with serve(controller.attend, "127.0.0.1", 0, process_response=controller.add_header) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        controller.url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        agent = Agent(AgentOptions("h1", (controller.url,), counters_s=0.05), StateDirectory(tmp_path / "h1"))
        task = loop.create_task(agent.run())

        def run() -> None:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield controller
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()
            loop.close()
            server.shutdown()


def test_a_controller_of_version_1_is_told_nothing_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with exchange(tmp_path, monkeypatch, None, json.loads(ASSIGNED.model_dump_json())) as controller:
        eventually(lambda: {"hello", "workers", "connections", "applied", "counters"} <= set(controller.kinds()))
    for message in controller.heard:
        check("agent", message)
    assert controller.headers[0] == "2"


def test_a_controller_of_today_is_told_what_the_agent_takes_and_its_limits_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with exchange(tmp_path, monkeypatch, "2", WELCOME, json.loads(ASSIGNED.model_dump_json())) as controller:
        eventually(lambda: "applied" in controller.kinds())
    assert controller.heard[0]["limits"] == ASSIGNMENT_LIMITS.model_dump()


def test_nothing_is_reported_before_the_limits_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with exchange(tmp_path, monkeypatch, "2") as controller:
        eventually(lambda: controller.kinds() == ["hello"])
        threading.Event().wait(0.3)
        assert controller.kinds() == ["hello"]


class Crowded(FakeEnforcer):
    """Finds more connections than the controller takes, and more workers gone."""

    def poll(self) -> PollResult:
        found = tuple(Connection("s/t", 0, "10.0.0.1", port, "10.0.0.2", 9) for port in range(1, 6))
        return PollResult(Connections(connections=found), True, tuple(WorkerId(job="s/t", rank=n) for n in range(3)), (), None)


def test_no_more_is_reported_than_the_controller_takes_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assigned = json.loads(ASSIGNED.model_dump_json())
    with exchange(tmp_path, monkeypatch, "2", WELCOME, assigned, enforcer=Crowded()) as controller:
        eventually(lambda: any(message.get("connections") for message in controller.heard))
        eventually(lambda: any(message.get("gone") for message in controller.heard))
        eventually(lambda: any(message.get("refused") for message in controller.heard))
    refused = [message["refused"] for message in controller.heard if message.get("refused")]
    reason = "this agent has more connections than the controller takes, 2 in 100000 bytes"
    assert refused[-1] == [[{"job": "s/t", "rank": 0}, reason]]
    assert max(len(message.get("connections", ())) for message in controller.heard) == 2
    assert max(len(message.get("gone", ())) for message in controller.heard) == 1
    reported = [message for message in controller.heard if message.get("left_out")]
    assert {"connections": 3} in [message["left_out"] for message in reported]
    said = [record.getMessage() for record in caplog.records if "left out of Connections" in record.getMessage()]
    assert said == ["the controller takes less than there is to report; left out of Connections: 3 connections"]


def test_a_controller_of_version_1_is_told_no_more_than_it_takes_though_it_does_not_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers, "REPORT_LIMITS_OF_VERSION_1", ReportLimits(**LIMITS))
    assigned = json.loads(ASSIGNED.model_dump_json())
    with exchange(tmp_path, monkeypatch, None, assigned, enforcer=Crowded()) as controller:
        eventually(lambda: any(message.get("connections") for message in controller.heard))
    for message in controller.heard:
        check("agent", message)
        assert len(message.get("connections", ())) <= 2


def test_of_a_newer_controller_what_is_not_known_is_named_once_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assigned = json.loads(ASSIGNED.model_dump_json())
    newer = [assigned | {"generation": n, "mood": "good"} for n in (1, 2)]
    welcome = {"kind": "welcome", "limits": LIMITS | {"moons": 3}}
    with exchange(tmp_path, monkeypatch, "3", welcome, {"kind": "horoscope"}, *newer) as controller:
        eventually(lambda: any(m["kind"] == "applied" and m["generation"] == 2 for m in controller.heard))
    assert all(message["error"] is None for message in controller.heard if message["kind"] == "applied")
    named = [record.getMessage() for record in caplog.records if "newer controller" in record.getMessage()]
    assert named == [
        f"newer controller: the controller speaks version 3: {field} is not used"
        for field in ("limits.moons", "horoscope", "mood")
    ]


@pytest.mark.parametrize("said", [None, "2"])
def test_of_a_controller_that_is_not_newer_what_is_unknown_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    assigned = json.loads(ASSIGNED.model_dump_json()) | {"mood": "good"}
    with exchange(tmp_path, monkeypatch, said, *([WELCOME] if said else []), assigned) as controller:
        eventually(lambda: "applied" in controller.kinds())
    (answer,) = [message for message in controller.heard if message["kind"] == "applied"]
    assert answer["error"].startswith("mood: got 'good'")


@pytest.mark.parametrize(
    ("said", "messages", "reason"),
    [
        ("4", [], "protocol: got 4, expected version 1 to 3: upgrade the agent to protocol version 3 first"),
        ("soon", [], "Beamer-Protocol: got 'soon'"),
        ("2", [{"kind": "assignment", "generation": 1}], "expected a welcome as the controller's first message"),
    ],
)
def test_a_controller_that_cannot_be_understood_is_left_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    said: str,
    messages: list[Any],
    reason: str,
) -> None:
    with exchange(tmp_path, monkeypatch, said, *messages):
        eventually(lambda: any(reason in record.getMessage() for record in caplog.records))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


class Late(Message):
    since: ClassVar[int] = 2
    kind: Literal["late"] = "late"


def test_a_message_that_the_controller_does_not_know_is_not_sent_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    agent = Agent(AgentOptions("h1", ("ws://127.0.0.1:1",)), StateDirectory(tmp_path / "h1"))
    for version in (1, 1, 2):
        takes = ReportLimits(**LIMITS)
        connection: Any = SimpleNamespace(socket=SimpleNamespace(send=send), protocol=PeerProtocol(version), takes=takes)
        agent._connection = connection
        asyncio.run(agent._send(Late()))
    agent._thread.shutdown()
    assert sent == ['{"kind":"late"}']
    assert [r.getMessage() for r in caplog.records] == ["older controller: the controller speaks version 1: Late is not sent"]


def test_a_welcome_is_known_from_version_2_on() -> None:
    assert isinstance(parse_message(json.dumps(WELCOME), 2).message, Welcome)
    with pytest.raises(InputError):
        parse_message(json.dumps(WELCOME), 1)
