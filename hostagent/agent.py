"""The agent: connect to the controller, apply its assignments, report connections and counters, expire the queues without it.

The event loop only communicates; everything that touches the kernel runs in one thread beside it, in order.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from beamer.errors import BeamerError, InputError
from beamer.network.protocol import Applied, Assignment, Connections, Counters, Hello, Message, WorkerId, Workers
from hostagent.attach import AttachServer
from hostagent.desired import DesiredState, desired_state
from hostagent.enforce import Enforcer, PollResult
from hostagent.guard import Guard
from hostagent.lease import DEFAULT_DURATION_S, HeldQueueLease, QueueLease
from hostagent.state import StateDirectory

_FIRST_RETRY_S, _LAST_RETRY_S = 0.1, 1.0  # of connecting
_FIRST_ATTEMPT_S, _LAST_ATTEMPT_S = 1.0, 10.0  # between attempts at an assignment that could not be applied
_CONNECT_S = 5.0
_PING_EVERY_S, _PING_ANSWER_S = 5.0, 15.0
_IDLE_AFTER_S = 0.5  # after the last change of connections
_IDLE_FACTOR = 4  # by which sockets are polled less often then

log = logging.getLogger("beamer.hostagent")
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class AgentOptions:
    """How an agent behaves.

    name: in the controller's fabric. controller: `ws://HOST:PORT`. expiry_s: how long queues stay without a controller; an
    agent that still runs removes the marks with them; otherwise they end with their connections, without effect once the edge
    switch's rules have expired. poll_s: between polls for new sockets. counters_s: between reports of counters.
    """

    name: str
    controller: str
    expiry_s: float = DEFAULT_DURATION_S
    poll_s: float = 0.1
    counters_s: float = 1.0


class _Inbox:
    """The newest assignment received; it replaces one that was not taken yet."""

    def __init__(self) -> None:
        self._newest: Assignment | None = None
        self._arrived = asyncio.Event()

    def put(self, assignment: Assignment) -> None:
        self._newest = assignment
        self._arrived.set()

    async def take(self) -> Assignment:
        await self._arrived.wait()
        self._arrived.clear()
        assert self._newest is not None
        return self._newest

    async def arrival(self, patience_s: float) -> bool:
        """Wait for an assignment and leave it there; return whether one has arrived."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._arrived.wait()
        return self._arrived.is_set()


class Agent:
    """One agent; `run` lasts until it is cancelled and leaves the queues in place until their lease ends.

    attaching: a listening Unix socket, where workers attach; none do without one.
    """

    def __init__(self, options: AgentOptions, state: StateDirectory, attaching: socket.socket | None = None) -> None:
        self._options = options
        self._state = state
        self._guard = Guard(state)
        self._thread = ThreadPoolExecutor(1, "kernel")
        self._connection: ClientConnection | None = None
        self._wanted: Assignment | None = None  # and perhaps not applied yet
        self._in_force: Assignment | None = None
        self._lease = HeldQueueLease(QueueLease(state), options.expiry_s)
        self._awake = asyncio.Event()
        self._changed_at = time.monotonic()
        self._reported: Connections | None = None
        self._attaching = attaching
        self._attached = AttachServer(options.name, lambda: self._leases_changed.set())
        self._leases_changed = asyncio.Event()
        self._gone: tuple[WorkerId, ...] = ()
        self._refused: dict[WorkerId, str] = {}
        self._reported_workers: Workers | None = None
        self._logged: dict[str, str] = {}

    async def run(self) -> None:
        """Serve until cancelled."""
        self._enforcer = await self._kernel(Enforcer, self._state)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._stay_connected())
                tasks.create_task(self._keep_lease())
                tasks.create_task(self._watch_sockets())
                tasks.create_task(self._report_counters())
                tasks.create_task(self._report_leases())
                if self._attaching is not None:
                    tasks.create_task(self._attached.serve(self._attaching))
        finally:
            self._thread.submit(self._enforcer.close).result()
            self._thread.shutdown()

    async def _kernel(self, call: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def _stay_connected(self) -> None:
        url = f"{self._options.controller.rstrip('/')}/v1/agents/{self._options.name}"
        retry, reported = _FIRST_RETRY_S, ""
        while True:
            began = time.monotonic()
            try:
                async with connect(
                    url,
                    open_timeout=_CONNECT_S,
                    ping_interval=_PING_EVERY_S,
                    ping_timeout=_PING_ANSWER_S,
                    compression=None,
                    proxy=None,
                    max_size=None,
                ) as connection:
                    log.info("connected to %s", url)
                    reported = ""
                    await self._exchange(connection)
                    reason = f"closed: {connection.close_code} {connection.close_reason}".rstrip()
            except* (OSError, WebSocketException) as errors:
                reason = str(errors.exceptions[0]) or type(errors.exceptions[0]).__name__
            except* Exception as errors:  # a defect; a new connection brings the whole assignment again
                log.exception("the exchange with %s failed", url)
                reason = repr(errors.exceptions[0])
            finally:
                self._connection = None
            if (this := asyncio.current_task()) and this.cancelling():  # a task group that fails meanwhile may swallow it
                raise asyncio.CancelledError
            if reason != reported:
                log.warning("no controller at %s (%s); keeping the last plan, connecting again", url, reason)
                reported = reason
            if time.monotonic() - began > _LAST_RETRY_S:
                retry = _FIRST_RETRY_S
            await asyncio.sleep(retry)
            retry = min(2 * retry, _LAST_RETRY_S)

    async def _exchange(self, connection: ClientConnection) -> None:
        generation = self._in_force.generation if self._in_force else 0
        await connection.send(Hello(agent=self._options.name, generation=generation).model_dump_json())
        self._connection = connection
        self._reported_workers = None
        await self._report_workers()
        if self._wanted:
            self._renew()
            self._reported = None
            await self._poll_sockets()
        inbox = _Inbox()
        async with asyncio.TaskGroup() as tasks:
            applying = tasks.create_task(self._apply_newest(inbox))
            async for text in connection:
                try:
                    inbox.put(Assignment.model_validate_json(text))
                except ValidationError as error:
                    log.error("not an assignment: %s", error)
            applying.cancel()

    async def _apply_newest(self, inbox: _Inbox) -> None:
        """Apply assignments as they arrive, skipping those that a newer one has replaced."""
        while True:
            assignment = await inbox.take()
            try:
                wanted = desired_state(assignment)
            except InputError as error:  # a later attempt would fail as well
                await self._send(_failed(assignment, error))
                continue
            pause, reported = _FIRST_ATTEMPT_S, None
            while True:
                answer = await self._apply(wanted)
                if answer != reported:
                    await self._send(answer)
                    reported = answer
                await self._poll_sockets()
                if answer.error is None or await inbox.arrival(pause):
                    break
                pause = min(2 * pause, _LAST_ATTEMPT_S)

    async def _apply(self, wanted: DesiredState) -> Applied:
        self._wanted = wanted.assignment
        self._awake.set()
        self._renew()  # before a queue is made, so that the guard is there to remove it
        try:
            changes = await self._kernel(self._enforcer.apply, wanted)
        except (BeamerError, OSError) as error:
            return _failed(wanted.assignment, error)
        self._in_force = wanted.assignment
        return Applied(generation=wanted.assignment.generation, changes=changes)

    async def _send(self, message: Message) -> None:
        """Send a message if there is a controller; `_stay_connected` handles its absence."""
        if self._connection is not None:
            try:
                await self._connection.send(message.model_dump_json())
            except WebSocketException:
                self._connection = None

    def _log_once(self, where: str, error: Exception) -> None:
        """Log an error, once as long as it stays the same."""
        if self._logged.get(where) != str(error):
            self._logged[where] = str(error)
            log.error("%s: %s", where, error)

    def _renew(self) -> None:
        try:
            if self._lease.renew():
                self._guard.ensure()
        except OSError as error:
            self._log_once("lease", error)

    async def _keep_lease(self) -> None:
        """Renew the lease while there is a controller; without one, remove everything when it has run out."""
        while True:
            if self._connection is not None and self._lease.granted:
                self._renew()
            elif self._lease.expired:
                log.warning("no controller for %g s: removing the queues", self._lease.duration_s)
                self._lease.forget()
                self._wanted, self._in_force = None, None
                self._gone, self._refused = (), {}
                try:
                    await self._kernel(self._enforcer.expire)
                except (BeamerError, OSError) as error:  # the guard tries too, repeatedly
                    self._log_once("removal", error)
            await asyncio.sleep(self._lease.wait_s())

    async def _watch_sockets(self) -> None:
        while True:
            if not self._wanted or not self._wanted.workers:
                await self._awake.wait()
            self._awake.clear()
            complete = await self._poll_sockets()
            idle = complete and time.monotonic() - self._changed_at > _IDLE_AFTER_S
            await asyncio.sleep(self._options.poll_s * (_IDLE_FACTOR if idle else 1))

    async def _poll_sockets(self) -> bool:
        """Poll the workers' sockets and report what changed; return whether the next poll may be delayed."""
        seen = await self._kernel(self._enforcer.poll)
        if seen.error is not None:
            self._log_once("sockets", seen.error)
        await self._report_found(seen)
        if seen.report != self._reported:
            self._reported = seen.report
            self._changed_at = time.monotonic()
            await self._send(seen.report)
        return seen.complete or seen.error is not None

    async def _report_found(self, seen: PollResult) -> None:
        """Report which workers' processes are gone or refused; log each of these once."""
        refused = dict(seen.refused)
        for worker, reason in refused.items():
            if self._refused.get(worker) != reason:
                log.warning("worker %d of %s is not marked: %s", worker.rank, worker.job, reason)
        self._gone, self._refused = seen.gone, refused
        await self._report_workers()

    async def _report_leases(self) -> None:
        while True:
            await self._leases_changed.wait()
            self._leases_changed.clear()
            await self._report_workers()

    async def _report_workers(self) -> None:
        """Report leases and workers without a process that is marked, if that has changed since it was last reported."""
        report = Workers(leases=self._attached.leases, gone=self._gone, refused=tuple(self._refused.items()))
        if report != self._reported_workers:
            self._reported_workers = report
            await self._send(report)

    async def _report_counters(self) -> None:
        while True:
            await asyncio.sleep(self._options.counters_s)
            if self._wanted:
                try:
                    await self._kernel(self._enforcer.verify)
                except (BeamerError, OSError) as error:
                    self._log_once("marks", error)
                try:
                    ports = await self._kernel(self._enforcer.counters)
                except (BeamerError, OSError) as error:
                    self._log_once("counters", error)
                    continue
                sent = await self._kernel(self._enforcer.worker_bytes)
                await self._send(Counters(at_s=time.time(), ports=ports, workers=sent))


def _failed(assignment: Assignment, error: Exception) -> Applied:
    log.error("generation %d: %s", assignment.generation, error)
    return Applied(generation=assignment.generation, changes=0, error=str(error))
