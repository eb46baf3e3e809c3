"""A controller that is killed at random moments under load and started again."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from beamer.studies.journal.location import Location, sqlite_url
from beamer.studies.journal.store import Journal
from eval.faults.base import PATIENCE_S, Fault, FaultOutcome
from eval.faults.load import Load
from eval.faults.plans import witnessing
from eval.faults.site import POLICY, SERVE, ControllerProcess, ending, site_directory
from tests.support.postgresql import binaries, missing, postgresql

LIFE_S = 1.0  # The next kill comes at most so long after the first acknowledgement that follows a restart.
LOOK_S = 0.2  # So long passes between two checks whether the load may end.
COMPACTED_LIFE_S = 4.0  # a snapshot takes a second or two to make, and is to be written now and then
SNAPSHOT_EVENTS = 300  # A snapshot takes the place of so many events: less than what is written between two kills.
COMPACTING = f"""
import controller.journal.compaction
controller.journal.compaction.EVENTS = {SNAPSHOT_EVENTS}
from controller.cli import main
main()
"""
START_S = 2.0  # The next kill comes at most so long after a start: about what a start takes.
SERVES_EVERY = 3  # One of so many starts may go on until it has acknowledged something: the load is given up after a minute.
QUIET_EVERY = 10  # One of so many kills comes without load, so that the plans on both sides of it can be compared.


def in_sqlite(times: int, seed: int) -> FaultOutcome:
    """Kill a controller whose journal is in SQLite."""
    with site_directory() as directory:
        return asyncio.run(repeated_kills(directory, sqlite_url(directory / "journal.db"), times, seed))


def in_postgresql(times: int, seed: int) -> FaultOutcome:
    """Kill a controller whose journal is in PostgreSQL."""
    programs = binaries()
    assert programs is not None
    with site_directory() as directory, postgresql(programs) as server:
        return asyncio.run(repeated_kills(directory, server.database(), times, seed))


def while_compacting(times: int, seed: int) -> FaultOutcome:
    """Kill a controller that has a snapshot made all the time, before, while or after it is written."""
    with site_directory() as directory:
        journal = sqlite_url(directory / "journal.db")

        def snapshot_events() -> int:
            with closing(Journal(journal, writes=False)) as opened:
                last = opened.snapshot()
            return 0 if last is None else last.link.number

        def is_compacted() -> bool:
            return snapshot_events() > 0

        outcome = asyncio.run(
            repeated_kills(directory, journal, times, seed, ("-c", COMPACTING), COMPACTED_LIFE_S, False, is_compacted)
        )
        if not (events := snapshot_events()):
            return replace(outcome, failures=(*outcome.failures, "no snapshot was written"))
    return replace(outcome, counts={**outcome.counts, "events in the last snapshot": events})


def while_starting(times: int, seed: int) -> FaultOutcome:
    """Kill a controller while it starts or soon after, from the moment when there is no journal yet."""
    with site_directory() as directory:
        return asyncio.run(_kills_at_start(directory, sqlite_url(directory / "journal.db"), times, seed))


async def _kills_at_start(directory: Path, journal: Location, times: int, seed: int) -> FaultOutcome:
    rng = random.Random(seed)
    controller = ControllerProcess(directory, "controller", journal)
    served = 0
    with ending(controller):
        for _ in range(times // 3):  # Some kills come before anything could be written.
            controller.start()
            await asyncio.sleep(rng.uniform(0, START_S))
            controller.kill()
        controller.start()
        await controller.answers()
        async with Load([controller.url], seed) as load:
            for number in range(times - times // 3):
                before, killed_s = len(load.acknowledged), time.monotonic()
                controller.kill()
                controller.start()
                if number % SERVES_EVERY == 0:
                    await load.recovered(killed_s)
                await asyncio.sleep(rng.uniform(0, START_S))
                served += len(load.acknowledged) > before
            controller.kill()
            controller.start()
            await controller.answers()
            await load.pause()
            await load.verify(controller.url)
        counts = {"writes repeated": load.retries, "starts after which writes were acknowledged": served}
        return FaultOutcome(times, len(load.acknowledged), len(load.lost), counts=counts, failures=tuple(load.failures))


async def repeated_kills(
    directory: Path,
    journal: Location,
    times: int,
    seed: int,
    program: Sequence[str] = SERVE,
    life_s: float = LIFE_S,
    witness: bool = True,
    reached: Callable[[], bool] = lambda: True,
) -> FaultOutcome:
    """Kill a controller so many times.

    program: which serves it. life_s: at most, from an acknowledgement to the next kill. witness: whether the first decision
    after each is looked at, for which every event has to stay in the journal. reached: whether the load may end, which
    goes on for `PATIENCE_S` at most after the last kill: a busy machine may not have come to it between few kills.
    """
    rng = random.Random(seed)
    controller = ControllerProcess(directory, "controller", journal, program)
    recovery_s: list[float] = []
    plans = differing = 0
    with ending(controller), ExitStack() as stack:
        controller.start()
        await controller.answers()
        decisions = stack.enter_context(witnessing(journal, POLICY)) if witness else None
        async with Load([controller.url], seed) as load:
            try:
                for number in range(times):
                    await asyncio.sleep(rng.uniform(0, life_s))
                    if quiet := number % QUIET_EVERY == QUIET_EVERY - 1 or number == times - 1:
                        await load.pause()
                        before = await controller.settled_plan()
                    known = len(load.acknowledged)
                    killed_at_s = time.time()
                    controller.kill()
                    killed_s = time.monotonic()
                    controller.start()
                    if decisions:
                        await asyncio.to_thread(decisions.look, killed_at_s)
                    if quiet:
                        await controller.answers()
                        plans += 1
                        differing += (await controller.plan())["jobs"] != before or not before
                        load.resume()
                    else:
                        recovery_s.append(await load.recovered(killed_s))
                    await load.verify(controller.url, known)
            except TimeoutError as error:
                load.failures.append(f"after {number} kills: {error or 'no recovery in time'}")
                await controller.answers()
            load.resume()
            deadline = time.monotonic() + PATIENCE_S
            while not await asyncio.to_thread(reached) and time.monotonic() < deadline:
                await asyncio.sleep(LOOK_S)
            await load.pause()
            await load.verify(controller.url)
        if decisions:
            await asyncio.to_thread(decisions.look, time.time())
            plans, differing = plans + decisions.compared, differing + decisions.differing
        counts = {"writes repeated": load.retries}
        acknowledged, lost = len(load.acknowledged), len(load.lost)
        return FaultOutcome(times, acknowledged, lost, plans, differing, tuple(recovery_s), counts, tuple(load.failures))


RECOVERY = "from the kill to the first write that is acknowledged, the process started again at once"
FAULTS = (
    Fault("kill-sqlite", "SIGKILL under load, journal in SQLite", RECOVERY, in_sqlite, 100),
    Fault(
        "kill-compacting",
        f"SIGKILL under load, a snapshot after every {SNAPSHOT_EVENTS} events, SQLite",
        RECOVERY,
        while_compacting,
        30,
    ),
    Fault("kill-starting", "SIGKILL while the controller starts, journal in SQLite", "not measured", while_starting, 60),
    Fault("kill-postgresql", "SIGKILL under load, journal in PostgreSQL", RECOVERY, in_postgresql, 100, missing),
)
