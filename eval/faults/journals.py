"""Journals that cannot be written for some time under load, that are damaged, and that two controllers want to write."""

import asyncio
import random
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from pathlib import Path

from beamer.studies.journal.location import Location, sqlite_url
from beamer.studies.journal.store import Journal
from eval.faults.base import PATIENCE_S, Fault, FaultOutcome
from eval.faults.load import KnownStudies, Load
from eval.faults.site import ControllerProcess, ending, http_client, site_directory
from tests.support.journal_damage import BEYOND_REPAIR, DAMAGES, EVENTS, damage
from tests.support.postgresql import PostgreSQL, binaries, missing, postgresql

LOCKED_S = 7.0  # SQLite's driver waits for 5 s, so that writing fails.
ENDED_S = 4.0  # Writing is tried again several times meanwhile.
FULL_S = 4.0
FULL_BYTES = 64 * 1024  # A file may have so many bytes: the journal has grown beyond that in a second of load.
CALM_S = 1.5  # A second, and at most so much more, passes between faults.
MORE_S = 1.0  # A fault lasts at most so much longer: the journal is tried again once a second, in step with whole seconds.

Disturbance = Callable[[ControllerProcess, float], AbstractAsyncContextManager[None]]


def locked_sqlite(times: int, seed: int) -> FaultOutcome:
    """Have another process hold SQLite's lock for writing."""
    with site_directory() as directory:
        file = directory / "journal.db"

        @asynccontextmanager
        async def locked(controller: ControllerProcess, more_s: float) -> AsyncIterator[None]:
            with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENCE_S)) as other:
                other.execute("BEGIN IMMEDIATE")
                await asyncio.sleep(LOCKED_S + more_s)
                yield

        return asyncio.run(_disturbed(directory, sqlite_url(file), times, seed, locked))


def locked_postgresql(times: int, seed: int) -> FaultOutcome:
    """Have another session lock the table of events."""

    @asynccontextmanager
    async def locked(url: str, controller: ControllerProcess, more_s: float) -> AsyncIterator[None]:
        import psycopg

        with closing(psycopg.connect(url.replace("+psycopg", ""))) as other:
            await asyncio.to_thread(other.execute, "LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(LOCKED_S + more_s)
            yield

    return _disturbed_postgresql(times, seed, lambda server, url: partial(locked, url))


def sessions_ended(times: int, seed: int) -> FaultOutcome:
    """Have PostgreSQL end every session of the controller twice a second."""

    @asynccontextmanager
    async def ended(server: PostgreSQL, controller: ControllerProcess, more_s: float) -> AsyncIterator[None]:
        until = time.monotonic() + ENDED_S + more_s
        while time.monotonic() < until:
            query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'journal%'"
            await asyncio.to_thread(server.query, query)
            await asyncio.sleep(0.5)
        yield

    return _disturbed_postgresql(times, seed, lambda server, url: partial(ended, server))


def disk_full(times: int, seed: int) -> FaultOutcome:
    """Allow the controller no writing beyond the first bytes of any file, as a full disk or a quota would (RLIMIT_FSIZE)."""

    @asynccontextmanager
    async def full(controller: ControllerProcess, more_s: float) -> AsyncIterator[None]:
        _, hard = resource.prlimit(controller.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(controller.pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
        await asyncio.sleep(FULL_S + more_s)
        resource.prlimit(controller.pid, resource.RLIMIT_FSIZE, (hard, hard))
        yield

    with site_directory() as directory:
        return asyncio.run(_disturbed(directory, sqlite_url(directory / "journal.db"), times, seed, full))


def damaged(times: int, seed: int) -> FaultOutcome:
    """Damage journals in ways drawn, none again before all have come; see each refused, repaired if it can be, and served."""
    order = random.Random(seed).sample(list(DAMAGES), len(DAMAGES))
    with site_directory() as directory:
        return asyncio.run(_damaged(directory, [order[i % len(order)] for i in range(times)]))


def two_writers(times: int, seed: int) -> FaultOutcome:
    """Start a second controller on the journal of one that runs."""
    with site_directory() as directory:
        return asyncio.run(_two_writers(directory, times, seed))


def _disturbed_postgresql(times: int, seed: int, disturbance: Callable[[PostgreSQL, str], Disturbance]) -> FaultOutcome:
    programs = binaries()
    assert programs is not None
    with site_directory() as directory, postgresql(programs) as server:
        url = server.database()
        return asyncio.run(_disturbed(directory, url, times, seed, disturbance(server, url)))


async def _disturbed(directory: Path, journal: Location, times: int, seed: int, disturbance: Disturbance) -> FaultOutcome:
    """Disturb a controller under load, which goes on with it; in the end start it again, so that the journal says what it has.

    disturbance: for so many seconds longer; its context begins when it has lasted, and is left to end it.
    """
    rng = random.Random(seed)
    controller = ControllerProcess(directory, "controller", journal)
    recovery_s: list[float] = []
    failures: list[str] = []
    with ending(controller):
        controller.start()
        await controller.answers()
        async with Load([controller.url], seed) as load:
            for number in range(times):
                await asyncio.sleep(1 + rng.uniform(0, CALM_S))
                repeated = load.retries
                async with disturbance(controller, rng.uniform(0, MORE_S)):
                    if load.retries == repeated:
                        failures.append(f"fault {number} was not felt: every write was acknowledged at once")
                recovery_s.append(await load.recovered(time.monotonic()))
                await load.verify(controller.url)
            await load.pause()
            before = await controller.settled_plan()
            if "Traceback" in controller.log:
                failures.append(f"the controller's log has an exception: {controller.log[-2000:]}")
            controller.kill()
            controller.start()
            await controller.answers()
            differing = int((await controller.plan())["jobs"] != before or not before)
            await load.verify(controller.url)
        failures += load.failures
        acknowledged, lost, counts = len(load.acknowledged), len(load.lost), {"writes repeated": load.retries}
        return FaultOutcome(times, acknowledged, lost, 1, differing, tuple(recovery_s), counts, tuple(failures))


async def _damaged(directory: Path, kinds: Sequence[str]) -> FaultOutcome:
    failures: list[str] = []
    named = repaired = served = 0
    for number, kind in enumerate(kinds):
        file = directory / f"{number}.db"
        with closing(Journal(sqlite_url(file))) as journal:
            journal.append(*EVENTS)
        damage(file, DAMAGES[kind])
        controller = ControllerProcess(directory, f"controller-{number}", sqlite_url(file))
        with ending(controller):
            controller.start()
            refused = await controller.ended() == 2 and "beamer journal" in controller.log
            named += refused
            command = [sys.executable, "-m", "beamer.cli", "journal", "repair", f"sqlite:///{file}"]
            done = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True, text=True)
            repaired += done.returncode == 0
            if done.returncode == 0:
                controller.start()
                await controller.answers()
                known = await _stages(controller)
                wanted = {f"r{i}" for i in range(2, 7)}
                served += 1
                if not known <= wanted:
                    failures.append(f"{kind}: after the repair there are stages {sorted(known - wanted)}")
            if not refused or (done.returncode == 0) == (kind in BEYOND_REPAIR):
                failures.append(f"{kind}: {controller.log[-500:]} {done.stderr[-500:]}")
    counts = {"refused and named": named, "repaired": repaired, "served again": served}
    return FaultOutcome(len(kinds), counts=counts, failures=tuple(failures))


async def _stages(controller: ControllerProcess) -> set[str]:
    async with http_client() as http:
        known = KnownStudies((await http.get(f"{controller.url}/v1/studies")).json()["studies"])
    return {stage["name"] for stage in known.study("s").get("stages", ())}


async def _two_writers(directory: Path, times: int, seed: int) -> FaultOutcome:
    journal = sqlite_url(directory / "journal.db")
    first, second = (ControllerProcess(directory, name, journal) for name in ("first", "second"))
    recovery_s: list[float] = []
    failures: list[str] = []
    refused = 0
    with ending(first, second):
        first.start()
        await first.answers()
        async with Load([first.url], seed) as load:
            for _ in range(times):
                second.start()
                began_s = time.monotonic()
                status = await second.ended()
                recovery_s.append(time.monotonic() - began_s)
                refused += status != 0
                await load.recovered(time.monotonic())
            if second.log.count(f"written by another process (process {first.pid})") != times or refused != times:
                failures.append(f"the second controller was not refused each time: {second.log[-2000:]}")
            await load.pause()
            first.kill()
            second.start()
            await second.answers()
            await load.verify(second.url)
        counts = {"refused": refused, "writes repeated": load.retries}
        failures += load.failures
        acknowledged, lost = len(load.acknowledged), len(load.lost)
        return FaultOutcome(times, acknowledged, lost, 0, 0, tuple(recovery_s), counts, tuple(failures))


RECOVERY = "from the end of the fault to the acknowledgement of a write that begins after it"
LOCKED = f"for {LOCKED_S:g} to {LOCKED_S + MORE_S:g} s"
ENDED = f"twice a second for {ENDED_S:g} to {ENDED_S + MORE_S:g} s"
FULL = f"beyond {FULL_BYTES // 1024} KiB for {FULL_S:g} to {FULL_S + MORE_S:g} s (RLIMIT_FSIZE)"
TWO = "from the second one's start to its end"
FAULTS = (
    Fault("locked-sqlite", f"SQLite's lock held by another process {LOCKED}", RECOVERY, locked_sqlite, 10),
    Fault(
        "locked-postgresql", f"the table of events locked by another session {LOCKED}", RECOVERY, locked_postgresql, 10, missing
    ),
    Fault("sessions-ended", f"PostgreSQL ends all sessions {ENDED}", RECOVERY, sessions_ended, 10, missing),
    Fault("disk-full", f"no file may be written {FULL}, journal in SQLite", RECOVERY, disk_full, 10),
    Fault("damaged", "the journal in SQLite damaged, in one way after the other", "not measured", damaged, len(DAMAGES)),
    Fault("two-writers", "a second controller started on a journal in SQLite", TWO, two_writers, 10),
)
