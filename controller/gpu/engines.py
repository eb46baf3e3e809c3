"""The controller's side of engines: one WebSocket per search, what happens to it in, what holds for it out.

    accepted -> hello within `HELLO_S`, of nodes that all engines share -> the only one of its study
             -> events taken in at a bounded rate, answered when they are durable; what holds, whenever that changes

An engine that goes leaves its trials' processes running, or it has said that it leaves: see `controller.gpu.level`.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

import structlog
from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from beamer.errors import InputError, PlatformError
from beamer.gpu.protocol import EngineHello, FromEngine, Happened, Left, Refused, Standing, Uses, from_engine
from beamer.log_limit import LogLimit
from beamer.studies.events import Event, decode
from beamer.validation import input_error
from controller.agents import Pace
from controller.limited_log import LimitedLog
from controller.limits import Limits
from controller.websocket import FAILED, REFUSED, UNAVAILABLE, UNCOUNT, close_reason

HELLO_S = 5.0  # from the connection to the hello, which an engine sends at once
Device = tuple[str, int]
BATCH = 16  # events taken in at once, each of which takes some 100 microseconds

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

    def standing(self, study: str, taken: int, known: bool) -> Standing:
        """Return what holds for a study, as number 0. taken, known: as of `Standing`."""


class EngineHub:
    """The connections of all engines, one for each study."""

    def __init__(self, listener: EngineListener, limits: Limits, hello_s: float = HELLO_S) -> None:
        self._listener = listener
        self._limits = limits
        self._hello_s = hello_s
        self._sessions: dict[str, _EngineSession] = {}
        self._used: dict[str, frozenset[Device]] = {}  # by studies whose engines are not connected, as far as is known
        self._limited = LimitedLog()
        self._changes = LogLimit(10, 60.0)

    @property
    def connected(self) -> frozenset[str]:
        """The studies whose engines are connected."""
        return frozenset(self._sessions)

    def used(self, besides: str) -> frozenset[Device]:
        """Return the GPUs that processes of other studies than one may compute on."""
        of_studies = {**self._used, **{study: session.used for study, session in self._sessions.items()}}
        return frozenset().union(*(used for study, used in of_studies.items() if study != besides))

    def presume(self, study: str, devices: Iterable[Device]) -> None:
        """Take it that processes of a study that is not connected may compute on these GPUs."""
        self._used[study] = frozenset(devices)

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
        session = _EngineSession(study, websocket, self._listener, self._limits)
        with suppress(WebSocketDisconnect):
            try:
                hello = await self._hello(session)
                session.known = self._listener.engine_joined(study, hello)
                await self._exchange(study, session)
            except WebSocketDisconnect:
                raise
            except InputError as error:
                self._limited.warning("engine refused", None, (study, error.field), study=study, reason=str(error))
                await session.refuse(str(error))
            except PlatformError as error:
                self._limited.error("an engine's events cannot be taken in", None, str(error), study=study, reason=str(error))
                await session.close(UNAVAILABLE, str(error))
            except Exception as error:  # noqa: BLE001  # a defect; the engine connects again and reports anew
                self._limited.error("an engine cannot be served", None, repr(error), study=study, exc_info=error)
                await session.close(FAILED, repr(error))

    async def _hello(self, session: "_EngineSession") -> EngineHello:
        try:
            async with asyncio.timeout(self._hello_s):
                hello = await session.receive()
        except TimeoutError:
            raise InputError("hello", None, f"a hello within {self._hello_s:g} s") from None
        if not isinstance(hello, EngineHello):
            raise InputError("hello", hello.kind, "a hello as the first message")
        return hello

    async def _exchange(self, study: str, session: "_EngineSession") -> None:
        session.websocket.scope.get("state", {}).get(UNCOUNT, lambda: None)()
        if before := self._sessions.get(study):  # of the same run, or this one had been refused: it was cut off
            before.end()
            self._used[study] = before.used
        session.inherit(self._used.pop(study, frozenset()))
        self._sessions[study] = session
        self._log_change("engine joined", study)
        sending = asyncio.create_task(session.send_all())
        try:
            await session.take_all()
        finally:
            sending.cancel()
            if self._sessions.get(study) is session:
                del self._sessions[study]
                self._used[study] = session.used
                self._listener.engine_lost(study)
                self._log_change("engine lost", study)

    def _log_change(self, change: str, study: str) -> None:
        if self._changes.take((change, study)):
            log.info(change, study=study)


class _EngineSession:
    """One engine's connection."""

    def __init__(self, study: str, websocket: WebSocket, listener: EngineListener, limits: Limits) -> None:
        self.websocket = websocket
        self.wake = asyncio.Event()
        self.known = False
        self._study = study
        self._listener = listener
        self._messages, self._events = Pace(limits.messages_per_s), Pace(limits.entries_per_s)
        self._taken = 0
        self._sent: Standing | None = None
        self._granted: dict[int, frozenset[Device]] = {}  # by standings from the latest acted upon, number 0 by its predecessor
        self._uses: frozenset[Device] = frozenset()
        self._replaced = asyncio.Event()

    def end(self) -> None:
        """End a connection whose engine has connected again."""
        self._replaced.set()

    async def send_all(self) -> None:
        """Send what holds, at once and at every change."""
        with suppress(WebSocketDisconnect, RuntimeError):  # closed from the other task
            while True:
                number = self._sent.number if self._sent else 0
                standing = self._listener.standing(self._study, self._taken, self.known)
                if self._sent is None or standing != self._sent.model_copy(update={"number": 0}):
                    self._sent = standing.model_copy(update={"number": number + 1})
                    self._granted[number + 1] = frozenset().union(*standing.devices.values())
                    await self.websocket.send_text(self._sent.model_dump_json())
                await self.wake.wait()
                self.wake.clear()

    @property
    def used(self) -> frozenset[Device]:
        """The GPUs that processes of the study may compute on."""
        return self._uses.union(*self._granted.values())

    def inherit(self, used: frozenset[Device]) -> None:
        """Take in what its predecessor may use."""
        self._granted = {0: used}

    def forget(self) -> None:
        """Take in that no process of the study runs."""
        self._uses, self._granted = frozenset(), {}

    async def receive(self) -> FromEngine:
        """Return the next message. Raises `InputError`, or `WebSocketDisconnect` at the end."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._messages.wait_s(loop.time()))
        message = await self._next_message()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        self._messages.count(loop.time(), 1)
        try:
            return from_engine.validate_json(message.get("text") or "")
        except ValidationError as error:
            raise input_error(error) from error

    async def _next_message(self) -> dict[str, Any]:
        receiving, replaced = asyncio.ensure_future(self.websocket.receive()), asyncio.ensure_future(self._replaced.wait())
        try:
            await asyncio.wait({receiving, replaced}, return_when=asyncio.FIRST_COMPLETED)
            return dict(receiving.result()) if receiving.done() else {"type": "websocket.disconnect"}
        finally:
            for waiting in (receiving, replaced):
                waiting.cancel()

    async def take_all(self) -> None:
        """Take in what the engine reports until the connection ends."""
        while True:
            match await self.receive():
                case EngineHello():
                    raise InputError("hello", self._study, "one hello per connection")
                case Uses(standing=number, devices=devices):
                    self._uses = frozenset(devices)
                    self._granted = {sent: granted for sent, granted in self._granted.items() if sent >= number}
                    self._listener.uses_changed()
                case Left():
                    self._listener.engine_left(self._study)
                case Happened(first=first, events=events):
                    await self._take(first, [decode(*encoded) for encoded in events])

    async def _take(self, first: int, events: list[Event]) -> None:
        loop = asyncio.get_running_loop()
        for begin in range(0, len(events), BATCH):
            await asyncio.sleep(self._events.wait_s(loop.time()))
            for event in events[begin : begin + BATCH]:
                self._listener.happened(self._study, event)
            self._events.count(loop.time(), len(events[begin : begin + BATCH]))
        await self._listener.written()
        self._taken = first + len(events) - 1
        self.wake.set()

    async def refuse(self, reason: str) -> None:
        """Say why nothing more is taken from this engine, and close."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self.websocket.send_text(Refused(reason=reason).model_dump_json())
        await self.close(REFUSED, reason)

    async def close(self, code: int, reason: str) -> None:
        """Close, unless the peer has closed first."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self.websocket.close(code, close_reason(reason))
