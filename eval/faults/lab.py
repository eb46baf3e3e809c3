"""A site in network namespaces: Open vSwitch, host agents, controllers, and workers that send over TCP all the time.

Everything in it belongs to an emulated run: it ends with the run, and `beamer clean` removes what a killed one leaves.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from beamer.client.lease import AGENT_VARIABLE
from beamer.errors import PlatformError
from beamer.process_stat import process_stat
from eval.faults.base import PATIENCE_S
from eval.faults.observation import environment, roles
from eval.faults.site import POLICY, POLL_S, SiteController
from eval.faults.traffic_worker import ConnectionProgress, TrafficTask
from tests.support.namespaces import entered
from topologies.emulation.exchange import RunConfig
from topologies.emulation.platform import require
from topologies.emulation.supervisor import EmulatedRun, emulated_run

SWITCH = "s1"
CONNECTIONS = 4  # Each pair of workers has so many connections.
FIRST_PORT = 20_000
ROLES_S = 0.5  # So long passes between readings of roles, which Open vSwitch writes every 5 s.
# Hosts are called as those of `eval.faults.site.FABRIC`, on which the load registers trials. The study is never begun.
SCENARIO = """
name: faults
topology: {shape: single, hosts: 4, rate: 100mbit}
seed: 1
studies:
  - study: never-begun
    trials: [{trial: a, workers: [h1, h2], bytes: 100kB, compute_s: 1}]
    rungs: [{iterations: 1}]
"""


def missing() -> str | None:
    """Return why no such site can be made here, None if one can."""
    try:
        require()
    except PlatformError as error:
        return str(error)
    return "mininet is not installed" if find_spec("mininet") is None else None


class EmulatedController(SiteController):
    """A controller of an emulated run. run: which. part: its name there."""

    def __init__(self, run: EmulatedRun, part: str) -> None:
        super().__init__(part, run.parts["urls"][part])
        self.run = run

    @property
    def log(self) -> str:
        """What it has printed, of all its lives."""
        return self.run.log(self.name)

    @property
    def is_alive(self) -> bool:
        """Whether it has been started and not ended."""
        stat = process_stat(f"/proc/{self.run.pid(self.name)}/stat")
        return stat is not None and stat.state != "Z"

    @property
    def openflow(self) -> str:
        """Where it listens for switches, as Open vSwitch writes it."""
        targets: dict[str, str] = self.run.parts["targets"]
        return targets[self.name]

    def start(self) -> None:
        """Start it, without waiting for it."""
        self.run.restart(self.name)

    def kill(self) -> None:
        """End it by SIGKILL, if it is alive. Raises `TimeoutError`."""
        if self.is_alive:
            os.kill(self.run.pid(self.name), signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while self.is_alive:  # its addresses are free again when it is gone
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not end")
            time.sleep(0.001)

    async def is_obeyed(self) -> None:
        """Wait until Open vSwitch says that this controller is its master, and no other one is. Raises `TimeoutError`."""
        await self._until(lambda found: [target for target, role in found.items() if role == "master"] == [self.openflow])

    async def is_ready(self) -> None:
        """Wait until Open vSwitch says that it is connected to this controller, which follows. Raises `TimeoutError`."""
        await self._until(lambda found: found.get(self.openflow, "master") != "master")

    async def _until(self, holds: Callable[[dict[str, str]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds(roles(self.run)):
                await asyncio.sleep(ROLES_S)


@dataclass(frozen=True)
class EmulatedSite:
    """An emulated run with its controllers, of which the first one leads at first. directory: for what is written meanwhile."""

    run: EmulatedRun
    controllers: Sequence[EmulatedController]
    directory: Path


@contextmanager
def emulated_site(directory: Path, controllers: int, journal: str | None) -> Iterator[EmulatedSite]:
    """Bring a site up, and have this thread in the namespace of its controllers.

    controllers: how many on one journal. journal: URL; None: SQLite in the run's directory, for a single controller.
    """
    scenario = directory / "faults.yaml"
    scenario.write_text(SCENARIO)
    config = RunConfig(scenario, POLICY, controllers=controllers, journal=journal)
    with emulated_run(config) as run, entered(run.run.namespace):
        yield EmulatedSite(run, [EmulatedController(run, part) for part in run.parts["urls"]], directory)


class Traffic:
    """Pairs of workers that send to each other while the context lasts. pairs: their hosts by study, whose trial is `t`."""

    def __init__(self, run: EmulatedRun, pairs: Mapping[str, Sequence[str]]) -> None:
        self._run = run
        addresses = run.parts["addresses"]
        self._tasks = [
            (
                host,
                TrafficTask(
                    study, "t", rank, rank == 0, addresses[host], (addresses[hosts[0]], FIRST_PORT + number), CONNECTIONS
                ),
            )
            for number, (study, hosts) in enumerate(pairs.items())
            for rank, host in enumerate(hosts)
        ]
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> "Traffic":
        for host, task in self._tasks:
            self._processes.append(
                await asyncio.create_subprocess_exec(
                    *(*self._run.enter(host), sys.executable, "-m", "eval.faults.traffic_worker", json.dumps(asdict(task))),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={**environment(self._run), AGENT_VARIABLE: self._run.parts["sockets"][host]},
                )
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            await process.communicate()

    async def progress(self) -> list[ConnectionProgress]:
        """Return what came of each end of each connection since the last time. Raises `TimeoutError`, `RuntimeError`."""
        async with asyncio.timeout(PATIENCE_S):
            return [progress for process in self._processes for progress in await _progress(process)]

    async def flows(self) -> float:
        """Wait until every end of every connection has received bytes since this was called; return the longest pause, seconds.

        Raises `TimeoutError`.
        """
        ends = await self.progress()
        pauses_s = [one.longest_pause_s for one in ends]
        received = Counter(dict.fromkeys(range(len(ends)), 0))
        async with asyncio.timeout(PATIENCE_S):
            while not all(received.values()):
                await asyncio.sleep(POLL_S)
                ends = await self.progress()
                pauses_s += (one.longest_pause_s for one in ends)
                received.update({number: one.received_bytes for number, one in enumerate(ends)})
        return max(pauses_s)

    async def is_marked(self) -> None:
        """Wait until the agents have given every connection its class. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S):
            while not all(one.priority for one in await self.progress()):
                await asyncio.sleep(POLL_S)


async def _progress(process: asyncio.subprocess.Process) -> list[ConnectionProgress]:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):
        process.stdin.write(b"report\n")
        await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a worker has ended")
    return [ConnectionProgress(**one) for one in json.loads(line)]
