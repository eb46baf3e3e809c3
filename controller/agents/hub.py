"""The controller's side of the host agents' protocol: one WebSocket per agent name, whole assignments out, reports in.

    accepted -> its version is served -> its name is in the fabric, hello within `HELLO_S`
             -> the only one of its name, or its predecessor is gone
             -> counted no more among the server's connections -> reports read at a bounded rate, the latest of a kind taken in

Whatever is long is read, taken in or written for one agent in a turn of the event loop, however many have something to say.
An agent that breaks the protocol is told why and closed; its queues and marks stay as they are.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import structlog
from fastapi import WebSocket, WebSocketDisconnect

from beamer.errors import InputError, PlatformError, nearest
from beamer.log_limit import LogLimit
from beamer.network.message_limits import fitted, fitted_assignment
from beamer.network.protocol import (
    AgentReport,
    Applied,
    Assignment,
    AssignmentLimits,
    Connections,
    Counters,
    Hello,
    Welcome,
    Workers,
    from_agent,
)
from beamer.protocol_version import FIRST_VERSION
from beamer.versioned_messages import encode, is_known
from controller.admission import check_report, entries_of
from controller.agents.hello import receive_hello, report_limits
from controller.event_loop.time_slices import TimeSlices
from controller.limited_log import LimitedLog
from controller.limits import Limits
from controller.peer_session import Pace, PeerSession
from controller.websocket import AGENT_PING_S, FAILED, REFUSED, UNAVAILABLE, UNCOUNT

# A second agent of a name waits for the first one's end so long: the pings have given up a dead agent by then.
SUCCESSION_S = 2 * AGENT_PING_S + 1
_LONG_ENTRIES = 32  # A report of more entries waits for its turn to be taken in: so many take some 100 microseconds.

_UNREPORTED = "a host has more to report than is taken, see docs/operate.md; its workers without it are named as unattached"

log = structlog.get_logger("beamer-controller")


class AgentListener(Protocol):
    """Receives what agents report, and when they join or are lost."""

    def agent_joined(self, agent: str) -> Assignment:
        """Return the assignment of an agent that has just sent its hello."""

    def on_agent_message(self, agent: str, message: Applied | Workers | Connections | Counters) -> int:
        """Take in a report; return how many connections have come or gone with it. Raises `InputError` for an invalid one."""

    def agent_lost(self, agent: str) -> None:
        """Take in that an agent is gone."""


class _AgentSession(PeerSession[AgentReport]):
    """One agent's connection; an assignment that was not sent yet gives way to the newer one, and so does a report."""

    def __init__(self, name: str, websocket: WebSocket, limits: Limits, turns: TimeSlices, limited: LimitedLog) -> None:
        super().__init__("agent", websocket, from_agent, limits.messages_per_s, turns)
        self.takes: AssignmentLimits | None = None
        self.left_out: Mapping[str, int] = {}  # Numbers of entries left out of the latest assignment, by part.
        self._name = name
        self._limited = limited
        self.gone = asyncio.Event()
        self.limits = report_limits(limits)
        self._next: Assignment | None = None
        self._wake = asyncio.Event()
        self._entries = Pace(limits.entries_per_s)
        # Once the agent is served, the pace kept for its name replaces this one.
        self.changes = Pace(limits.connection_changes_per_s)
        self._reported: dict[type, AgentReport] = {}
        self._arrived = asyncio.Event()

    def put(self, assignment: Assignment) -> None:
        self._next = assignment
        self._wake.set()

    async def send_all(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # The other task may have closed the connection.
            while await self._wake.wait():
                self._wake.clear()
                await self._turns.granted(self._turns.begin())
                # An assignment that came meanwhile has replaced the one before it, and needs no second turn.
                assignment, self._next = self._next, None
                if assignment is not None:
                    await self._send(assignment)

    async def _send(self, assignment: Assignment) -> None:
        """Send as much of an assignment as the agent takes."""
        encoded = partial(encode, version=self.protocol.version)
        if self.takes is None:
            await self.websocket.send_text(encoded(assignment))
            return
        try:
            fitting = fitted_assignment(assignment, self.takes, encoded)
        except InputError as error:
            # The agent never applies it, so that it is not in force there.
            what = "an assignment is not sent, as it is more than its agent takes: the one before stays"
            named = {"generation": assignment.generation, "reason": str(error)}
            self._limited.error(what, self._name, error.field, agent=self._name, **named)
            return
        self.left_out = fitting.left_out
        if self.left_out:
            what = "an agent takes less than it is assigned; everything else is in force there"
            counts = _counts(self.left_out)
            self._limited.warning(what, self._name, tuple(self.left_out), agent=self._name, left_out_of_it=counts)
        await self.websocket.send_text(fitting.message)

    def _log_unused(self, names: tuple[str, ...]) -> None:
        what = "an agent speaks a newer version, of which this is not used"
        named = {"agent": self._name, "version": self.protocol.version, "fields": ", ".join(names)}
        self._limited.warning(what, self._name, names, **named)

    async def receive(self) -> AgentReport:
        """Return what is taken of the next message. Raises as `PeerSession`, and `InputError` for more than was announced."""
        report = await super().receive()
        if is_known(Welcome, self.protocol.version):
            check_report(report, self.limits)
            return report
        taken = fitted(report, self.limits).report
        assert isinstance(taken, AgentReport)
        return taken

    async def read_all(self) -> None:
        """Read reports for `reports` until the connection ends."""
        with suppress(WebSocketDisconnect):
            while True:
                report = await self.receive()
                self._reported.pop(type(report), None)  # The new report comes after those that were reported before it.
                self._reported[type(report)] = report
                self._arrived.set()

    async def reports(self) -> AsyncIterator[AgentReport]:
        """Yield reports as fast as they may be taken in; one that waits is replaced by a newer one of its kind."""
        loop = asyncio.get_running_loop()
        while True:
            held_s = self.changes.wait_s(loop.time())
            kinds = [kind for kind in self._reported if kind is not Connections or not held_s]
            if not kinds:
                with suppress(TimeoutError):
                    async with asyncio.timeout(held_s if self._reported else None):
                        await self._arrived.wait()
            self._arrived.clear()
            for kind in kinds[:1]:
                await asyncio.sleep(self._entries.wait_s(loop.time()))
                if max(map(entries_of, self._reported.values())) > _LONG_ENTRIES:
                    await self._turns.granted(self._turns.begin())
                report = self._reported.pop(kind)
                self._entries.count(loop.time(), entries_of(report))
                yield report


class AgentHub:
    """The connections of all agents, one of each name, and each agent's latest counters.

    least_version: of the protocol that an agent has to speak.
    """

    def __init__(
        self, names: Iterable[str], listener: AgentListener, limits: Limits, least_version: int = FIRST_VERSION
    ) -> None:
        self._least_version = least_version
        self._names = frozenset(names)
        self._listener = listener
        self._limits = limits
        self._turns = TimeSlices()
        self._sessions: dict[str, _AgentSession] = {}
        # While a second agent of a name waits, its event is set when a third one comes.
        self._succeeding: dict[str, asyncio.Event] = {}
        self._counters: dict[str, Counters] = {}
        # Numbers of entries left out, by agent, kind of report and part.
        self._unreported: dict[str, dict[str, Mapping[str, int]]] = {}
        changes_per_s = limits.connection_changes_per_s
        # Each agent, however often it connects, may send two reports at once whose connections are all others.
        burst_s = 2 * limits.agent_connections / changes_per_s
        self._changes_of = {name: Pace(changes_per_s, burst_s) for name in self._names}
        self._limited = LimitedLog()
        self._changes = LogLimit(10, 60.0)  # Lines about joining and leaving are limited by the agent's name.

    @property
    def connected(self) -> frozenset[str]:
        """Names of the agents that are connected."""
        return frozenset(self._sessions)

    @property
    def counters(self) -> dict[str, Counters]:
        """The latest counters of every agent that has sent some."""
        return dict(self._counters)

    @property
    def left_out(self) -> dict[tuple[str, str, str], int]:
        """How many entries are beyond a limit, by agent, message and part, in the latest messages of connected agents."""
        found = {(name, "assignment", part): n for name, one in self._sessions.items() for part, n in one.left_out.items()}
        for name, reports in self._unreported.items():
            found |= {(name, kind, part): n for kind, parts in reports.items() for part, n in parts.items()}
        return found

    def send(self, agent: str, assignment: Assignment) -> None:
        """Send `assignment` to `agent` if it is connected; otherwise it receives it when it joins."""
        if session := self._sessions.get(agent):
            session.put(assignment)

    async def serve(self, name: str, websocket: WebSocket) -> None:
        """Serve the agent that connected as `name` until either side closes."""
        await websocket.accept()
        session = _AgentSession(name, websocket, self._limits, self._turns, self._limited)
        with suppress(WebSocketDisconnect):
            try:
                session.agree()
                if session.protocol.version < self._least_version:
                    expected = f"{self._least_version} or later, which knows these codepoints: upgrade the agent"
                    raise InputError("agent.protocol", session.protocol.version, expected)
                if name not in self._names:
                    raise InputError("agent", name, nearest(name, self._names))
                await session.welcome(Welcome(limits=session.limits))
                hello = await receive_hello(name, session)
                session.takes = hello.limits
                await self._read(name, session, hello.generation)
            except InputError as error:
                await self._refuse(name, session, error)

    async def _refuse(self, name: str, session: _AgentSession, error: InputError) -> None:
        known = name if name in self._names else None
        kind = re.split(r"[.\[]", error.field)[0]  # The peer may have chosen the rest of the field's name.
        self._limited.warning("agent refused", known, known and kind, agent=name, reason=str(error))
        await session.close(REFUSED, str(error))

    async def _read(self, name: str, session: _AgentSession, generation: int) -> None:
        """Read reports, so that a connection that has ended is not waited for, and take them in once it is the only one."""
        reading = asyncio.create_task(session.read_all())
        try:
            await self._succeed(name, reading)
            await self._exchange(name, session, generation, reading)
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # The error was raised before, or the connection is being closed for another reason.

    async def _succeed(self, name: str, reading: asyncio.Task[None]) -> None:
        """Wait until no other agent of a name is served: one that does not answer pings is given up meanwhile.

        The newest connection of a name waits, as that of an agent whose older ones were cut off. reading: ends with it.
        """
        displaced = asyncio.Event()
        if before := self._succeeding.get(name):
            before.set()
        self._succeeding[name] = displaced
        try:
            async with asyncio.timeout(SUCCESSION_S):
                while (served := self._sessions.get(name)) and not displaced.is_set() and not reading.done():
                    waits = [asyncio.create_task(event.wait()) for event in (served.gone, displaced)]
                    awaited: list[asyncio.Task[Any]] = [*waits, reading]
                    try:
                        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for wait in waits:
                            wait.cancel()
        except TimeoutError:
            raise InputError("agent", name, "a name of which no agent is connected; one is, and answers") from None
        finally:
            if self._succeeding.get(name) is displaced:
                del self._succeeding[name]
        if displaced.is_set():
            raise InputError("agent", name, "one connection of a name that waits for another's end; a newer one does")
        if reading.done():
            reading.result()
            raise WebSocketDisconnect

    async def _exchange(self, name: str, session: _AgentSession, generation: int, reading: asyncio.Task[None]) -> None:
        if uncount := session.websocket.scope.get("state", {}).get(UNCOUNT):
            uncount()
        self._sessions[name] = session
        session.changes = self._changes_of[name]
        self._log_change("agent joined", name, generation=generation, protocol=session.protocol.version)
        session.put(self._listener.agent_joined(name))
        tasks = [asyncio.create_task(session.send_all()), asyncio.create_task(self._take_reports(name, session))]
        try:
            await reading
        finally:
            for task in tasks:
                task.cancel()
            del self._sessions[name]
            self._unreported.pop(name, None)
            session.gone.set()
            self._listener.agent_lost(name)
            self._log_change("agent lost", name)

    async def _take_reports(self, name: str, session: _AgentSession) -> None:
        try:
            async for report in session.reports():
                changes = self._on_message(name, report)
                session.changes.count(asyncio.get_running_loop().time(), changes)
        except InputError as error:
            await self._refuse(name, session, error)
        except PlatformError as error:
            self._limited.error("a report cannot be taken in", name, str(error), agent=name, reason=str(error))
            await session.close(UNAVAILABLE, str(error))
        except Exception as error:  # noqa: BLE001  # It is a defect; the agent connects again and reports anew.
            self._limited.error("a report cannot be taken in", name, repr(error), agent=name, exc_info=error)
            await session.close(FAILED, repr(error))

    def _on_message(self, name: str, message: AgentReport) -> int:
        if isinstance(message, Counters):
            self._counters[name] = message
        if isinstance(message, Workers | Connections | Counters):
            self._unreported.setdefault(name, {})[message.kind] = message.left_out
            if message.left_out:
                named = {"report": message.kind, "left_out_of_it": _counts(message.left_out)}
                self._limited.warning(_UNREPORTED, name, (message.kind, *message.left_out), agent=name, **named)
        if isinstance(message, Hello):
            raise InputError("hello", message.agent, "one hello per connection")
        return self._listener.on_agent_message(name, message)

    def _log_change(self, change: str, name: str, **what: int) -> None:
        if self._changes.take((change, name)):
            log.info(change, agent=name, **what)


def _counts(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {part}" for part, count in left_out.items())
