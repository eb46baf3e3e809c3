"""The agents that connect to an address, and what each says of its machine's interfaces.

An agent is served as by a controller, but nothing is assigned to it: its queues and marks stay as they are.
"""

from contextlib import suppress

import structlog
from fastapi import WebSocket, WebSocketDisconnect

from beamer.errors import InputError
from beamer.network.protocol import AgentReport, Interface, Welcome, from_agent
from beamer.studies.model import check_identifier
from controller.agents.hello import receive_hello, report_limits
from controller.event_loop.time_slices import TimeSlices
from controller.limited_log import LimitedLog
from controller.limits import Limits
from controller.peer_session import PeerSession
from controller.websocket import REFUSED

LEAST_VERSION = 2  # of the protocol: before it, agents do not say what interfaces they have
MAX_AGENTS = 4096

log = structlog.get_logger("beamer-discovery")


class _DiscoverySession(PeerSession[AgentReport]):
    """One agent's connection."""

    def __init__(self, name: str, websocket: WebSocket, limits: Limits, turns: TimeSlices) -> None:
        super().__init__("agent", websocket, from_agent, limits.messages_per_s, turns)
        self._name = name

    def _log_unused(self, names: tuple[str, ...]) -> None:
        log.warning("an agent speaks a newer version, of which this is not used", agent=self._name, fields=", ".join(names))


class AgentFinder:
    """The agents that have said hello. interfaces: of each one's machine, by its name; they stay known when it has gone."""

    def __init__(self, limits: Limits) -> None:
        self.interfaces: dict[str, tuple[Interface, ...]] = {}
        self._connected: set[str] = set()
        self._limits = limits
        self._turns = TimeSlices()
        self._limited = LimitedLog()

    async def serve(self, name: str, websocket: WebSocket) -> None:
        """Take in what an agent says of itself.

        It leaves after some seconds without an assignment, and may come again.
        """
        await websocket.accept()
        session = _DiscoverySession(name, websocket, self._limits, self._turns)
        with suppress(WebSocketDisconnect):
            try:
                session.agree()
                if session.protocol.version < LEAST_VERSION:
                    expected = f"{LEAST_VERSION} or later, which names interfaces: upgrade the agent"
                    raise InputError("agent.protocol", session.protocol.version, expected)
                check_identifier(name, "agent")
                if name not in self.interfaces and len(self.interfaces) >= MAX_AGENTS:
                    raise InputError("agent", name, f"at most {MAX_AGENTS} agents")
                if name in self._connected:
                    raise InputError("agent", name, "a name that no other machine's agent has, which is connected")
                self._connected.add(name)
                try:
                    await session.welcome(Welcome(limits=report_limits(self._limits)))
                    hello = await receive_hello(name, session)
                    self.interfaces[name] = hello.interfaces
                    log.info("agent connected", agent=name, interfaces=len(hello.interfaces))
                    while True:
                        await session.receive()
                finally:
                    self._connected.discard(name)
            except InputError as error:
                self._limited.warning("agent refused", name, error.field, agent=name, reason=str(error))
                await session.close(REFUSED, str(error))
