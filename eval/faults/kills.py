"""A controller that is killed at random moments under load and started again."""

import asyncio
import random
import time
from pathlib import Path

from beamer.studies.journal.store import Location, sqlite_url
from beamer.testing.postgresql import binaries, missing, postgresql
from eval.faults.base import Fault, FaultOutcome
from eval.faults.load import Load
from eval.faults.site import ControllerProcess, ending, site_directory

LIFE_S = 1.0  # at most, between an acknowledgement after a restart and the next kill
QUIET_EVERY = 10  # kills, one of which comes without load, so that the plans on both sides of it can be compared


def in_sqlite(times: int, seed: int) -> FaultOutcome:
    """Kill a controller whose journal is in SQLite."""
    with site_directory() as directory:
        return asyncio.run(_kills(directory, sqlite_url(directory / "journal.db"), times, seed))


def in_postgresql(times: int, seed: int) -> FaultOutcome:
    """Kill a controller whose journal is in PostgreSQL."""
    programs = binaries()
    assert programs is not None
    with site_directory() as directory, postgresql(programs) as server:
        return asyncio.run(_kills(directory, server.database(), times, seed))


async def _kills(directory: Path, journal: Location, times: int, seed: int) -> FaultOutcome:
    rng = random.Random(seed)
    controller = ControllerProcess(directory, "controller", journal)
    recovery_s: list[float] = []
    plans = differing = 0
    with ending(controller):
        controller.start()
        await controller.answers()
        async with Load([controller.url], seed) as load:
            for number in range(times):
                await asyncio.sleep(rng.uniform(0, LIFE_S))
                if quiet := number % QUIET_EVERY == QUIET_EVERY - 1 or number == times - 1:
                    await load.pause()
                    before = await controller.settled_plan()
                known = len(load.acknowledged)
                controller.kill()
                killed_s = time.monotonic()
                controller.start()
                if quiet:
                    await controller.answers()
                    plans += 1
                    differing += (await controller.plan())["jobs"] != before or not before
                    load.go()
                else:
                    recovery_s.append(await load.recovered(killed_s))
                await load.look(controller.url, known)
            await load.pause()
            await load.look(controller.url)
        counts = {"writes repeated": load.retries}
        acknowledged, lost = len(load.acknowledged), len(load.lost)
        return FaultOutcome(times, acknowledged, lost, plans, differing, tuple(recovery_s), counts, tuple(load.failures))


RECOVERY = "from the kill to the first write that is acknowledged, the process started again at once"
FAULTS = (
    Fault("kill-sqlite", "SIGKILL under load, journal in SQLite", RECOVERY, in_sqlite, 100),
    Fault("kill-postgresql", "SIGKILL under load, journal in PostgreSQL", RECOVERY, in_postgresql, 100, missing),
)
