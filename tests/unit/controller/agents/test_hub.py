import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import uvicorn
from fastapi import FastAPI, WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from beamer.network.connection import Connection
from beamer.network.protocol import (
    Applied,
    Assignment,
    AssignmentLimits,
    ClassCounter,
    Connections,
    Counters,
    Hello,
    Message,
    PortCounters,
    WorkerId,
    Workers,
)
from beamer.protocol_version import HEADER, PROTOCOL_VERSION
from controller.agents import hello as hello_module
from controller.agents import hub as hub_module
from controller.agents.hub import SUCCESSION_S, AgentHub
from controller.limits import Limits
from controller.peer_session import HELLO_S, Pace
from controller.websocket import REFUSED
from tests.support.effort import turns


class Listener:
    def __init__(self) -> None:
        self.received: list[tuple[str, Applied | Workers | Connections | Counters]] = []
        self.lost: list[str] = []
        self.seen: set[Connection] = set()

    def agent_joined(self, agent: str) -> Assignment:
        return Assignment(generation=7, addresses=("10.0.0.1",))

    def on_agent_message(self, agent: str, message: Applied | Workers | Connections | Counters) -> int:
        self.received.append((agent, message))
        if not isinstance(message, Connections):
            return 0
        before, self.seen = self.seen, {*message.connections}
        return len(before ^ self.seen)

    def agent_lost(self, agent: str) -> None:
        self.lost.append(agent)


ConnectAs = Callable[..., Any]
LIMITS = Limits()
OF_TODAY = {HEADER: str(PROTOCOL_VERSION)}


@asynccontextmanager
async def serving(hub: AgentHub, ping_s: float) -> AsyncIterator[ConnectAs]:
    app = FastAPI()

    @app.websocket("/v1/agents/{name}")
    async def agent(websocket: WebSocket, name: str) -> None:
        await hub.serve(name, websocket)

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, ws_ping_interval=ping_s, ws_ping_timeout=ping_s
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield lambda name, **said: connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/agents/{name}", **said)
    finally:
        server.should_exit = True
        await task


def scene(
    play: Callable[[AgentHub, Listener, ConnectAs], Coroutine[Any, Any, None]],
    limits: Limits = LIMITS,
    succession_s: float = SUCCESSION_S,
    hello_s: float = HELLO_S,
    ping_s: float = 20.0,
) -> None:
    async def run() -> None:
        listener = Listener()
        hub = AgentHub(["h1", "h2"], listener, limits)
        async with serving(hub, ping_s) as connect_as:
            await play(hub, listener, connect_as)

    with patch.object(hub_module, "SUCCESSION_S", succession_s), patch.object(hello_module, "HELLO_S", hello_s):
        asyncio.run(run())


async def send(connection: ClientConnection, message: Message) -> None:
    await connection.send(message.model_dump_json())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


async def closed(connection: ClientConnection) -> tuple[int | None, str | None]:
    try:
        while True:
            await connection.recv()
    except ConnectionClosed:
        return connection.close_code, connection.close_reason


def test_an_agent_that_does_not_know_the_codepoints_is_refused_with_what_to_do() -> None:
    async def run() -> None:
        hub = AgentHub(["h1"], Listener(), LIMITS, least_version=2)
        async with serving(hub, 20.0) as connect_as:
            async with connect_as("h1") as connection:  # It says no version.
                code, reason = await closed(connection)
                assert code == REFUSED
                assert reason == ("agent.protocol: got 1, expected 2 or later, which knows these codepoints: upgrade the agent")
            async with connect_as("h1", additional_headers=OF_TODAY) as connection:
                assert '"welcome"' in str(await connection.recv())

    asyncio.run(run())


def test_agent_is_given_its_assignment_and_heard() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        counters = Counters(
            at_s=1.0,
            ports=(
                PortCounters(
                    interface="eth0",
                    classes=(ClassCounter(klass=0, sent_bytes=5, sent_packets=1, dropped_packets=0, backlog_bytes=0),),
                ),
            ),
        )
        async with connect_as("h1") as connection:
            await send(connection, Hello(agent="h1", generation=0))
            assert Assignment.model_validate_json(await connection.recv()).generation == 7
            assert hub.connected == {"h1"}
            await send(connection, Applied(generation=7, changes=3))
            await send(connection, Connections(connections=()))
            await send(connection, counters)
            await until(lambda: hub.counters == {"h1": counters})
            heard = Applied(generation=7, changes=3), Connections(connections=()), counters
            assert listener.received == [("h1", message) for message in heard]
            hub.send("h1", Assignment(generation=8))
            hub.send("h2", Assignment(generation=8))
            assert Assignment.model_validate_json(await connection.recv()).generation == 8
        await until(lambda: listener.lost == ["h1"])
        assert hub.connected == frozenset()

    scene(play)


def test_unknown_agent_gets_the_reason() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h3") as connection:
            code, reason = await closed(connection)
        assert code == REFUSED
        assert reason is not None
        assert "agent: got 'h3', expected one of h1, h2" in reason
        assert not listener.lost

    scene(play)


def test_agent_that_sends_something_else_first_gets_the_reason() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        for text in (
            Hello(agent="h2", generation=0).model_dump_json(),
            "nonsense",
            Applied(generation=1, changes=0).model_dump_json(),
        ):
            async with connect_as("h1") as connection:
                await connection.send(text)
                code, reason = await closed(connection)
            assert code == REFUSED
            assert reason
        assert not listener.received

    scene(play)


async def joined(connection: ClientConnection, name: str = "h1") -> None:
    await send(connection, Hello(agent=name, generation=0))
    await connection.recv()


def test_of_two_of_a_name_the_one_that_is_served_stays() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1") as served:
            await joined(served)
            for _ in range(3):
                async with connect_as("h1") as second:
                    await send(second, Hello(agent="h1", generation=0))
                    code, reason = await closed(second)
                assert code == REFUSED
                assert "one is, and answers" in (reason or "")
            assert hub.connected == {"h1"}
            hub.send("h1", Assignment(generation=9))
            assert Assignment.model_validate_json(await served.recv()).generation == 9
            assert not listener.lost

    scene(play, succession_s=0.1)


def test_one_that_is_dead_gives_way_to_its_successor() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1") as dead, connect_as("h1") as successor:
            await joined(dead)
            dead.transport.pause_reading()  # it does not answer pings any more
            await send(successor, Hello(agent="h1", generation=0))
            assert Assignment.model_validate_json(await successor.recv()).generation == 7
            assert listener.lost == ["h1"]
            assert hub.connected == {"h1"}
            dead.transport.abort()

    scene(play, ping_s=0.05)


def test_a_connection_without_a_hello_is_closed() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1") as connection:
            code, reason = await closed(connection)
        assert code == REFUSED
        assert "a hello of agent 'h1' within" in (reason or "")
        assert not listener.lost

    scene(play, hello_s=0.05)


def test_a_frame_of_bytes_is_refused_in_words() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        for first in (True, False):
            async with connect_as("h1") as connection:
                if not first:
                    await joined(connection)
                await connection.send(b"\x00")
                code, reason = await closed(connection)
            assert (code, "a text frame" in (reason or "")) == (REFUSED, True)

    scene(play)


CONNECTION = {"job": "m/t", "rank": 0, "local_ip": "10.0.0.1", "local_port": 1, "remote_ip": "10.0.0.2", "remote_port": 2}
COUNTER = {"klass": 0, "sent_bytes": 1, "sent_packets": 1, "dropped_packets": 0, "backlog_bytes": 0}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        *(
            ({"kind": "connections", "connections": [{**CONNECTION, name: value}]}, name)
            for name, value in (
                ("local_port", 10**9), ("local_port", -1), ("local_port", 0), ("remote_port", 65536), ("local_ip", "x" * 29),
                ("remote_ip", ""),
            )
        ),
        ({"kind": "connections", "connections": [{**CONNECTION, "rank": 2**64}]}, "connection"),
        ({"kind": "connections", "connections": [{**CONNECTION, "rank": -1}]}, "connection"),
        ({"kind": "connections", "connections": [CONNECTION] * 6}, "connections"),
        ({"kind": "connections", "connections": [], "unmatched_bytes": {"m/t": -1}}, "unmatched_bytes"),
        ({"kind": "connections", "connections": [], "unmatched_bytes": {"m/t": 10**400}}, "unmatched_bytes"),
        ({"kind": "applied", "generation": 10**400, "changes": 0}, "generation"),
        ({"kind": "applied", "generation": -1, "changes": 0}, "generation"),
        ({"kind": "applied", "generation": 1, "changes": 0, "error": "x" * 20_000}, "error"),
        ({"kind": "counters", "at_s": 1e300, "ports": []}, "at_s"),
        ({"kind": "counters", "at_s": "nan", "ports": []}, "at_s"),
        ({"kind": "counters", "at_s": 1, "ports": [{"interface": "x" * 999, "classes": []}]}, "interface"),
        ({"kind": "counters", "at_s": 1, "ports": [{"interface": "e", "classes": [{**COUNTER, "klass": 99}]}]}, "klass"),
        ({"kind": "counters", "at_s": 1, "ports": [{"interface": "e", "classes": [{**COUNTER, "sent_bytes": 2**64}]}]}, "sent"),
        ({"kind": "counters", "at_s": 1, "ports": [{"interface": "e", "classes": [COUNTER] * 6}]}, "classes"),
        ({"kind": "counters", "at_s": 1, "ports": [{"interface": "e", "classes": []}] * 6}, "ports"),
        ({"kind": "workers", "leases": [{"study": "m", "trial": "t", "rank": 2**64, "process": {"pid": 9}}]}, "rank"),
        ({"kind": "workers", "leases": [{"study": "m", "trial": "t", "rank": 0, "process": {"pid": 2**64}}]}, "process"),
        ({"kind": "workers", "leases": [{"study": "m", "trial": "t", "rank": 0, "process": {"pid": 9, "start": -1}}]}, "pro"),
        ({"kind": "workers", "leases": [{"study": "m", "trial": "t", "rank": 0, "process": {"pid": 9, "uid": -3}}]}, "process"),
        ({"kind": "workers", "gone": [{"job": "m/t", "rank": 0}] * 6}, "gone"),
        ({"kind": "hello", "agent": "h1", "generation": 1}, "hello"),
        ({"kind": "nothing"}, ""),
        ([[[]]], ""),
    ],
)  # fmt: skip
def test_what_no_host_can_report_is_refused_in_words(message: object, field: str) -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1", additional_headers=OF_TODAY) as connection:
            await connection.recv()  # The first message says how much is taken of reports.
            await joined(connection)
            await connection.send(json.dumps(message))
            code, reason = await closed(connection)
        assert code == REFUSED
        assert field in (reason or "")
        assert not [message for _, message in listener.received]
        async with connect_as("h1") as connection:
            await joined(connection)
            await send(connection, Applied(generation=7, changes=0))
            await until(lambda: len(listener.received) == 1)

    scene(play, Limits(agent_connections=5, agent_leases=5, agent_ports=5, agent_classes=5))


def many_connections(count: int, rank: int = 0) -> tuple[Connection, ...]:
    return tuple(Connection("s/t", rank, "10.0.0.1", 1000 + n, "10.0.0.2", 9) for n in range(count))


def test_of_an_agent_that_cannot_know_the_limits_as_much_is_taken_as_they_say() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1") as connection:
            await joined(connection)
            await send(connection, Connections(connections=(*many_connections(50), *many_connections(2, rank=1))))
            await until(lambda: bool(listener.received))
            assert hub.connected == {"h1"}
            assert hub.left_out == {("h1", "connections", "connections"): 47}
            ((_, report),) = listener.received
            assert isinstance(report, Connections)
            assert [one.rank for one in report.connections].count(1) == 2
        await until(lambda: hub.left_out == {})

    scene(play, Limits(agent_connections=5))


def test_of_an_assignment_its_agent_is_sent_as_much_as_it_takes(capfd: pytest.CaptureFixture[str]) -> None:
    takes = AssignmentLimits(message_bytes=10_000, ports=1, workers=1, connections=3, addresses=1, classes=100)

    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1", additional_headers=OF_TODAY) as connection:
            await connection.recv()
            await send(connection, Hello(agent="h1", generation=0, limits=takes))
            await connection.recv()
            for generation in (8, 9):
                hub.send("h1", Assignment(generation=generation, connections=many_connections(10)))
                sent = Assignment.model_validate_json(await connection.recv())
                assert (sent.generation, len(sent.connections)) == (generation, 3)
                assert hub.left_out == {("h1", "assignment", "connections"): 7}
            hub.send("h1", Assignment(generation=10))
            await connection.recv()
            assert hub.left_out == {}

    scene(play)
    assert capfd.readouterr().out.count("an agent takes less than it is assigned") == 1


def test_of_those_that_wait_for_a_name_the_newest_is_served_and_what_has_ended_is_not() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1") as served, connect_as("h1") as waiting:
            await joined(served)
            await send(waiting, Hello(agent="h1", generation=0))
            await until(lambda: bool(hub._succeeding))
            async with connect_as("h1") as newer:
                await send(newer, Hello(agent="h1", generation=0))
                code, reason = await closed(waiting)
                assert (code, "a newer one" in (reason or "")) == (REFUSED, True)
            await until(lambda: not hub._succeeding)  # it has ended, and is not waited for
            async with connect_as("h1") as newest:
                await send(newest, Hello(agent="h1", generation=0))
                await until(lambda: bool(hub._succeeding))
                await served.close()
                assert Assignment.model_validate_json(await newest.recv()).generation == 7
            assert listener.lost[:1] == ["h1"]

    scene(play)


@pytest.mark.parametrize("text", ['{"kind": "hello", "agent": "\\ud800", "generation": 0}', "[" * 10_000, "\x00", "1" * 9_000])
def test_text_that_is_no_message_is_refused_in_words(text: str) -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1") as connection:
            await connection.send(text)
            code, reason = await closed(connection)
        assert (code, bool(reason)) == (REFUSED, True)

    scene(play)


def test_of_reports_that_wait_the_latest_counts() -> None:
    """A host whose connections change faster than they may be taken in is heard of at intervals."""

    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        def of(ports: Sequence[int]) -> Connections:
            seen = (Connection("m/t", 0, "10.0.0.1", port, "10.0.0.2", 5000) for port in ports)
            return Connections(connections=tuple(seen))

        async with connect_as("h1") as connection:
            await joined(connection)
            for first in range(1, 61):
                await send(connection, of(range(first, first + 100)))
            last = of((9,))
            await send(connection, last)
            await until(lambda: bool(listener.received) and listener.received[-1][1] == last)
        taken = [message for _, message in listener.received]
        assert len(taken) < 20, "6 000 entries at 500 a second, of whose messages 1 000 are read in a second"

    scene(play, Limits(messages_per_s=1000, entries_per_s=500))


def test_connections_that_never_stay_are_taken_in_at_a_bounded_rate_however_often_the_agent_connects() -> None:
    """What has come and gone while others wait is never heard of; what is said of workers does not wait for it."""

    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        def of(number: int) -> Connections:
            seen = (Connection("m/t", 0, "10.0.0.1", 1000 + 100 * number + i, "10.0.0.2", 5000) for i in range(100))
            return Connections(connections=tuple(seen))

        def heard(since: int) -> bool:
            return any(isinstance(message, Workers) for _, message in listener.received[since:])

        for turn in range(5):
            async with connect_as("h1") as connection:
                await joined(connection)
                for number in range(10 * turn, 10 * turn + 10):
                    await send(connection, of(number))
                    await asyncio.sleep(0.01)
                said = len(listener.received)
                await send(connection, Workers(gone=(WorkerId(job="m/t", rank=turn),)))
                await until(partial(heard, said))
        flips = [message for _, message in listener.received if isinstance(message, Connections)]
        assert 2 <= len(flips) <= 4, "100 at first, 200 with each, of 400 at once and one a second later"
        async with connect_as("h1") as connection:
            await joined(connection)
            await send(connection, flips[-1])
            await send(connection, Workers())
            await until(lambda: listener.received[-1][1] == Workers())

    scene(play, Limits(messages_per_s=10_000, entries_per_s=10**6, agent_connections=200, connection_changes_per_s=1))


def test_an_agent_that_never_stops_is_read_at_a_bounded_rate() -> None:
    read: list[float] = []
    pace = Pace(per_s=50)
    now = 0.0
    for _ in range(1000):
        now += pace.wait_s(now)
        pace.count(now, 1)
        read.append(now)
    assert sum(at_s <= 0 for at_s in read) <= 51
    assert sum(at_s <= 10 for at_s in read) <= 51 + 10 * 50


def test_long_messages_are_read_at_a_bounded_rate_too() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        long, last = (
            Connections(connections=tuple(Connection("m/t", 0, "10.0.0.1", port, "10.0.0.2", 5000) for port in ports))
            for ports in (range(1, 3000), range(2, 3001))
        )
        async with connect_as("h1") as connection:
            await joined(connection)
            began = asyncio.get_running_loop().time()
            for message in (long, long, long, last):
                await send(connection, message)
            await until(lambda: ("h1", last) in listener.received)  # one before it may give way to it
            assert asyncio.get_running_loop().time() - began > 0.5, "of 17 messages' worth each, at 20 a second"

    scene(play, Limits(messages_per_s=20, entries_per_s=10**6))


def test_refusals_and_changes_of_an_agent_fill_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    for module in ("controller.agents.hub", "controller.limited_log"):
        monkeypatch.setattr(f"{module}.log", Recorder(lines))

    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        for attempt in range(30):
            async with connect_as(f"stranger{attempt}") as connection:
                await closed(connection)
            async with connect_as("h1") as connection:
                await joined(connection)
                await connection.send("nonsense" if attempt % 2 else json.dumps({"kind": "workers", f"x{attempt}": attempt}))
                await closed(connection)
        await until(lambda: len(listener.lost) == 30)

    scene(play)
    assert lines.count("agent refused") == 3
    assert lines.count("agent joined") == 10


class Recorder:
    """A log that keeps what was said."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **what: self._lines.append(event)


class LongReader(Listener):
    """Takes some time for every connection that is reported."""

    def on_agent_message(self, agent: str, message: Applied | Workers | Connections | Counters) -> int:
        assert isinstance(message, Connections)
        assert all(connection.local_port for _ in range(10) for connection in message.connections)
        return super().on_agent_message(agent, message)


class SocketInMemory:
    """An agent's WebSocket: its hello, and what it reports when it is told to."""

    def __init__(self, name: str, report: Message, may_report: asyncio.Event) -> None:
        self.scope: dict[str, object] = {}
        self.headers: dict[str, str] = {}
        self.sent: list[int] = []
        self._said = [message.model_dump_json() for message in (Hello(agent=name, generation=0), report)]
        self._may_report = may_report

    async def accept(self) -> None:
        pass

    async def receive(self) -> dict[str, object]:
        if len(self._said) == 1:
            await self._may_report.wait()
        if self._said:
            return {"type": "websocket.receive", "text": self._said.pop(0)}
        await asyncio.Event().wait()
        raise AssertionError

    async def send_text(self, text: str) -> None:
        self.sent.append(json.loads(text)["generation"])


def test_an_assignment_that_comes_while_another_waits_for_its_turn_is_sent_once() -> None:
    async def play() -> None:
        hub = AgentHub(["h1"], Listener(), LIMITS)
        agent: Any = SocketInMemory("h1", Workers(), asyncio.Event())
        serving = asyncio.create_task(hub.serve("h1", agent))
        while not agent.sent:
            await asyncio.sleep(0)
        del agent.sent[:]
        session = hub._sessions["h1"]
        place = session._turns.begin()
        await session._turns.granted(place)
        hub.send("h1", Assignment(generation=8))
        while session._wake.is_set():
            await asyncio.sleep(0)
        hub.send("h1", Assignment(generation=9))
        while not agent.sent:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert agent.sent == [9]
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(play())


def test_a_turn_does_not_grow_with_the_agents_that_report() -> None:
    seen = tuple(Connection("s/t", 0, "10.0.0.1", 1 + port, "10.0.0.2", 9) for port in range(300))

    def longest(agents: int) -> int:
        async def scene(counting: Callable[[], AbstractContextManager[None]]) -> None:
            names = [f"h{number}" for number in range(agents)]
            listener = LongReader()
            hub = AgentHub(names, listener, LIMITS)
            may_report = asyncio.Event()
            said: list[Any] = [SocketInMemory(name, Connections(connections=seen), may_report) for name in names]
            serving = [asyncio.create_task(hub.serve(*session)) for session in zip(names, said, strict=True)]
            while len(hub.connected) < agents:
                await asyncio.sleep(0)
            with counting():
                may_report.set()
                while len(listener.received) < agents:
                    await asyncio.sleep(0)
            for task in serving:
                task.cancel()
            await asyncio.wait(serving)

        return max(turns(scene))

    assert longest(12) < 1.5 * longest(2)
