"""A controller's HTTP API, served from a thread of the test's own process, with switches in memory."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import uvicorn

from beamer.clock import SteadyClock
from beamer.network.fabric import Fabric
from beamer.network.policies import network_policy
from beamer.studies.journal.store import Journal
from controller.api import create_app
from controller.runtime import Runtime
from controller.testing import SwitchesInMemory

PATIENCE_S = 30.0  # for what must come; nothing is measured by it

_Answer = TypeVar("_Answer")


class Served:
    """A controller that is served at `url`."""

    def __init__(self, url: str, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.runtime = runtime
        self._loop = loop

    def ask(self, read: Callable[[Runtime], _Answer]) -> _Answer:
        """Return what is read of the runtime on its own thread."""

        async def reading() -> _Answer:
            return read(self.runtime)

        return asyncio.run_coroutine_threadsafe(reading(), self._loop).result(PATIENCE_S)

    def until(self, holds: Callable[[Runtime], bool]) -> bool:
        """Wait until something holds of the runtime; return whether it does."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.ask(holds):
                return True
            time.sleep(0.002)
        return False


@contextmanager
def served(fabric: Fabric, journal: Path, policy: str = "fifo") -> Iterator[Served]:
    """Serve a controller that keeps its journal in a file."""
    started: list[tuple[uvicorn.Server, Runtime, asyncio.AbstractEventLoop]] = []
    ready = threading.Event()

    async def serve() -> None:
        names = [switch.name for switch in fabric.switches]
        runtime = Runtime(
            fabric,
            Journal(f"sqlite:///{journal}"),
            network_policy(policy),
            8,
            lambda on_event: SwitchesInMemory(names, on_event),
            0,
            SteadyClock(),
        )
        await runtime.start()
        server = uvicorn.Server(uvicorn.Config(create_app(runtime), port=0, log_config=None, ws="none"))
        started.append((server, runtime, asyncio.get_running_loop()))
        asyncio.get_running_loop().call_later(0, ready.set)
        await server.serve()
        await runtime.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    server, runtime, loop = started[0]
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(f"http://127.0.0.1:{port}", runtime, loop)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
