"""The agent: apply a controller's assignments, report connections and counters, expire the queues without a controller.

The event loop only communicates; everything that touches the kernel runs in one thread beside it, in order. A controller is
believed nothing: what is no assignment, or one that no host can carry out, is answered and changes nothing.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import ParamSpec, TypeVar

from websockets.exceptions import WebSocketException

from beamer.errors import BeamerError, InputError, PlatformError, shortened
from beamer.network.protocol import (
    Applied,
    Assignment,
    Connections,
    Counters,
    Hello,
    Interface,
    Message,
    PortCounters,
    Welcome,
    WorkerBytes,
    WorkerId,
    Workers,
)
from beamer.protocol_version import PROTOCOL_VERSION
from beamer.versioned_messages import encode, is_known
from hostagent.desired import DesiredState, desired_state, generation_of, parse_message
from hostagent.enforce import Enforcer, PollResult
from hostagent.expiry.deadline import DEFAULT_DURATION_S, HeldQueueDeadline, QueueDeadline
from hostagent.expiry.guard import Guard
from hostagent.expiry.state import StateDirectory
from hostagent.inbox import Inbox
from hostagent.interfaces import interfaces
from hostagent.limits import ASSIGNMENT_LIMITS
from hostagent.link.controllers import ControllerConnection, ControllerLink
from hostagent.link.report_fitting import ReportFitting
from hostagent.rate_limited_log import RateLimitedLog
from hostagent.workers.attach import AttachServer

# Pauses between attempts at an assignment that could not be applied grow from the first to the last.
_FIRST_ATTEMPT_S, _LAST_ATTEMPT_S = 1.0, 10.0
_IDLE_AFTER_S = 0.5  # Connections count as idle so long after their last change.
_IDLE_FACTOR = 4  # Sockets are polled less often by this factor while connections are idle.
# The pause between checks of connections on their way to a mark is short, as they send nothing new meanwhile.
_DRAIN_PAUSE_S = 0.005
_DRAIN_LOOKS = 4  # After so many checks other calls of the kernel have their turn.
# Reports of leases pause so long: a worker that attaches and detaches in a loop causes a report of all of them each time.
_LEASES_PAUSE_S = 0.05

log = logging.getLogger("beamer.hostagent")
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class AgentOptions:
    """How an agent behaves."""

    name: str
    """The agent's name in the controller's fabric."""
    controllers: tuple[str, ...]
    """`ws://HOST:PORT` or `wss://HOST:PORT` of each controller, of which one leads."""
    expiry_s: float = DEFAULT_DURATION_S
    """Seconds for which queues stay without a controller.

    An agent that still runs removes the marks with them. Otherwise marks end with their connections, without effect once the
    edge switch's rules have expired.
    """
    poll_s: float = 0.1
    """Seconds between polls for new sockets."""
    counters_s: float = 1.0
    """Seconds between reports of counters."""
    tls: ssl.SSLContext | None = None
    """The context for wss://."""


class Agent:
    """One agent; `run` lasts until it is cancelled and leaves the queues in place until their deadline.

    attaching: a listening Unix socket, where workers attach; none do without one. random: spreads agents' attempts to connect.
    """

    def __init__(
        self,
        options: AgentOptions,
        state: StateDirectory,
        attaching: socket.socket | None = None,
        random: Random | None = None,
    ) -> None:
        self._options = options
        self._link = ControllerLink(options.name, options.controllers, options.tls, random or Random())
        self._state = state
        self._guard = Guard(state)
        self._thread = ThreadPoolExecutor(1, "kernel")
        self._connection: ControllerConnection | None = None
        self._inbox = Inbox()
        self._wanted: Assignment | None = None  # The assignment that is wanted, perhaps not applied yet.
        self._in_force: Assignment | None = None
        self._deadline = HeldQueueDeadline(QueueDeadline(state), options.expiry_s)
        self._awake = asyncio.Event()
        self._draining = asyncio.Event()
        self._changed_at = time.monotonic()
        self._reported: Connections | None = None
        self._attaching = attaching
        self._attached = AttachServer(options.name, lambda: self._leases_changed.set())
        self._leases_changed = asyncio.Event()
        self._gone: tuple[WorkerId, ...] = ()
        self._refused: dict[WorkerId, str] = {}
        self._fitting = ReportFitting()
        self._reported_workers: Workers | None = None
        self._misfits: Mapping[str, str] = {}
        self._limited_log = RateLimitedLog()

    async def run(self) -> None:
        """Serve until cancelled."""
        self._enforcer = await self._kernel(Enforcer, self._state)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._link.stay_connected(self._serve))
                tasks.create_task(self._keep_deadline())
                tasks.create_task(self._watch_sockets())
                tasks.create_task(self._drain())
                tasks.create_task(self._report_counters())
                tasks.create_task(self._report_leases())
                if self._attaching is not None:
                    tasks.create_task(self._attached.serve(self._attaching))
        finally:
            self._thread.submit(self._enforcer.close).result()
            self._thread.shutdown()

    async def _kernel(self, call: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def _serve(self, connection: ControllerConnection) -> None:
        try:
            await self._exchange(connection)
        finally:
            self._connection = None

    async def _exchange(self, connection: ControllerConnection) -> None:
        generation = self._in_force.generation if self._in_force else 0
        found = await self._interfaces()
        hello = Hello(agent=self._options.name, generation=generation, limits=ASSIGNMENT_LIMITS, interfaces=found)
        await connection.socket.send(encode(hello, connection.protocol.version))
        if connection.protocol.version < PROTOCOL_VERSION:
            what = (
                f"it speaks version {connection.protocol.version}, and this agent {PROTOCOL_VERSION}: what is newer is not used"
            )
            self._limited_log.add("older controller", what, logging.INFO)
        if is_known(Welcome, connection.protocol.version):  # The welcome comes before any report, as it bounds them.
            self._take_welcome(await connection.socket.recv(), connection)
        self._connection = connection
        self._reported_workers = None
        self._fitting.begin()
        await self._report_workers()
        if self._wanted:
            self._reported = None
            await self._poll_sockets()
        self._inbox = Inbox()
        async with asyncio.TaskGroup() as tasks:
            applying = tasks.create_task(self._apply_newest(self._inbox))
            async for frame in connection.socket:
                await self._receive(frame, connection)
            applying.cancel()

    async def _interfaces(self) -> tuple[Interface, ...]:
        """Return this machine's interfaces, none where the kernel does not tell: an agent serves without them."""
        try:
            return await self._kernel(interfaces)
        except PlatformError as error:
            self._limited_log.add("interfaces", error)
            return ()

    async def _receive(self, frame: str | bytes, connection: ControllerConnection) -> None:
        """Have an assignment applied; answer one that cannot be, which leaves the one before as it is."""
        try:
            message = self._parse(frame, connection)
            if message is None:
                return
            if isinstance(message, Welcome):
                raise InputError("kind", message.kind, "an assignment")
            wanted = desired_state(message)
        except InputError as error:  # A later attempt would fail as well.
            self._limited_log.add("assignment refused", error)
            generation = generation_of(frame)
            if generation is not None:
                await self._send(_failed(generation, error))
            return
        self._limited_log.reset("assignment refused")
        connection.accept()
        self._inbox.put(wanted)

    def _take_welcome(self, frame: str | bytes, connection: ControllerConnection) -> None:
        """Take in how much a controller takes. Raises `InputError` for another message."""
        message = self._parse(frame, connection)
        if not isinstance(message, Welcome):
            raise InputError("kind", message and message.kind, "a welcome as the controller's first message")
        connection.takes = message.limits

    def _parse(self, frame: str | bytes, connection: ControllerConnection) -> Assignment | Welcome | None:
        """Return a controller's message, None for one of a kind that only a newer controller knows. Raises `InputError`."""
        decoded = parse_message(frame, connection.protocol.version)
        if decoded.unused:
            what = f"the controller speaks version {connection.protocol.version}: {', '.join(decoded.unused)} is not used"
            self._limited_log.add("newer controller", what, logging.WARNING)
        return decoded.message

    async def _apply_newest(self, inbox: Inbox) -> None:
        """Apply assignments as they arrive, skipping those that a newer one has replaced."""
        while True:
            wanted = await inbox.take()
            pause, reported = _FIRST_ATTEMPT_S, None
            while True:
                answer, seen = await self._apply(wanted)
                if answer != reported:
                    await self._send(answer)
                    reported = answer
                if seen is None:
                    await self._poll_sockets()
                else:
                    await self._report_seen(seen)
                if answer.error is None or await inbox.arrival(pause):
                    break
                pause = min(2 * pause, _LAST_ATTEMPT_S)

    async def _apply(self, wanted: DesiredState) -> tuple[Applied, PollResult | None]:
        """Return the answer to an assignment, and what sockets there are where it could be applied."""
        self._wanted = wanted.assignment
        self._awake.set()
        self._renew()  # The guard has to be there to remove a queue before one is made.
        try:
            changes, seen = await self._kernel(self._applied, wanted)
        except (BeamerError, OSError) as error:
            self._limited_log.add("assignment not applied", error)
            return _failed(wanted.assignment.generation, error), None
        finally:
            self._go_on_draining()
        self._limited_log.reset("assignment not applied")
        self._in_force = wanted.assignment
        return Applied(generation=wanted.assignment.generation, changes=changes), seen

    def _applied(self, wanted: DesiredState) -> tuple[int, PollResult]:
        """Apply an assignment, and return how much changed and what sockets were found meanwhile."""
        return self._enforcer.apply(wanted), self._enforcer.found()

    async def _send(self, message: Message) -> None:
        """Send a message if there is a controller; `ControllerLink` handles its absence."""
        connection = self._connection
        if connection is not None:
            if not is_known(type(message), connection.protocol.version):
                what = f"the controller speaks version {connection.protocol.version}: {type(message).__name__} is not sent"
                self._limited_log.add("older controller", what, logging.WARNING)
                return
            try:
                await connection.socket.send(encode(self._fitting.fit(message, connection.takes), connection.protocol.version))
            except WebSocketException:
                self._connection = None

    def _renew(self) -> None:
        try:
            if self._deadline.renew():
                self._guard.ensure()
        except OSError as error:
            self._limited_log.add("deadline", error)

    async def _keep_deadline(self) -> None:
        """Renew the deadline while there is a controller; without one, remove everything when it has passed."""
        while True:
            if self._connection is not None and self._connection.accepted and self._deadline.granted:
                self._renew()
            elif self._deadline.expired:
                log.warning("no controller for %g s: removing the queues", self._deadline.duration_s)
                self._deadline.forget()
                self._wanted, self._in_force = None, None
                self._gone, self._refused = (), {}
                try:
                    await self._kernel(self._enforcer.expire)
                except (BeamerError, OSError) as error:  # The guard tries to remove them, too, repeatedly.
                    self._limited_log.add("removal", error)
            await asyncio.sleep(self._deadline.wait_s())

    async def _watch_sockets(self) -> None:
        while True:
            if not self._wanted or not self._wanted.workers:
                await self._awake.wait()
            self._awake.clear()
            began = time.monotonic()
            complete = await self._poll_sockets()
            ended = time.monotonic()
            idle = complete and ended - self._changed_at > _IDLE_AFTER_S
            # A poll of tens of thousands of sockets takes long: at most half of the kernel thread's time is spent on polls.
            await asyncio.sleep(max(self._options.poll_s * (_IDLE_FACTOR if idle else 1), ended - began))

    async def _poll_sockets(self) -> bool:
        """Poll the workers' sockets and report what changed; return whether the next poll may be delayed."""
        seen = await self._kernel(self._enforcer.poll)
        self._go_on_draining()
        return await self._report_seen(seen)

    async def _report_seen(self, seen: PollResult) -> bool:
        """Report what has changed of the sockets; return whether the next poll may be delayed."""
        if seen.error is not None:
            self._limited_log.add("sockets", seen.error)
        await self._report_found(seen)
        if seen.report != self._reported:
            self._reported = seen.report
            self._changed_at = time.monotonic()
            await self._send(seen.report)
            await self._report_workers()
        return seen.complete or seen.error is not None

    def _go_on_draining(self) -> None:
        """Have `_drain` look at the connections that drain, if any do: a call of the kernel's thread costs more than a poll."""
        if self._enforcer.draining:
            self._draining.set()

    async def _drain(self) -> None:
        while True:
            await self._draining.wait()
            self._draining.clear()
            while await self._kernel(self._look_at_drains):
                await asyncio.sleep(_DRAIN_PAUSE_S)

    def _look_at_drains(self) -> bool:
        """Look a few times, as to change threads takes longer than to look; return whether any connection still drains."""
        for look in range(_DRAIN_LOOKS):
            if look:
                time.sleep(_DRAIN_PAUSE_S)
            if not self._enforcer.drain():
                return False
        return True

    async def _report_found(self, seen: PollResult) -> None:
        """Report which workers' processes are gone or refused; log each of these once, and few of many."""
        refused = dict(seen.refused)
        for worker, reason in refused.items():
            if self._refused.get(worker) != reason:
                self._limited_log.add("not marked", f"worker {worker.rank} of {worker.job}: {reason}", logging.WARNING)
        self._gone, self._refused = seen.gone, refused
        await self._report_workers()

    async def _report_leases(self) -> None:
        while True:
            await self._leases_changed.wait()
            self._leases_changed.clear()
            await self._report_workers()
            await asyncio.sleep(_LEASES_PAUSE_S)

    async def _report_workers(self) -> None:
        """Report leases and workers without a process that is marked, if that has changed since it was last reported."""
        for _ in range(2):  # The first report finds out whose leases are left out, the second one names them.
            refused = dict(self._refused)
            for worker, reason in self._fitting.workers:
                refused.setdefault(worker, reason)
            report = Workers(leases=self._attached.leases, gone=self._gone, refused=tuple(refused.items()))
            if report == self._reported_workers:
                return
            self._reported_workers = report
            await self._send(report)

    async def _report_counters(self) -> None:
        while True:
            await asyncio.sleep(self._options.counters_s)
            if self._wanted:
                try:
                    await self._kernel(self._enforcer.verify)
                    self._go_on_draining()
                except (BeamerError, OSError) as error:
                    self._limited_log.add("marks", error)
                try:
                    ports, mended, sent = await self._kernel(self._counted)
                except (BeamerError, OSError) as error:
                    self._limited_log.add("counters", error)
                    continue
                for name, changes in mended.items():
                    what = f"{changes} changes of {name}'s queues by another program, which are as they were again"
                    self._limited_log.add("mended", what, logging.WARNING)
                await self._send(Counters(at_s=time.time(), ports=ports, workers=sent))
                self._check_interfaces(ports)

    def _counted(self) -> tuple[tuple[PortCounters, ...], Mapping[str, int], tuple[WorkerBytes, ...]]:
        """Return every port's counters, what was mended of their trees, and what each worker has sent."""
        return self._enforcer.counters(), self._enforcer.mended(), self._enforcer.worker_bytes()

    def _check_interfaces(self, ports: tuple[PortCounters, ...]) -> None:
        """Have the assignment applied again when an interface is gone, another program's, or of another MTU.

        That says so, and goes on until it is as it should be.
        """
        wanted = {port.interface for port in self._in_force.ports} if self._in_force else set()
        misfits = self._enforcer.misfits
        if wanted - {port.interface for port in ports} or misfits != self._misfits:
            self._misfits = misfits
            self._inbox.renew()


def _failed(generation: int, error: Exception) -> Applied:
    return Applied(generation=generation, changes=0, error=shortened(str(error)))
