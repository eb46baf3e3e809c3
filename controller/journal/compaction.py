"""Makes a snapshot of the journal in a process of its own: what a long journal leads to takes seconds to work out.

It reads the journal as a restarted controller would: a journal that cannot be replayed is found before its events are removed.
The journal's one writer writes it. Run as `python -m controller.journal.compaction`; the journal's URL, which may hold a
password, comes over its input.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict, replace
from typing import Any

import structlog

from beamer.daemon_thread import in_daemon_thread
from beamer.errors import BeamerError, PlatformError, shortened
from beamer.network.fabric import Fabric
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.chain import ChainLink
from beamer.studies.journal.location import Location
from beamer.studies.journal.store import Journal, JournalSnapshot
from beamer.studies.registry import Retention
from controller.journal.replay import Growth, snapshot

NICENESS = 10  # a snapshot is never urgent
EVENTS = 100_000  # A snapshot is due so many events after the last one: they are read in a few seconds.
# A snapshot is due after so many characters of events as well, which bounds what long ones take on the disk.
CHARACTERS = 64 << 20
RETRY_S = 300.0  # A snapshot that failed is tried again after so long, as each attempt takes as long as a restart.

log = structlog.get_logger("beamer-controller")


class Compaction:
    """Has a snapshot made whenever the journal has grown by `every` events, or by many characters; 0: never.

    Twice as many characters as the snapshot has, or `CHARACTERS` where that is more: what is written again and again stays in
    proportion. growth: of the journal so far.
    """

    def __init__(self, batches: Batches, fabric: Fabric, kept: Retention, every: int, growth: Growth) -> None:
        self._batches = batches
        self._fabric = fabric
        self._kept = kept
        self._every = every
        self._growth = growth
        self._not_before_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def count(self, characters: int) -> None:
        """Take note that an event is about to be written."""
        self._growth.events += 1
        self._growth.characters += characters
        if self._every and self._task is None and self._is_due():
            loop = asyncio.get_running_loop()
            if loop.time() >= self._not_before_s:
                self._task = loop.create_task(self._compact())

    async def stop(self) -> None:
        """Give up a snapshot that is being made."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _is_due(self) -> bool:
        grown = self._growth
        return grown.events >= self._every or grown.characters >= max(CHARACTERS, 2 * grown.snapshot)

    async def _compact(self) -> None:
        before = replace(self._growth)
        try:
            made = await made_in_child(self._batches.location, self._fabric, self._kept)
            self._batches.compact(made)
            since = self._growth
            self._growth = Growth(since.events - before.events, since.characters - before.characters, len(made.content))
            log.info("the journal is compacted", events=made.link.number, snapshot_bytes=len(made.content))
        except Exception as error:  # noqa: BLE001  # Any error is logged: a journal that grows without end is to be noticed.
            reason = str(error) if isinstance(error, BeamerError) else f"{type(error).__name__}: {error}"
            log.error("the journal is not compacted", reason=shortened(reason), again_after_s=RETRY_S)
            self._not_before_s = asyncio.get_running_loop().time() + RETRY_S
        finally:
            self._task = None


async def made_in_child(url: Location, fabric: Fabric, kept: Retention) -> JournalSnapshot:
    """Return a snapshot of what the journal holds, made in a process of its own. Raises `PlatformError` if it cannot be."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controller.journal.compaction",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    location = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    request = {"url": location, "fabric": fabric.to_dict(), "kept": asdict(kept)}
    try:
        answer, errors = await process.communicate(json.dumps(request).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        reason = (errors.decode(errors="replace").strip().splitlines() or [str(process.returncode)])[-1]
        raise PlatformError(f"no snapshot of the journal was made ({reason})", "'beamer journal check' tells whether it can be")
    made: dict[str, Any] = await in_daemon_thread(json.loads, answer)
    return JournalSnapshot(ChainLink(**made["link"]), made["content"])


def main() -> int:
    """Read a request, write a snapshot."""
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):  # A nice value has no effect beside a real-time priority.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(NICENESS)
    request = json.load(sys.stdin)
    try:
        journal = Journal(request["url"], writes=False)
        try:
            made = snapshot(journal, Fabric.from_dict(request["fabric"]), Retention(**request["kept"]))
        finally:
            journal.close()
    except BeamerError as error:
        print(error, file=sys.stderr)
        return 1
    json.dump({"link": vars(made.link), "content": made.content}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
