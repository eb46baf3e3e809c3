"""The agent's life: dial the controller, carry out what it assigns, report what is seen, and let the queues expire without it.

The event loop only talks; everything that touches the kernel runs in one thread beside it, in order.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from beamer.errors import BeamerError
from beamer.protocol import Applied, Assignment, Connections, Counters, Hello, Message
from hostagent.enforce import Enforcer
from hostagent.guard import Guard
from hostagent.state import StateDirectory, now

_FIRST_RETRY_S, _LAST_RETRY_S = 0.1, 1.0
_DIAL_S = 5.0
_PING_EVERY_S, _PING_ANSWER_S = 5.0, 15.0
_RENEWALS = 20  # of the lease, in the time that it lasts
_CALM_AFTER_S = 0.5  # after the last change of connections
_CALM = 8  # how much rarer sockets are looked for then

log = logging.getLogger("beamer.hostagent")
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Options:
    """How an agent behaves.

    name: in the controller's fabric. controller: `ws://HOST:PORT`. expiry_s: how long queues and marks stay without a
    controller. poll_s: how often new sockets are looked for. counters_s: how often counters are reported.
    """

    name: str
    controller: str
    expiry_s: float = 60.0
    poll_s: float = 0.05
    counters_s: float = 1.0


class Agent:
    """One agent; `run` lasts until it is cancelled and leaves the queues to their lease."""

    def __init__(self, options: Options, state: StateDirectory) -> None:
        self._options = options
        self._state = state
        self._guard = Guard(state)
        self._thread = ThreadPoolExecutor(1, "kernel")
        self._line: ClientConnection | None = None
        self._in_force: Assignment | None = None
        self._until = state.lease()
        self._awake = asyncio.Event()
        self._changed_at = now()
        self._reported: Connections | None = None
        self._troubles: dict[str, str] = {}

    async def run(self) -> None:
        """Serve until cancelled."""
        self._enforcer = await self._kernel(Enforcer, self._state)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._stay_connected())
                tasks.create_task(self._keep_lease())
                tasks.create_task(self._watch_sockets())
                tasks.create_task(self._report_counters())
        finally:
            self._thread.submit(self._enforcer.close).result()
            self._thread.shutdown()

    async def _kernel(self, call: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def _stay_connected(self) -> None:
        url = f"{self._options.controller.rstrip('/')}/v1/agents/{self._options.name}"
        retry, reported = _FIRST_RETRY_S, ""
        while True:
            began = now()
            try:
                async with connect(
                    url,
                    open_timeout=_DIAL_S,
                    ping_interval=_PING_EVERY_S,
                    ping_timeout=_PING_ANSWER_S,
                    compression=None,
                    proxy=None,
                    max_size=None,
                ) as line:
                    log.info("connected to %s", url)
                    reported = ""
                    await self._converse(line)
                    reason = f"closed: {line.close_code} {line.close_reason}".rstrip()
            except (OSError, WebSocketException) as error:
                reason = str(error) or type(error).__name__
            finally:
                self._line = None
            if reason != reported:
                log.warning("no controller at %s (%s); keeping the last plan, dialling on", url, reason)
                reported = reason
            if now() - began > _LAST_RETRY_S:
                retry = _FIRST_RETRY_S
            await asyncio.sleep(retry)
            retry = min(2 * retry, _LAST_RETRY_S)

    async def _converse(self, line: ClientConnection) -> None:
        generation = self._in_force.generation if self._in_force else 0
        await line.send(Hello(agent=self._options.name, generation=generation).model_dump_json())
        self._line = line
        if self._in_force:
            self._renew()
            self._reported = None
            await self._look()
        newest: asyncio.Queue[Assignment] = asyncio.Queue()
        applying = asyncio.create_task(self._apply_newest(newest))
        try:
            async for text in line:
                try:
                    newest.put_nowait(Assignment.model_validate_json(text))
                except ValidationError as error:
                    log.error("not an assignment: %s", error)
        finally:
            applying.cancel()

    async def _apply_newest(self, assignments: "asyncio.Queue[Assignment]") -> None:
        """Carry out assignments as they come, leaving out those that a newer one has overtaken."""
        while True:
            assignment = await assignments.get()
            while not assignments.empty():
                assignment = assignments.get_nowait()
            await self._say(await self._apply(assignment))
            await self._look()

    async def _apply(self, assignment: Assignment) -> Applied:
        self._renew()  # before a queue is made, so that there is always somebody to remove it
        try:
            changes = await self._kernel(self._enforcer.apply, assignment)
        except (BeamerError, OSError) as error:
            log.error("generation %d: %s", assignment.generation, error)
            return Applied(generation=assignment.generation, changes=0, error=str(error))
        self._in_force = assignment
        self._awake.set()
        return Applied(generation=assignment.generation, changes=changes)

    async def _say(self, message: Message) -> None:
        """Send a message if there is a controller; its absence is `_stay_connected`'s to deal with."""
        if self._line is not None:
            try:
                await self._line.send(message.model_dump_json())
            except WebSocketException:
                self._line = None

    def _trouble(self, where: str, error: Exception) -> None:
        """Log what went wrong, once as long as it stays the same."""
        if self._troubles.get(where) != str(error):
            self._troubles[where] = str(error)
            log.error("%s: %s", where, error)

    def _renew(self) -> None:
        until = now() + self._options.expiry_s
        if self._until is not None and until - self._until < self._options.expiry_s / _RENEWALS:
            return
        self._until = until
        try:
            self._state.renew(self._until)
            self._guard.ensure()
        except OSError as error:
            self._trouble("lease", error)

    async def _keep_lease(self) -> None:
        """Renew the lease while there is a controller; without one, take everything down when it has run out."""
        while True:
            if self._line is not None and self._until is not None:
                self._renew()
            elif self._until is not None and self._until <= now():
                log.warning("no controller for %g s: removing the queues", self._options.expiry_s)
                self._until, self._in_force = None, None
                try:
                    await self._kernel(self._enforcer.expire)
                except (BeamerError, OSError) as error:  # the guard tries too, and goes on trying
                    self._trouble("removal", error)
            wait = self._options.expiry_s / _RENEWALS
            await asyncio.sleep(wait if self._until is None else min(wait, max(self._until - now(), 0.01)))

    async def _watch_sockets(self) -> None:
        while True:
            if not self._in_force or not self._in_force.workers:
                await self._awake.wait()
            self._awake.clear()
            settled = await self._look()
            calm = settled and now() - self._changed_at > _CALM_AFTER_S
            await asyncio.sleep(self._options.poll_s * (_CALM if calm else 1))

    async def _look(self) -> bool:
        """Look at the workers' sockets and report what changed; return whether every worker has a connection."""
        try:
            seen = await self._kernel(self._enforcer.poll)
        except (BeamerError, OSError) as error:
            self._trouble("sockets", error)
            return True
        if seen.report != self._reported:
            self._reported = seen.report
            self._changed_at = now()
            await self._say(seen.report)
        return seen.settled

    async def _report_counters(self) -> None:
        while True:
            await asyncio.sleep(self._options.counters_s)
            if self._in_force:
                try:
                    ports = await self._kernel(self._enforcer.counters)
                except (BeamerError, OSError) as error:
                    self._trouble("counters", error)
                    continue
                await self._say(Counters(at_s=time.time(), ports=ports))
