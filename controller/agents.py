"""The controller's side of the host agents' protocol: one WebSocket per agent name, whole assignments out, reports in."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import structlog
from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from beamer.errors import InputError, nearest
from beamer.network.protocol import AgentReport, Applied, Assignment, Connections, Counters, Hello, Workers, from_agent
from beamer.validation import input_error

REFUSED = 1008
REPLACED = 4000  # the first code that RFC 6455 leaves to applications
REASON_BYTES = 123  # what fits into a close frame

log = structlog.get_logger("beamer-controller")


class AgentListener(Protocol):
    """Receives what agents report, and when they join or are lost."""

    def agent_joined(self, agent: str) -> Assignment:
        """Return the assignment of an agent that has just sent its hello."""

    def on_agent_message(self, agent: str, message: Applied | Workers | Connections | Counters) -> None:
        """Take in a report. Raises `InputError` for an invalid one."""

    def agent_lost(self, agent: str) -> None:
        """Take in that an agent is gone."""


class _AgentSession:
    """One agent's connection; an assignment that was not sent yet gives way to the newer one."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket
        self._next: Assignment | None = None
        self._wake = asyncio.Event()

    def put(self, assignment: Assignment) -> None:
        self._next = assignment
        self._wake.set()

    async def send_all(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # closed from the other task
            while await self._wake.wait():
                self._wake.clear()
                if self._next is not None:
                    await self.websocket.send_text(self._next.model_dump_json())

    async def close(self, code: int, reason: str) -> None:
        # The peer may have closed first.
        with suppress(WebSocketDisconnect, RuntimeError):
            await self.websocket.close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore"))


class AgentHub:
    """The connections of all agents, the newest of each name, and each agent's latest counters."""

    def __init__(self, names: Iterable[str], listener: AgentListener) -> None:
        self._names = frozenset(names)
        self._listener = listener
        self._sessions: dict[str, _AgentSession] = {}
        self._counters: dict[str, Counters] = {}

    @property
    def connected(self) -> frozenset[str]:
        """Names of the agents that are connected."""
        return frozenset(self._sessions)

    @property
    def counters(self) -> dict[str, Counters]:
        """The latest counters of every agent that has sent some."""
        return dict(self._counters)

    def send(self, agent: str, assignment: Assignment) -> None:
        """Send `assignment` to `agent` if it is connected; otherwise it receives it when it joins."""
        if session := self._sessions.get(agent):
            session.put(assignment)

    async def serve(self, name: str, websocket: WebSocket) -> None:
        """Serve the agent that connected as `name` until either side closes."""
        await websocket.accept()
        session = _AgentSession(websocket)
        try:
            if name not in self._names:
                raise InputError("agent", name, nearest(name, self._names))
            await self._hello(name, session)
            await self._exchange(name, session)
        except WebSocketDisconnect:
            return
        except InputError as error:
            log.warning("agent refused", agent=name, reason=str(error))
            await session.close(REFUSED, str(error))

    async def _hello(self, name: str, session: _AgentSession) -> None:
        hello = _parse(await session.websocket.receive_text())
        if not isinstance(hello, Hello) or hello.agent != name:
            raise InputError("hello", hello.model_dump(), f"a hello of agent {name!r} as the first message")
        log.info("agent joined", agent=name, generation=hello.generation)

    async def _exchange(self, name: str, session: _AgentSession) -> None:
        replaced = self._sessions.get(name)
        self._sessions[name] = session
        session.put(self._listener.agent_joined(name))
        sender = asyncio.create_task(session.send_all())
        try:
            if replaced:
                await replaced.close(REPLACED, f"agent {name} has connected again")
            async for text in session.websocket.iter_text():
                if self._sessions.get(name) is session:
                    self._on_message(name, _parse(text))
        finally:
            sender.cancel()
            if self._sessions.get(name) is session:
                del self._sessions[name]
                self._listener.agent_lost(name)
                log.info("agent lost", agent=name)

    def _on_message(self, name: str, message: AgentReport) -> None:
        if isinstance(message, Counters):
            self._counters[name] = message
        if isinstance(message, Hello):
            raise InputError("hello", message.agent, "one hello per connection")
        self._listener.on_agent_message(name, message)


def _parse(text: str) -> AgentReport:
    try:
        return from_agent.validate_json(text)
    except ValidationError as error:
        raise input_error(error) from error
