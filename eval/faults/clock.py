"""The wall clock set back, or forward, under a running controller, and under one that starts again."""

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from beamer.network import events as _network_events  # noqa: F401  # Events are read by the names that this import makes known.
from beamer.studies.journal.location import sqlite_url
from beamer.studies.journal.store import Journal
from eval.faults.base import Fault, FaultOutcome
from eval.faults.load import Load
from eval.faults.site import ControllerProcess, ending, site_directory

STEP_S = 3600.0
RUNS_ON_S = 1.0  # A controller runs so long under the new time before it is started again.
PROGRAM = """
import pathlib, sys, time
offset, wall = pathlib.Path(sys.argv.pop(1)), time.time
time.time = lambda: wall() + float(offset.read_text())
from controller.cli import main
main()
"""


def set_back(times: int, seed: int) -> FaultOutcome:
    """Set the clock back by an hour each time: the controller's own, as that of the machine is not ours to set."""
    with site_directory() as directory:
        return asyncio.run(_set(directory, times, seed, lambda number: -STEP_S * number))


def set_forward(times: int, seed: int) -> FaultOutcome:
    """Set the clock forward by an hour and more each time, and right again the next."""
    with site_directory() as directory:
        return asyncio.run(_set(directory, times, seed, lambda number: STEP_S * number * (number % 2)))


async def _set(directory: Path, times: int, seed: int, offset_s: Callable[[int], float]) -> FaultOutcome:
    """Set the clock so many times. offset_s: by how much it is off then."""
    rng = random.Random(seed)
    offset, url = directory / "offset", sqlite_url(directory / "journal.db")
    _replace(offset, 0.0)
    controller = ControllerProcess(directory, "controller", url, ("-c", PROGRAM, str(offset)))
    recovery_s: list[float] = []
    differing = 0
    with ending(controller):
        controller.start()
        await controller.answers()
        async with Load([controller.url], seed) as load:
            for number in range(1, times + 1):
                await asyncio.sleep(rng.uniform(0, RUNS_ON_S))
                _replace(offset, offset_s(number))
                await asyncio.sleep(RUNS_ON_S)
                await load.pause()
                before = await controller.settled_plan()
                known = len(load.acknowledged)
                controller.kill()
                controller.start()
                killed_s = time.monotonic()
                await controller.answers()
                differing += (await controller.plan())["jobs"] != before or not before
                load.resume()
                recovery_s.append(await load.recovered(killed_s))
                await load.verify(controller.url, known)
            await load.pause()
            await load.verify(controller.url)
    with closing(Journal(url, writes=False)) as journal:
        at_s = [event.at_s for event in journal.replay()]
    backward = sum(after < before for before, after in pairwise(at_s))
    failures = list(load.failures)
    if backward or not at_s:
        failures.append(f"{backward} of {len(at_s)} events are older than the one before")
    counts = {"events": len(at_s), "events out of order": backward}
    acknowledged, lost = len(load.acknowledged), len(load.lost)
    return FaultOutcome(times, acknowledged, lost, times, differing, tuple(recovery_s), counts, tuple(failures))


def _replace(file: Path, seconds: float) -> None:
    """Write the offset so that a reader finds the one before or this one."""
    new = file.with_suffix(".new")
    new.write_text(f"{seconds}")
    os.replace(new, file)


RECOVERY = "from the kill to the first acknowledgement, with the wait for a plan in between"
FAULTS = (
    Fault(
        "clock",
        f"the controller's clock set back by {STEP_S:g} s while it runs, then SIGKILL: it starts under that clock",
        RECOVERY,
        set_back,
        10,
    ),
    Fault(
        "clock-forward",
        f"the controller's clock set forward by {STEP_S:g} s or more while it runs, and right again, each with a SIGKILL",
        RECOVERY,
        set_forward,
        10,
    ),
)
