import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from beamer.network.protocol import (
    Applied,
    Assignment,
    ClassCounter,
    Connections,
    Counters,
    Hello,
    Message,
    PortCounters,
    Workers,
)
from controller.agents import REFUSED, REPLACED, AgentHub


class Listener:
    def __init__(self) -> None:
        self.received: list[tuple[str, Applied | Workers | Connections | Counters]] = []
        self.lost: list[str] = []

    def agent_joined(self, agent: str) -> Assignment:
        return Assignment(generation=7, addresses=("10.0.0.1",))

    def on_agent_message(self, agent: str, message: Applied | Workers | Connections | Counters) -> None:
        self.received.append((agent, message))

    def agent_lost(self, agent: str) -> None:
        self.lost.append(agent)


ConnectAs = Callable[[str], Any]


@asynccontextmanager
async def serving(hub: AgentHub) -> AsyncIterator[ConnectAs]:
    app = FastAPI()

    @app.websocket("/v1/agents/{name}")
    async def agent(websocket: WebSocket, name: str) -> None:
        await hub.serve(name, websocket)

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield lambda name: connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/agents/{name}")
    finally:
        server.should_exit = True
        await task


def scene(play: Callable[[AgentHub, Listener, ConnectAs], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        listener = Listener()
        hub = AgentHub(["h1", "h2"], listener)
        async with serving(hub) as connect_as:
            await play(hub, listener, connect_as)

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


def test_newest_connection_of_a_name_wins() -> None:
    async def play(hub: AgentHub, listener: Listener, connect_as: ConnectAs) -> None:
        async with connect_as("h1") as old, connect_as("h1") as new:
            await send(old, Hello(agent="h1", generation=0))
            await old.recv()
            await send(new, Hello(agent="h1", generation=0))
            await new.recv()
            assert (await closed(old))[0] == REPLACED
            assert hub.connected == {"h1"}
            hub.send("h1", Assignment(generation=9))
            assert Assignment.model_validate_json(await new.recv()).generation == 9
            assert not listener.lost

    scene(play)
