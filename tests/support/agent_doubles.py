"""Test doubles for host agents: a controller that a test directs, and a kernel that exists in memory only."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from beamer.network.connection import Connection
from beamer.network.protocol import (
    AgentReport,
    Applied,
    Assignment,
    Connections,
    Counters,
    Hello,
    PortCounters,
    Workers,
    from_agent,
)
from beamer.ports import HTTP_PORT
from hostagent.desired import DesiredState
from hostagent.enforce import PollResult
from hostagent.expiry.state import StateDirectory
from tests.support.namespaces import Namespace

_Message = TypeVar("_Message", Applied, Connections, Counters, Hello, Workers)
_PATIENCE_S = 60  # a machine may be overloaded


class FakeController:
    """A WebSocket server that sends assignments and keeps what agents send. It listens inside a namespace's loopback.

    Like the real one it lets the agent mark the connections that it has reported, unless `confirming` is turned off.
    """

    def __init__(self, space: Namespace, port: int = HTTP_PORT) -> None:
        self.url = f"ws://127.0.0.1:{port}"
        self.received: list[AgentReport] = []
        self.confirming = True
        self._space, self._port = space, port
        self._news = threading.Condition()
        self._connections: set[ServerConnection] = set()
        self._assignment: Assignment | None = None
        self._known: tuple[Connection, ...] = ()
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "FakeController":
        listening = self._space.call(self._listening_socket)
        self._end = asyncio.Event()
        ready = threading.Event()

        async def run() -> None:
            async with serve(self._exchange, sock=listening):
                ready.set()
                await self._end.wait()

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(run()))
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close every connection and listen no more."""
        if self._thread:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
            self._loop.close()
            self._thread = None

    def assign(self, assignment: Assignment) -> None:
        """Send `assignment` to every agent that is connected, and to each that will be."""
        asyncio.run_coroutine_threadsafe(self._send(assignment), self._loop).result(_PATIENCE_S)

    def send(self, frame: str | bytes) -> None:
        """Send every agent that is connected a message of any content."""
        asyncio.run_coroutine_threadsafe(self._send_frame(frame), self._loop).result(_PATIENCE_S)

    def forget(self) -> None:
        """Send agents that connect from now on no assignment."""
        self._assignment = None

    def disconnect_agents(self) -> None:
        """Close every connection; agents may connect again."""
        asyncio.run_coroutine_threadsafe(self._disconnect_agents(), self._loop).result(_PATIENCE_S)

    def wait(self, kind: type[_Message], fits: Callable[[_Message], bool] = lambda _: True, after: int = 0) -> _Message:
        """Return the first message of a kind that fits, waiting for it; `after`: skip that many of the first."""

        def found() -> _Message | None:
            return next((m for m in self.received[after:] if isinstance(m, kind) and fits(m)), None)

        with self._news:
            if not self._news.wait_for(lambda: found() is not None, _PATIENCE_S):
                raise TimeoutError(f"no fitting {kind.__name__} among {self.received[after:]}")
            message = found()
        assert message is not None
        return message

    def applied(self, assignment: Assignment) -> Applied:
        """Assign and return the acknowledgement."""
        after = len(self.received)
        self.assign(assignment)
        return self.wait(Applied, lambda m: m.generation == assignment.generation, after)

    def _listening_socket(self) -> Any:
        import socket

        return socket.create_server(("127.0.0.1", self._port))

    async def _exchange(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        try:
            if self._assignment:
                await connection.send(self._assignment.model_dump_json())
            async for text in connection:
                message = from_agent.validate_json(text)
                with self._news:
                    self.received.append(message)
                    self._news.notify_all()
                if isinstance(message, Connections) and self._assignment and self.confirming:
                    self._known = message.connections
                    await self._send(self._assignment)
        except ConnectionClosed:
            pass
        finally:
            self._connections.discard(connection)

    async def _send(self, assignment: Assignment) -> None:
        self._assignment = assignment.model_copy(update={"connections": self._known})
        await self._send_frame(self._assignment.model_dump_json())

    async def _send_frame(self, frame: str | bytes) -> None:
        for connection in tuple(self._connections):
            with suppress(ConnectionClosed):  # of an agent that has just ended
                await connection.send(frame)

    async def _disconnect_agents(self) -> None:
        for connection in tuple(self._connections):
            await connection.close()


def agent_command(python: str, name: str, url: str, state: str, *more: str) -> Sequence[str]:
    """Return the command line of an agent, to which workers attach at `STATE/NAME.sock`."""
    options = {"--name": name, "--controller": url, "--state-dir": state, "--attach": f"{state}/{name}.sock"}
    return [python, "-m", "hostagent.cli", *(part for option in options.items() for part in option), *more]


class KernelInMemory:
    """Stands in for what enforces assignments: takes every one, and sees no connection."""

    def __init__(self, state: StateDirectory) -> None:
        self.applied: list[DesiredState] = []

    def apply(self, wanted: DesiredState) -> int:
        """Take an assignment."""
        self.applied = [wanted]
        return 1

    def poll(self) -> PollResult:
        """Return that nothing is seen."""
        return self.found()

    def found(self) -> PollResult:
        """Return that nothing was seen."""
        return PollResult(Connections(connections=()), True, (), ())

    def drain(self) -> bool:
        """Return that nothing is on its way."""
        return False

    def verify(self) -> int:
        """Return that nothing was wrong."""
        return 0

    def counters(self) -> tuple[PortCounters, ...]:
        """Return the counters of the ports of the last assignment: there are none."""
        ports = self.applied[0].assignment.ports if self.applied else ()
        return tuple(PortCounters(interface=port.interface, classes=()) for port in ports)

    @property
    def draining(self) -> bool:
        """Whether anything is on its way."""
        return False

    @property
    def misfits(self) -> dict[str, str]:
        """Say that every interface carries the network's packets."""
        return {}

    def mended(self) -> dict[str, int]:
        """Return that nothing was to be mended."""
        return {}

    def worker_bytes(self) -> tuple[()]:
        """Return that nothing was sent."""
        return ()

    def expire(self) -> None:
        """Forget everything."""
        self.applied = []

    def close(self) -> None:
        """Do nothing."""


class GuardInMemory:
    """Stands in for the process that removes queues."""

    def __init__(self, state: StateDirectory) -> None:
        """Remember nothing."""

    def ensure(self) -> None:
        """Do nothing."""
