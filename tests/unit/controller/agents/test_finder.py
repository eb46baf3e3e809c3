"""Who is taken for an agent, and what is kept of it."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from beamer.network.protocol import Counters, Hello, Interface, Message, Welcome
from beamer.protocol_version import HEADER, PROTOCOL_VERSION
from controller.agents import hello as module
from controller.agents.finder import AgentFinder
from controller.http.authorization import Authorization
from controller.http.discovery import discovery_app
from controller.http.server import http_server
from controller.limits import Limits
from controller.websocket import REFUSED

OF_TODAY = {HEADER: str(PROTOCOL_VERSION)}
ETH0 = Interface(name="eth0", mac="02:00:00:00:00:01", addresses=("10.0.0.1", "fd00::1"), mtu=1500)
Connect = Callable[..., Any]


def scene(play: Callable[[AgentFinder, Connect], Coroutine[Any, Any, None]], hello_s: float = 5.0) -> None:
    async def run() -> None:
        finder = AgentFinder(Limits())
        server = http_server(discovery_app(finder, Authorization(None, False, lambda: 0.0)), Limits(), 100)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            address = f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/agents/"
            try:
                await play(finder, lambda name, headers=OF_TODAY: connect(address + name, additional_headers=headers))
            finally:
                server.stop()
                await serving

    with patch.object(module, "HELLO_S", hello_s):
        asyncio.run(run())


async def say(connection: ClientConnection, message: Message) -> None:
    await connection.send(message.model_dump_json())


async def closed(connection: ClientConnection) -> tuple[int | None, str]:
    with suppress(ConnectionClosed):
        while True:
            await connection.recv()
    return connection.close_code, connection.close_reason or ""


def test_an_agents_interfaces_are_known_and_it_stays_connected() -> None:
    async def play(finder: AgentFinder, connect_as: Connect) -> None:
        async with connect_as("h1") as connection:
            Welcome.model_validate_json(await connection.recv())
            await say(connection, Hello(agent="h1", generation=3, interfaces=(ETH0,)))
            await say(connection, Counters(at_s=1.0, ports=()))
            while not finder.interfaces:
                await asyncio.sleep(0.01)
            assert finder.interfaces == {"h1": (ETH0,)}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.recv(), 0.2)
        assert finder.interfaces == {"h1": (ETH0,)}, "it is known still"

    scene(play)


@pytest.mark.parametrize(
    ("name", "headers", "message", "reason"),
    [
        ("h1", {}, None, "agent.protocol: got 1, expected 2 or later, which names interfaces: upgrade the agent"),
        ("h%201", OF_TODAY, None, "agent: got 'h 1'"),
        ("h1", OF_TODAY, Hello(agent="h2", generation=0), "expected a hello of agent 'h1' as the first message"),
        ("h1", OF_TODAY, Counters(at_s=1.0, ports=()), "expected a hello of agent 'h1' as the first message"),
        ("h1", OF_TODAY, None, "expected a hello of agent 'h1' within 0.2 s"),
    ],
)
def test_who_is_no_agent_is_told_so(name: str, headers: dict[str, str], message: Message | None, reason: str) -> None:
    async def play(finder: AgentFinder, connect_as: Connect) -> None:
        async with connect_as(name, headers) as connection:
            if message is not None:
                await say(connection, message)
            code, told = await closed(connection)
        assert code == REFUSED
        assert reason in told
        assert finder.interfaces == {}

    scene(play, hello_s=5.0 if message is not None else 0.2)


def test_a_second_agent_of_a_name_is_refused_while_the_first_is_connected() -> None:
    async def play(finder: AgentFinder, connect_as: Connect) -> None:
        async with connect_as("h1") as first:
            await say(first, Hello(agent="h1", generation=0, interfaces=(ETH0,)))
            while not finder.interfaces:
                await asyncio.sleep(0.01)
            async with connect_as("h1") as second:
                code, told = await closed(second)
            assert code == REFUSED
            assert "a name that no other machine's agent has" in told
        while finder._connected:
            await asyncio.sleep(0.01)
        async with connect_as("h1") as again:
            await say(again, Hello(agent="h1", generation=0))
            while finder.interfaces["h1"]:
                await asyncio.sleep(0.01)

    scene(play)
