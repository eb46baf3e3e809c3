"""For those who test the controller or build on it: switches that exist in memory only, and a served controller of its own."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from beamer.clock import SteadyClock
from beamer.gpu.policies import gpu_policy
from beamer.network.fabric import Fabric
from beamer.network.policies import network_policy
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.store import Journal
from controller.address import listen
from controller.http.api import create_app
from controller.http.server import HttpServer, http_server
from controller.identity.authority import Authority, KeyFiles, Subject
from controller.identity.credentials import NO_CREDENTIALS, Credentials
from controller.journal.replay import recover, resume
from controller.limits import Limits
from controller.network.delivery import Switches
from controller.openflow.reports import NetworkSeen, PairCount, SwitchConnected, SwitchEvent, SwitchInstalled, SwitchLost
from controller.openflow.rules import JobRules
from controller.openflow.terms import Terms
from controller.runtime import Runtime
from controller.settings import ControllerSettings

PATIENCE_S = 30.0  # for what must come; nothing is measured by it

_Answer = TypeVar("_Answer")


class SwitchesInMemory:
    """Switches that record what is installed and, while `acknowledging`, acknowledge it at once.

    installed: every generation with its rules, oldest first. pairs: what `counters` returns.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.acknowledging = True
        self.installed: list[tuple[int, tuple[JobRules, ...]]] = []
        self.pairs: tuple[PairCount, ...] = ()
        self._on_event: Callable[[SwitchEvent], None] = lambda event: None

    def lead(self, on_event: Callable[[SwitchEvent], None], terms: Terms) -> None:
        """Report every event to `on_event` from now on."""
        self._on_event = on_event

    async def start(self) -> None:
        """Let every switch connect."""
        for name in self.names:
            self._on_event(SwitchConnected(name))

    async def stop(self) -> None:
        """Do nothing: the record stays."""

    def install(self, generation: int, jobs: Sequence[JobRules]) -> None:
        """Record the rules and acknowledge them."""
        self.installed.append((generation, tuple(jobs)))
        if self.acknowledging:
            self.acknowledge()

    def acknowledge(self, generation: int | None = None) -> None:
        """Acknowledge a generation (default: the latest) on every switch."""
        generation = self.installed[-1][0] if generation is None else generation
        for name in self.names:
            self._on_event(SwitchInstalled(name, generation, 0))

    def lose(self, name: str) -> None:
        """Lose a switch's connection."""
        self._on_event(SwitchLost(name))

    def tell(self, event: SwitchEvent) -> None:
        """Report an event."""
        self._on_event(event)

    def see(self, seen: NetworkSeen) -> None:
        """Report what is seen of the network."""
        self._on_event(seen)

    async def counters(self) -> tuple[PairCount, ...]:
        """Return `pairs`."""
        return self.pairs


class Served:
    """A controller that is served at `url` from another thread."""

    def __init__(self, url: str, runtime: Runtime, loop: asyncio.AbstractEventLoop, server: HttpServer) -> None:
        self.url = url
        self.runtime = runtime
        self.loop = loop
        self.server = server

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self.url.partition("://")[2].rpartition(":")
        return host, int(port)

    def ask(self, read: Callable[[Runtime], _Answer]) -> _Answer:
        """Return what is read of the runtime on its own thread."""

        async def reading() -> _Answer:
            return read(self.runtime)

        return asyncio.run_coroutine_threadsafe(reading(), self.loop).result(PATIENCE_S)

    def until(self, holds: Callable[[Runtime], bool]) -> bool:
        """Wait until something holds of the runtime; return whether it does."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.ask(holds):
                return True
            time.sleep(0.002)
        return False


def made_authority(directory: Path) -> Authority:
    """Return a new authority, its files in a directory of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    return Authority.make(directory, datetime.now(UTC))


def signed(authority: Authority, name: str, *uris: str, dns: str = "", valid_s: float = 86_400) -> KeyFiles:
    """Return a certificate and its key, in files of that name. dns: of a server, which others connect to."""
    now = datetime.now(UTC)
    return authority.issue(Subject(name, uris, (dns,) if dns else ()), now, now + timedelta(seconds=valid_s))


def made_runtime(
    settings: ControllerSettings,
    journal: Journal,
    switches: Switches | None = None,
    clock: SteadyClock | None = None,
) -> Runtime:
    """Return a controller that goes on where a journal ends, not started yet. switches: None: switches in memory."""
    clock = clock or SteadyClock()
    names = [switch.name for switch in settings.fabric.switches]
    recovered = recover(journal, settings.fabric, settings.watch.grace_s, settings.limits.kept)
    resume(journal, recovered, settings.fabric, clock)
    return Runtime(settings, recovered, Batches(journal), switches or SwitchesInMemory(names), clock)


@contextmanager
def served(
    fabric: Fabric,
    journal: Path,
    policy: str = "fifo",
    limits: Limits = Limits(),  # noqa: B008  # frozen
    credentials: Credentials = NO_CREDENTIALS,
    gpus: str | None = None,
    port: int = 0,
) -> Iterator[Served]:
    """Serve a controller that keeps its journal in a file.

    gpus: the policy that decides on them, None for none. port: where it listens; 0: any.
    """
    started: list[tuple[HttpServer, Runtime, asyncio.AbstractEventLoop]] = []
    ready = threading.Event()
    listener = listen(f"127.0.0.1:{port}")

    async def serve() -> None:
        gpu = None if gpus is None else gpu_policy(gpus)
        settings = ControllerSettings(fabric, network_policy(policy), gpu_policy=gpu, limits=limits)
        runtime = made_runtime(settings, Journal(f"sqlite:///{journal}"))
        await runtime.start()
        server = http_server(create_app(runtime, credentials), limits, limits.connections, credentials.http)
        started.append((server, runtime, asyncio.get_running_loop()))
        asyncio.get_running_loop().call_later(0, ready.set)
        await server.serve([listener])
        await runtime.stop()

    port = listener.getsockname()[1]
    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    if not ready.wait(PATIENCE_S):
        raise RuntimeError("the controller did not start")
    server, runtime, loop = started[0]
    while not server.started:
        time.sleep(0.01)
    try:
        yield Served(f"{'https' if credentials.http else 'http'}://127.0.0.1:{port}", runtime, loop, server)
    finally:
        server.stop()
        thread.join(PATIENCE_S)
