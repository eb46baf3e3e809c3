"""A controller under load: jobs registered over HTTP, progress reported, and its restart from a long journal.

The controller is a process of its own; what loads it speaks HTTP over sockets with as little work as possible.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table

from beamer.engines.local.supervisor.ports import kept_port
from beamer.measures import quantile
from beamer.network.fabric import Fabric
from beamer.network.ledger import NetworkLedger
from beamer.process_stat import process_stat
from beamer.studies.events import (
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StudyRegistered,
    TargetSet,
    TrialRegistered,
)
from beamer.studies.journal.store import Journal
from beamer.studies.model import Profile, Worker
from beamer.studies.tracker import Tracker
from controller.journal.replay import recover, snapshot
from controller.limits import Limits
from topologies.leaf_spine import build

FABRIC: Fabric = build(leaves=8, spines=4, hosts_per_leaf=8, rate="10gbit", uplink_rate="40gbit")
HOSTS = [host.name for host in FABRIC.hosts]
JOBS = (1_000, 3_000, 10_000)
JOBS_PER_STAGE = 10
WORKERS = 4
CONNECTIONS = 8
REPORTING_JOBS = 2_000
REPORT_S = 1.0
REPORTING_S = 20.0
PROBE_S = 0.02
EVENTS = (100_000, 1_000_000)
APPENDED_AT_ONCE = 2_000
PATIENCE_S = 60.0

Request = tuple[str, Any]
"""The path of a PUT, and its body."""


@dataclass
class Server:
    """A controller's process, and where it listens."""

    process: asyncio.subprocess.Process
    port: int
    journal: Path

    def memory_mb(self) -> float:
        """Return what the process holds in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1e3

    def cpu_s(self) -> float:
        """Return the processor time that it has used."""
        stat = process_stat(f"/proc/{self.process.pid}/stat")
        if stat is None:
            raise RuntimeError("the controller has ended")
        return stat.ticks / os.sysconf("SC_CLK_TCK")


class LoadConnection:
    """A connection to the controller on which one request follows another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "LoadConnection":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the answer to a request. Raises `RuntimeError` for one that is not a success."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: c\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        status = await self._reader.readline()
        length = 0
        while (line := await self._reader.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answer = await self._reader.readexactly(length)
        if b" 200 " not in status:
            raise RuntimeError(f"{path}: {status!r} {answer!r}")
        return answer

    def close(self) -> None:
        """Close it."""
        self._writer.close()


def controller_table() -> Table:
    """Return what registering so many jobs takes, and what reporting does while they run; the first row is the baseline."""
    table = Table(title=f"jobs registered over HTTP, {JOBS_PER_STAGE} to a stage, {WORKERS} workers each", title_justify="left")
    columns = ("jobs", "jobs/s", "against the first", "requests/s", "other request p50", "p99", "most", "memory", "journal")
    for column in columns:
        table.add_column(column, justify="right")
    base = None
    for jobs in JOBS:
        done = asyncio.run(_registered(jobs))
        base = base or done["jobs/s"]
        milliseconds = (f"{1000 * done[name]:.1f} ms" for name in ("p50", "p99", "most"))
        sizes = (f"{done['memory']:.0f} MB", f"{done['journal']:.1f} MB")
        rates = (f"{done['jobs/s']:.0f}", f"{done['jobs/s'] / base:.2f}", f"{done['requests/s']:.0f}")
        table.add_row(f"{jobs}", *rates, *milliseconds, *sizes)
    return table


def reports_table() -> Table:
    """Return what reports of progress take, one a second of each job."""
    table = Table(title=f"{REPORTING_JOBS} jobs report every {REPORT_S:g} s", title_justify="left")
    for column in ("reports", "lost", "p50", "p99", "most", "processor"):
        table.add_column(column, justify="right")
    done = asyncio.run(_reported())
    milliseconds = (f"{1000 * done[name]:.1f} ms" for name in ("p50", "p99", "most"))
    table.add_row(f"{done['reports']:.0f}", f"{done['lost']:.0f}", *milliseconds, f"{done['cpu']:.0%} of a core")
    return table


def restart_table() -> Table:
    """Return how long a controller reads its journal, event by event and from a snapshot."""
    table = Table(title="restart", title_justify="left")
    for column in ("events", "read one by one", "snapshot made", "its size", "read from it", "against one by one"):
        table.add_column(column, justify="right")
    for events in EVENTS:
        with tempfile.TemporaryDirectory() as directory:
            url = f"sqlite:///{directory}/journal.db"
            with closing(Journal(url)) as journal:
                _fill(journal, events)
                one_by_one = _seconds_to_recover(journal)
                began = time.perf_counter()
                made = snapshot(journal, FABRIC, Limits().kept)
                journal.compact(made)
                making = time.perf_counter() - began
                from_it = _seconds_to_recover(journal)
        cells = (f"{one_by_one:.1f} s", f"{making:.1f} s", f"{len(made.content) / 1e6:.1f} MB", f"{from_it:.2f} s")
        table.add_row(f"{events}", *cells, f"{from_it / one_by_one:.3f}")
    return table


async def _registered(jobs: int) -> dict[str, float]:
    async with _controller() as server:
        groups = [list(_stage(number)) for number in range(jobs // JOBS_PER_STAGE)]
        waits: list[float] = []
        probing = asyncio.create_task(_probe(server.port, waits))
        began = time.perf_counter()
        await asyncio.gather(*(_send(server.port, groups[i::CONNECTIONS]) for i in range(CONNECTIONS)))
        took = time.perf_counter() - began
        probing.cancel()
        return {
            "jobs/s": jobs / took,
            "requests/s": sum(map(len, groups)) / took,
            **_waits(waits),
            "memory": server.memory_mb(),
            "journal": server.journal.stat().st_size / 1e6,
        }


async def _reported() -> dict[str, float]:
    async with _controller() as server:
        groups = [list(_stage(number)) for number in range(REPORTING_JOBS // JOBS_PER_STAGE)]
        await asyncio.gather(*(_send(server.port, groups[i::CONNECTIONS]) for i in range(CONNECTIONS)))
        trials = [_trial(number, job) for number in range(len(groups)) for job in range(JOBS_PER_STAGE)]
        waits: list[float] = []
        before, began = server.cpu_s(), time.perf_counter()
        parts = (trials[i::CONNECTIONS] for i in range(CONNECTIONS))
        steps = await asyncio.gather(*(_report(server.port, part, waits) for part in parts))
        cpu = (server.cpu_s() - before) / (time.perf_counter() - began)
        connection = await LoadConnection.open(server.port)
        lost = 0
        for i, part in enumerate(steps):
            for path in trials[i::CONNECTIONS]:
                lost += json.loads(await connection.ask("GET", path))["done"] != part
        connection.close()
        return {"reports": len(waits), "lost": lost, **_waits(waits), "cpu": cpu}


async def _report(port: int, trials: list[str], waits: list[float]) -> int:
    """Report a step of every trial once in `REPORT_S`, spread over it; return the last step."""
    connection = await LoadConnection.open(port)
    began, step = time.perf_counter(), 0
    while time.perf_counter() - began < REPORTING_S:
        step += 1
        for i, path in enumerate(trials):
            due = began + REPORT_S * (step - 1 + i / len(trials))
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await connection.ask("PUT", f"{path}/progress", {"step": step, "loss": 1.0 / step})
            waits.append(time.perf_counter() - due)  # The wait for those before it counts, too.
    connection.close()
    return step


async def _send(port: int, groups: list[list[Request]]) -> None:
    connection = await LoadConnection.open(port)
    for group in groups:
        for path, body in group:
            await connection.ask("PUT", path, body)
    connection.close()


async def _probe(port: int, waits: list[float]) -> None:
    connection = await LoadConnection.open(port)
    while True:
        began = time.perf_counter()
        await connection.ask("GET", "/v1/health")
        waits.append(time.perf_counter() - began)
        await asyncio.sleep(PROBE_S)


def _waits(waits: list[float]) -> dict[str, float]:
    return {"p50": quantile(waits, 0.5) or 0.0, "p99": quantile(waits, 0.99) or 0.0, "most": max(waits)}


def _trial(number: int, job: int) -> str:
    return f"/v1/studies/s{number // 10}/trials/t{number % 10}-{job}"


def _stage(number: int) -> Iterator[Request]:
    """Yield what registers a stage of ten jobs; ten stages are a study's."""
    study = f"/v1/studies/s{number // 10}"
    stage = f"r{number % 10}"
    yield study, None
    yield f"{study}/stages/{stage}", None
    for job in range(JOBS_PER_STAGE):
        path = _trial(number, job)
        yield path, None
        yield f"{path}/target", {"step": 100_000 + job, "stage": stage}
        workers = [{"rank": rank, "host": host} for rank, host in enumerate(_hosts(number, job))]
        yield f"{path}/attempts/1", {"workers": workers, "sync_bytes": 10**8 + number, "compute_s": 0.1}


def _hosts(number: int, job: int) -> list[str]:
    return [HOSTS[(7 * number + 3 * job + 5 * rank) % len(HOSTS)] for rank in range(WORKERS)]


def _events(count: int) -> Iterator[Event]:
    """Yield what studies of a hundred trials lead to, each of which reports 96 steps."""
    study = 0
    at_s = 1e9
    while True:
        name = f"s{study}"
        yield StudyRegistered(at_s, name)
        yield StageRegistered(at_s, name, "r")
        for job in range(100):
            key = f"{name}/t{job}"
            yield TrialRegistered(at_s, name, f"t{job}")
            yield TargetSet(at_s, key, 1000, "r")
            workers = tuple(Worker(rank, host) for rank, host in enumerate(_hosts(study, job)))
            yield AttemptStarted(at_s, key, "1", workers, Profile(10**8, "ring", 0.1))
        for step in range(1, 97):
            for job in range(100):
                at_s += 0.01
                yield Progressed(at_s, f"{name}/t{job}", step, 1.0 / step)
        study += 1


def _fill(journal: Journal, events: int) -> None:
    tracker = Tracker(NetworkLedger(FABRIC))
    source = islice(_events(events), events)
    while batch := list(islice(source, APPENDED_AT_ONCE)):
        for event in batch:
            assert tracker.check(event)
            tracker.apply(event)
        journal.append(*batch)


def _seconds_to_recover(journal: Journal) -> float:
    began = time.perf_counter()
    recover(journal, FABRIC, 1.0, Limits().kept)
    return time.perf_counter() - began


@asynccontextmanager
async def _controller() -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory() as directory, kept_port() as port:
        folder = Path(directory)
        (folder / "fabric.json").write_text(json.dumps(FABRIC.to_dict()))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controller.cli", "--fabric", str(folder / "fabric.json"),
            "--journal", f"sqlite:///{folder}/journal.db",
            "--http", f"127.0.0.1:{port}", "--openflow", "127.0.0.1:0",
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await _answers(port)
            yield Server(process, port, folder / "journal.db")
        finally:
            process.terminate()
            await process.wait()


async def _answers(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = await LoadConnection.open(port)
            await connection.ask("GET", "/v1/health")
        except (OSError, RuntimeError, asyncio.IncompleteReadError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            connection.close()
            return
