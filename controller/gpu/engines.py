"""The controller's side of engines: one WebSocket per search, what happens to it in, what holds for it out.

    accepted -> its version is served -> hello within `HELLO_S`, of nodes that all engines share -> the only one of its study
             -> what it uses; events taken in at a bounded rate, answered when they are durable
             <- what holds, whenever that changes

An engine's connection stays in the server's count of them. An engine that goes leaves its trials' processes running, or it has
said that it leaves: see `controller.gpu.level`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from fastapi import WebSocket, WebSocketDisconnect

from beamer.errors import InputError, PlatformError
from beamer.gpu.protocol import (
    MAX_EVENTS,
    EngineHello,
    EngineLeft,
    EngineLimits,
    EngineRefused,
    EngineWelcome,
    FromEngine,
    GpusUsed,
    SearchAssignment,
    SearchEvents,
    SearchLimits,
    from_engine,
)
from beamer.log_limit import LogLimit
from beamer.studies.events import EncodedEvent, Event, decode
from beamer.studies.model import trial_key
from beamer.versioned_messages import encode
from controller.event_loop.time_slices import TimeSlices, batched
from controller.limited_log import LimitedLog
from controller.limits import Limits
from controller.peer_session import HELLO_S, Pace, PeerSession
from controller.websocket import FAILED, REFUSED, UNAVAILABLE

MAX_UNANSWERED = 64  # At most so many assignments that an engine has not acted upon are remembered, each by itself.
BATCH = 16  # events taken in at once, each of which takes some 100 microseconds

Device = tuple[str, int]
"""A GPU: its node and its index there."""

log = structlog.get_logger("beamer-controller")


class EngineListener(Protocol):
    """Takes in what engines report, and knows what holds for their searches."""

    def engine_joined(self, study: str, hello: EngineHello) -> bool:
        """Take in that an engine serves a study from now on; return whether its run was known. Raises `InputError`."""

    def engine_lost(self, study: str) -> None:
        """Take in that a study has no engine any more."""

    def engine_left(self, study: str) -> None:
        """Take in that no process of a study runs, and none will until its engine is back."""

    def happened(self, study: str, event: Event) -> None:
        """Take in an event that an engine reports. Raises `InputError` for one that cannot be, `PlatformError`."""

    async def written(self) -> None:
        """Wait until all that was taken in is durable. Raises `PlatformError`."""

    def uses_changed(self) -> None:
        """Take in that an engine uses other GPUs than before."""

    def assignment(self, study: str, session: "SessionFacts") -> SearchAssignment:
        """Return what holds for a study, as number 0."""


@dataclass
class SessionFacts:
    """What is known of an engine's connection. taken, known, settled: as of `SearchAssignment`. uses: the GPUs that it uses.

    held_bytes: as of `GpusUsed`.
    """

    known: bool = False
    taken: int = 0
    settled: bool = False
    uses: frozenset[Device] = frozenset()
    held_bytes: Mapping[str, int] = field(default_factory=dict)


class EngineHub:
    """The connections of all engines, one for each study."""

    def __init__(self, listener: EngineListener, limits: Limits) -> None:
        self._listener = listener
        self._limits = limits
        self._turns = TimeSlices()
        self._sessions: dict[str, _EngineSession] = {}
        # GPUs in use by each study whose engine is not connected, as far as is known.
        self._used: dict[str, frozenset[Device]] = {}
        self._limited = LimitedLog()
        self._changes = LogLimit(10, 60.0)

    @property
    def connected(self) -> frozenset[str]:
        """The studies whose engines are connected."""
        return frozenset(self._sessions)

    @property
    def held_bytes(self) -> dict[str, int]:
        """The GPU memory that processes of trials hold, by trial, of those whose engines are connected and know it."""
        return {key: count for _, one in sorted(self._sessions.items()) for key, count in one.facts.held_bytes.items()}

    def used(self, besides: str) -> frozenset[Device]:
        """Return the GPUs that processes of other studies than one may compute on."""
        of_studies = {**self._used, **{study: session.used for study, session in self._sessions.items()}}
        return frozenset().union(*(used for study, used in of_studies.items() if study != besides))

    @property
    def used_unattended(self) -> frozenset[Device]:
        """The GPUs that processes of studies may compute on whose engines are not connected."""
        return frozenset().union(*self._used.values())

    def is_settled(self, study: str) -> bool:
        """Say whether an engine is connected, and has said what it uses."""
        session = self._sessions.get(study)
        return session is not None and session.facts.settled

    def may_use(self, study: str) -> bool:
        """Say whether processes of a study that is not connected may compute on GPUs."""
        return study in self._used

    def forget(self, study: str) -> None:
        """Take in that no process of a study runs."""
        self._used.pop(study, None)
        if session := self._sessions.get(study):
            session.forget()

    def renew(self) -> None:
        """Send every engine what holds for its search, where that has changed."""
        for session in self._sessions.values():
            session.wake.set()

    async def serve(self, study: str, websocket: WebSocket) -> None:
        """Serve the engine of a study until either side closes."""
        await websocket.accept()
        session = _EngineSession(study, websocket, self._listener, self._limits, self._turns, self._limited)
        with suppress(WebSocketDisconnect):
            try:
                session.agree()
                limits = SearchLimits(message_bytes=self._limits.message_bytes, events=MAX_EVENTS)
                await session.welcome(EngineWelcome(limits=limits))
                hello = await self._hello(session)
                session.takes = hello.limits
                session.facts.known = self._listener.engine_joined(study, hello)
                await self._exchange(study, session)
            except WebSocketDisconnect:
                raise
            except InputError as error:
                self._limited.warning("engine refused", None, (study, error.field), study=study, reason=str(error))
                await session.refuse(str(error))
            except PlatformError as error:
                self._limited.error("an engine's events cannot be taken in", None, str(error), study=study, reason=str(error))
                await session.close(UNAVAILABLE, str(error))
            except Exception as error:  # noqa: BLE001  # It is a defect; the engine connects again and reports anew.
                self._limited.error("an engine cannot be served", None, repr(error), study=study, exc_info=error)
                await session.close(FAILED, repr(error))

    async def _hello(self, session: "_EngineSession") -> EngineHello:
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await session.receive()
        except TimeoutError:
            raise PlatformError(f"there was no hello within {HELLO_S:g} s", "connect again") from None
        if not isinstance(hello, EngineHello):
            raise InputError("hello", hello.kind, "a hello as the first message")
        return hello

    async def _exchange(self, study: str, session: "_EngineSession") -> None:
        # The earlier connection was cut off: it is of the same run, or this one would have been refused.
        if before := self._sessions.get(study):
            before.end()
            self._set_used(study, before.used)
        session.inherit(self._used.pop(study, frozenset()))
        self._sessions[study] = session
        self._log_change("engine joined", study, protocol=session.protocol.version)
        try:
            await session.serve()
        finally:
            if self._sessions.get(study) is session:
                del self._sessions[study]
                self._set_used(study, session.used)
                self._listener.engine_lost(study)
                self._log_change("engine lost", study)

    def _set_used(self, study: str, devices: frozenset[Device]) -> None:
        if devices:
            self._used[study] = devices

    def _log_change(self, change: str, study: str, **what: int) -> None:
        if self._changes.take((change, study)):
            log.info(change, study=study, **what)


class _EngineSession(PeerSession[FromEngine]):
    """One engine's connection."""

    def __init__(
        self,
        study: str,
        websocket: WebSocket,
        listener: EngineListener,
        limits: Limits,
        turns: TimeSlices,
        limited: LimitedLog,
    ) -> None:
        super().__init__("engine", websocket, from_engine, limits.messages_per_s, turns)
        self.facts = SessionFacts()
        self.takes: EngineLimits | None = None
        self._limited = limited
        self.wake = asyncio.Event()
        self._study = study
        self._listener = listener
        self._events = Pace(limits.entries_per_s)
        self._sent: SearchAssignment | None = None
        # GPUs by number of assignment, from the latest one acted upon; 0 stands for inherited ones.
        self._granted: dict[int, frozenset[Device]] = {}
        self._replaced = asyncio.Event()

    def end(self) -> None:
        """End a connection whose engine has connected again."""
        self._replaced.set()

    @property
    def used(self) -> frozenset[Device]:
        """The GPUs that processes of the study may compute on."""
        return self.facts.uses.union(*self._granted.values())

    def inherit(self, used: frozenset[Device]) -> None:
        """Take in what its predecessor may use."""
        self._granted = {0: used}

    def forget(self) -> None:
        """Take in that no process of the study runs."""
        self.facts.uses, self._granted = frozenset(), {}

    async def serve(self) -> None:
        """Send what holds, and take in what the engine reports, until the connection ends or either fails."""
        tasks = [asyncio.create_task(work) for work in (self._send_all(), self._take_all(), self._replaced.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()

    async def _send_all(self) -> None:
        """Send what holds, at once and at every change."""
        with suppress(WebSocketDisconnect, RuntimeError):  # The connection may have been closed meanwhile.
            while True:
                number = self._sent.number if self._sent else 0
                assignment = self._listener.assignment(self._study, self.facts)
                if self._sent is None or assignment != self._sent.model_copy(update={"number": 0}):
                    await self._send(assignment.model_copy(update={"number": number + 1}))
                await self.wake.wait()
                self.wake.clear()

    async def _send(self, assignment: SearchAssignment) -> None:
        """Send an assignment, unless it is longer than the engine takes: then the one before holds on."""
        message = encode(assignment, self.protocol.version)
        if self.takes is not None and (size := len(message.encode())) > self.takes.message_bytes:
            reason = f"message_bytes: {size}, and the engine takes at most {self.takes.message_bytes}"
            what = "an assignment is not sent, as it is more than its engine takes"
            self._limited.error(what, None, self._study, study=self._study, reason=reason)
            return
        self._sent = assignment
        self._grant(assignment.number, frozenset().union(*assignment.devices.values()))
        await self.websocket.send_text(message)

    def _grant(self, number: int, devices: frozenset[Device]) -> None:
        if len(self._granted) >= MAX_UNANSWERED:  # An engine that does not answer may use whatever it was granted.
            devices |= frozenset().union(*self._granted.values())
            self._granted = {}
        self._granted[number] = devices

    def _log_unused(self, names: tuple[str, ...]) -> None:
        what = "an engine speaks a newer version, of which this is not used"
        named = {"study": self._study, "version": self.protocol.version, "fields": ", ".join(names)}
        self._limited.warning(what, None, (self._study, names), **named)

    async def _take_all(self) -> None:
        """Take in what the engine reports until the connection ends."""
        while True:
            match await self.receive():
                case EngineHello():
                    raise InputError("hello", self._study, "one hello per connection")
                case GpusUsed(assignment=number, devices=devices, held_bytes=held):
                    for key in held:
                        if not key.startswith(trial_key(self._study, "")):
                            raise InputError("held_bytes", key, f"a trial of study {self._study}")
                    self.facts.held_bytes = held
                    self._take_uses(number, frozenset(devices))
                case EngineLeft():
                    self._listener.engine_left(self._study)
                case SearchEvents(first=first, events=events):
                    await self._take(first, events)

    def _take_uses(self, number: int, devices: frozenset[Device]) -> None:
        """Take in what an engine uses: of what it may use, but for what a controller before this one had granted it."""
        self.facts.uses = devices & self.used if self.facts.settled else devices
        self.facts.settled = True
        self._granted = {sent: granted for sent, granted in self._granted.items() if sent >= number}
        self.wake.set()
        self._listener.uses_changed()

    async def _take(self, first: int, encoded: Sequence[EncodedEvent]) -> None:
        loop = asyncio.get_running_loop()
        for batch in batched(encoded, BATCH):
            await asyncio.sleep(self._events.wait_s(loop.time()))
            await self._turns.granted(self._turns.begin())
            for event in batch:
                self._listener.happened(self._study, decode(*event))
            self._events.count(loop.time(), len(batch))
        await self._listener.written()
        self.facts.taken = first + len(encoded) - 1
        self.wake.set()

    async def refuse(self, reason: str) -> None:
        """Say why nothing more is taken from this engine, and close."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self.websocket.send_text(EngineRefused(reason=reason).model_dump_json())
        await self.close(REFUSED, reason)
