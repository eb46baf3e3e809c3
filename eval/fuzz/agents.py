"""Hostile host agents against a served controller: frames of every kind, some of their parts replaced, beside two good agents.

a session    of an agent that nobody else is, of one that is connected already, of none of the fabric; hello, reports
a stream     of bytes in frames that are no messages
"""

import asyncio
import random
import time
from typing import Any

from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from beamer.network.connection import Connection
from beamer.network.protocol import AgentReport, Applied, Assignment, Connections, Hello
from controller.runtime import Runtime
from eval.fuzz.controller import FABRIC, GOOD, PATIENCE_S, FuzzedController, fuzzed_controller
from eval.fuzz.findings import Findings
from eval.fuzz.json_values import hostile_json, to_json, value_of
from eval.fuzz.mutations import mutated

AGENTS = [host.agent for host in FABRIC.hosts if host.agent is not None]
GOODS, FREE = AGENTS[:2], AGENTS[2]
STILL_CONNECTED_S = 0.05  # A refusal is awaited so long after the last frame: it follows within a turn or two.
MESSAGES: dict[str, Any] = TypeAdapter(AgentReport).json_schema()
CONNECTION = Connection(f"{GOOD}/t", 0, FABRIC.hosts[0].ip, 4000, FABRIC.hosts[1].ip, 5000)


def run(seconds: float, seed: int, most_inputs: int | None = None) -> Findings:
    """Try inputs for a time, or so many of them if that is sooner, and return what was found."""
    with fuzzed_controller() as fuzzed:
        asyncio.run(AgentFuzzer(fuzzed, random.Random(seed)).run(time.monotonic() + seconds, most_inputs))
        return fuzzed.tally.findings("agents", seed)


class GoodAgent:
    """An agent that applies what it is given and is connected all the time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0

    async def serve(self, url: str) -> None:
        """Serve until the controller ends the connection, which it never should."""
        async with connect(f"{url}/v1/agents/{self.name}", proxy=None, max_size=None) as connection:
            await connection.send(Hello(agent=self.name, generation=0).model_dump_json())
            if self.name == GOODS[0]:
                await connection.send(Connections(connections=(CONNECTION,)).model_dump_json())
            async for text in connection:
                self.generation = Assignment.model_validate_json(text).generation
                await connection.send(Applied(generation=self.generation, changes=0).model_dump_json())


class AgentFuzzer:
    """Tries one connection after the other on a controller, and looks after each whether the good agents are served."""

    def __init__(self, fuzzed: FuzzedController, rng: random.Random) -> None:
        self._fuzzed = fuzzed
        self._rng = rng
        self._url = fuzzed.served.url.replace("http", "ws", 1)

    async def run(self, until: float, most_inputs: int | None) -> None:
        """Try inputs until a time, in monotonic seconds, or so many."""
        good = [asyncio.create_task(GoodAgent(name).serve(self._url)) for name in GOODS]
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not self._is_seen():
                    await asyncio.sleep(0.01)
            while self._fuzzed.tally.goes_on(until, most_inputs):
                refused, sent = await self._session()
                served = self._is_seen() and not any(task.done() for task in good)
                fault = None if served else "a good agent was disconnected, or its connections are forgotten"
                # This runs beside the loop, which good agents need to answer on.
                await asyncio.to_thread(self._fuzzed.note, refused, fault, sent)
        finally:
            for task in good:
                task.cancel()
            await asyncio.wait(good)

    def _is_seen(self) -> bool:
        """Say whether the good agents are connected and what one of them has reported is known."""

        def seen(runtime: Runtime) -> bool:
            return set(GOODS) <= runtime.agents.connected and runtime.network.connections.get(GOODS[0]) == (CONNECTION,)

        return self._fuzzed.served.ask(seen)

    async def _session(self) -> tuple[bool, bytes]:
        """Connect once and send some frames; return whether the controller ended it, and what was sent."""
        rng = self._rng
        name = rng.choices((FREE, GOODS[1], "nobody"), (10, 1, 1))[0]
        frames = [self._frame() for _ in range(rng.choice((0, 1, 2, 5)))]
        if rng.random() < 0.9:
            frames.insert(0, Hello(agent=name, generation=rng.choice((0, 1, 2**53))).model_dump_json().encode())
        sent = b"\n".join(frames)[:10_000]
        try:
            async with asyncio.timeout(PATIENCE_S), connect(f"{self._url}/v1/agents/{name}", proxy=None) as connection:
                return await self._exchange(connection, frames), sent
        except (ConnectionClosed, InvalidHandshake, OSError):
            return True, sent

    async def _exchange(self, connection: ClientConnection, frames: list[bytes]) -> bool:
        for frame in frames:
            try:
                await connection.send(frame.decode("utf-8") if self._rng.random() < 0.95 else frame)
            except UnicodeDecodeError:
                await connection.send(frame)
        try:
            async with asyncio.timeout(STILL_CONNECTED_S):
                while True:
                    await connection.recv()
        except TimeoutError:
            connection.transport.abort()
            return False

    def _frame(self) -> bytes:
        rng = self._rng
        message = self._message()
        if rng.random() < 0.6:
            message = hostile_json(rng, message)
        data = to_json(message)
        return mutated(rng, data, (data,)) if rng.random() < 0.15 else data

    def _message(self) -> dict[str, Any]:
        """Return a message of any kind after its schema; its connections are mostly between hosts."""
        rng = self._rng
        schema = rng.choice(MESSAGES["anyOf"])
        message: dict[str, Any] = value_of(rng, schema, MESSAGES["$defs"])
        for found in message.get("connections", ()):
            local, remote = rng.choice(FABRIC.hosts), rng.choice(FABRIC.hosts)
            job = rng.choice((f"{GOOD}/t", "h0/h1"))
            found.update(job=job, local_ip=local.ip, remote_ip=remote.ip, local_port=rng.randrange(65536), remote_port=9)
        return message
