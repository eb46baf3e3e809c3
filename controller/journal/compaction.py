"""Makes a snapshot of the journal in a process of its own: what a long journal leads to takes seconds to work out.

It reads the journal as a restarted controller would: a journal that cannot be replayed is found before its events are removed.
The journal's one writer writes it. Run as `python -m controller.journal.compaction`; the journal's URL, which may hold a
password, comes over its input.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict
from typing import Any

import structlog

from beamer.errors import BeamerError, PlatformError
from beamer.network.fabric import Fabric
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.chain import ChainLink
from beamer.studies.journal.location import Location
from beamer.studies.journal.store import Journal, JournalSnapshot
from beamer.studies.known import Kept
from controller.journal.replay import snapshot

NICENESS = 10  # a snapshot is never urgent
EVENTS = 100_000  # after the last snapshot: read in a few seconds

log = structlog.get_logger("beamer-controller")


class Compaction:
    """Has a snapshot made whenever `every` events have been written since the last one; 0: never.

    events: how many there are already.
    """

    def __init__(self, batches: Batches, fabric: Fabric, kept: Kept, every: int, events: int) -> None:
        self._batches = batches
        self._fabric = fabric
        self._kept = kept
        self._every = every
        self._events = events
        self._task: asyncio.Task[None] | None = None

    def count(self) -> None:
        """Take note that an event is about to be written."""
        self._events += 1
        if self._every and self._events >= self._every and self._task is None:
            self._events = 0
            self._task = asyncio.get_running_loop().create_task(self._compact())

    async def stop(self) -> None:
        """Give up a snapshot that is being made."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _compact(self) -> None:
        try:
            made = await made_in_child(self._batches.location, self._fabric, self._kept)
            self._batches.compact(made)
            log.info("the journal is compacted", events=made.link.number, snapshot_bytes=len(made.content))
        except BeamerError as error:
            log.error("the journal is not compacted", reason=str(error), again_after_events=self._every)
        finally:
            self._task = None


async def made_in_child(url: Location, fabric: Fabric, kept: Kept) -> JournalSnapshot:
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
    made: dict[str, Any] = await asyncio.to_thread(json.loads, answer)
    return JournalSnapshot(ChainLink(**made["link"]), made["content"])


def main() -> int:
    """Read a request, write a snapshot."""
    os.nice(NICENESS)
    request = json.load(sys.stdin)
    try:
        journal = Journal(request["url"], writes=False)
        try:
            made = snapshot(journal, Fabric.from_dict(request["fabric"]), Kept(**request["kept"]))
        finally:
            journal.close()
    except BeamerError as error:
        print(error, file=sys.stderr)
        return 1
    json.dump({"link": vars(made.link), "content": made.content}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
