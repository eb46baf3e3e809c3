"""A site on loopback: `beamer-controller` processes that are killed, stopped and started again, and where they listen."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from beamer.engines.local.supervisor.ports import KeptPort
from beamer.network.fabric import Fabric
from beamer.studies.journal.location import Location
from beamer.testing.fabrics import star
from eval.faults.base import PATIENCE_S

FABRIC: Fabric = star(4)
POLL_S = 0.01  # So long passes between two checks that send a controller nothing.
ASK_S = 0.05  # So long passes between two HTTP requests, each of which takes time from the controller.
SETTLED_S = 1.2  # A plan is settled after so long without a new generation: progress alone re-orders every 0.5 s.
POLICY = "fifo"  # Its order does not depend on the time that has passed: a controller decides anew when it starts.
SERVE: Sequence[str] = ("-m", "controller.cli")
NO_CA_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For plain HTTP: without it httpx loads all CA certificates for each client, which takes longer than an answer."""


class SiteController:
    """A controller by its address, however often it is killed and started again. name: of it. url: where it listens."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    @property
    def log(self) -> str:
        """What it has printed, of all its lives."""
        raise NotImplementedError

    @property
    def is_alive(self) -> bool:
        """Whether it has been started and not ended."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, without waiting for it."""
        raise NotImplementedError

    def kill(self) -> None:
        """End it by SIGKILL, if it is alive."""
        raise NotImplementedError

    async def answers(self, status: int = 200) -> None:
        """Wait until it answers with a status: 503 of one that follows. Raises `RuntimeError` with its log if it ends."""
        deadline = time.monotonic() + PATIENCE_S
        async with http_client() as http:
            while True:
                with suppress(httpx.TransportError):
                    if (await http.get(f"{self.url}/v1/health")).status_code == status:
                        return
                if not self.is_alive or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} did not answer with {status}: {self.log[-2000:]}")
                await asyncio.sleep(ASK_S)

    async def serves(self) -> None:
        """Wait until every switch and every agent has acknowledged a plan to it. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S), http_client() as http:
            while True:
                with suppress(httpx.TransportError):
                    answer = await http.get(f"{self.url}/v1/plan")
                    if answer.status_code == 200 and all(map(_is_complete, answer.json()["installed"].values())):
                        return
                await asyncio.sleep(ASK_S)

    async def plan(self) -> dict[str, Any]:
        """Return its plan."""
        return await self._get("/v1/plan")

    async def health(self) -> dict[str, Any]:
        """Return what it says of itself."""
        return await self._get("/v1/health")

    async def settled_plan(self) -> dict[str, Any]:
        """Return the jobs of its plan once no new generation has come for a while. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S):
            plan = await self.plan()
            while True:
                await asyncio.sleep(SETTLED_S)
                before, plan = plan, await self.plan()
                if plan["generation"] == before["generation"]:
                    jobs: dict[str, Any] = plan["jobs"]
                    return jobs

    async def _get(self, path: str) -> dict[str, Any]:
        async with http_client() as http:
            found: dict[str, Any] = (await http.get(self.url + path)).raise_for_status().json()
            return found


class ControllerProcess(SiteController):
    """A controller of its own process, at the same addresses however often it is started.

    The ports are kept until it is closed. program: what Python runs. openflow: where it listens for switches.
    """

    def __init__(self, directory: Path, name: str, journal: Location, program: Sequence[str] = SERVE) -> None:
        self._ports = (KeptPort(), KeptPort())
        self.address, self.openflow = (("127.0.0.1", port.take()) for port in self._ports)
        super().__init__(name, f"http://127.0.0.1:{self.address[1]}")
        self._directory = directory
        fabric = directory / "fabric.json"
        fabric.write_text(json.dumps(FABRIC.to_dict()))
        listens = {"http": self.url[7:], "openflow": f"127.0.0.1:{self.openflow[1]}"}
        options = {"fabric": fabric, "journal": journal, "policy": POLICY, **listens}
        self.command = [sys.executable, *program, *(f"--{option}={value}" for option, value in options.items())]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has printed, of all its lives."""
        return self._log_file.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The id of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has been started and not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, without waiting for it."""
        with self._log_file.open("a") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL, if it is alive."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it, and keep its ports no longer."""
        self.kill()
        for port in self._ports:
            port.release()

    async def ended(self) -> int:
        """Wait for its end and return its exit status. Raises `TimeoutError`."""
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_S):
            while (status := self._process.poll()) is None:
                await asyncio.sleep(POLL_S)
        return status

    @property
    def _log_file(self) -> Path:
        return self._directory / f"{self.name}.log"


def _is_complete(generations: Mapping[str, int]) -> bool:
    return bool(generations) and all(generations.values())


def http_client(timeout_s: float = 10.0) -> httpx.AsyncClient:
    """Return a client of plain HTTP that keeps a connection open and uses no proxy."""
    return httpx.AsyncClient(timeout=timeout_s, verify=NO_CA_CERTIFICATES, trust_env=False)


@contextmanager
def site_directory() -> Iterator[Path]:
    """Make a directory that is removed with everything in it."""
    with tempfile.TemporaryDirectory(prefix="beamer-faults-") as directory:
        yield Path(directory)


@contextmanager
def ending(*controllers: ControllerProcess) -> Iterator[None]:
    """Close controllers with the context, stopped ones too."""
    with ExitStack() as stack:
        for controller in controllers:
            stack.callback(controller.close)
        yield
