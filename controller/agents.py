"""The host agents' end of the wire: one WebSocket per agent name, whole assignments out, reports in."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import structlog
from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from beamer.errors import InputError, nearest
from beamer.network.protocol import Applied, Assignment, Connections, Counters, Hello, from_agent
from beamer.validation import input_error

REFUSED = 1008
REPLACED = 4000  # the first code that RFC 6455 leaves to applications
REASON_BYTES = 123  # what fits into a close frame

log = structlog.get_logger("beamer-controller")


class AgentListener(Protocol):
    """Who is told what agents do."""

    def agent_joined(self, agent: str) -> Assignment:
        """Return what an agent that has just said hello has to bring about."""

    def on_agent_message(self, agent: str, message: Applied | Connections) -> None:
        """Take in a report. Raises `InputError` for one that cannot be."""

    def agent_lost(self, agent: str) -> None:
        """Take in that an agent is gone."""


class _Line:
    """One agent's connection; an assignment that was not sent yet gives way to the newer one."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket
        self._next: Assignment | None = None
        self._wake = asyncio.Event()

    def put(self, assignment: Assignment) -> None:
        self._next = assignment
        self._wake.set()

    async def send_all(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # closed from the other task, which tells it
            while await self._wake.wait():
                self._wake.clear()
                if self._next is not None:
                    await self.websocket.send_text(self._next.model_dump_json())

    async def close(self, code: int, reason: str) -> None:
        # The peer may have gone first: then there is nobody left to tell.
        with suppress(WebSocketDisconnect, RuntimeError):
            await self.websocket.close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore"))


class AgentHub:
    """The connections of all agents, the newest of each name, and each agent's latest counters."""

    def __init__(self, names: Iterable[str], listener: AgentListener) -> None:
        self._names = frozenset(names)
        self._listener = listener
        self._lines: dict[str, _Line] = {}
        self._counters: dict[str, Counters] = {}

    @property
    def connected(self) -> frozenset[str]:
        """Names of the agents that are connected."""
        return frozenset(self._lines)

    @property
    def counters(self) -> dict[str, Counters]:
        """The latest counters of every agent that has sent some."""
        return dict(self._counters)

    def send(self, agent: str, assignment: Assignment) -> None:
        """Send `assignment` to `agent` if it is connected; otherwise it is given it when it joins."""
        if line := self._lines.get(agent):
            line.put(assignment)

    async def serve(self, name: str, websocket: WebSocket) -> None:
        """Talk to the agent that dialled as `name` until either side closes."""
        await websocket.accept()
        line = _Line(websocket)
        try:
            if name not in self._names:
                raise InputError("agent", name, nearest(name, self._names))
            await self._hello(name, line)
            await self._converse(name, line)
        except WebSocketDisconnect:
            return
        except InputError as error:
            log.warning("agent refused", agent=name, reason=str(error))
            await line.close(REFUSED, str(error))

    async def _hello(self, name: str, line: _Line) -> None:
        hello = _parse(await line.websocket.receive_text())
        if not isinstance(hello, Hello) or hello.agent != name:
            raise InputError("hello", hello.model_dump(), f"a hello of agent {name!r} as the first message")
        log.info("agent joined", agent=name, generation=hello.generation)

    async def _converse(self, name: str, line: _Line) -> None:
        replaced = self._lines.get(name)
        self._lines[name] = line
        line.put(self._listener.agent_joined(name))
        sender = asyncio.create_task(line.send_all())
        try:
            if replaced:
                await replaced.close(REPLACED, f"agent {name} has dialled again")
            async for text in line.websocket.iter_text():
                if self._lines.get(name) is line:
                    self._take(name, _parse(text))
        finally:
            sender.cancel()
            if self._lines.get(name) is line:
                del self._lines[name]
                self._listener.agent_lost(name)
                log.info("agent lost", agent=name)

    def _take(self, name: str, message: Hello | Applied | Connections | Counters) -> None:
        if isinstance(message, Counters):
            self._counters[name] = message
        elif isinstance(message, Hello):
            raise InputError("hello", message.agent, "one hello per connection")
        else:
            self._listener.on_agent_message(name, message)


def _parse(text: str) -> Hello | Applied | Connections | Counters:
    try:
        return from_agent.validate_json(text)
    except ValidationError as error:
        raise input_error(error) from error
