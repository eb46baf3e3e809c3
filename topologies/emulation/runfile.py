"""The run file: what an emulated run owns, recorded before it is made, and the one way in which it is all removed.

A run owns one named network namespace (every switch, bridge, interface, queue and host namespace lives inside it or inside a
process of the run), one directory, and the processes that carry its id in their environment. Removing reads the run file and
touches nothing else.
"""

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from beamer.errors import EmulationError
from beamer.process_stat import process_stat
from topologies.emulation import tools

RUNS = Path("/run/beamer")
RUN_VARIABLE = "BEAMER_RUN"


@dataclass(frozen=True)
class RunRecord:
    """One emulated run.

    id: its name everywhere. namespace: of the switches. owner, owner_start: the process that cleans up after it, distinguished
    from a later process of the same number by its start time (clock ticks since boot).
    """

    id: str
    namespace: str
    owner: int
    owner_start: int

    @property
    def directory(self) -> Path:
        """Where the run keeps its sockets, logs, journal and results."""
        return RUNS / self.id

    @property
    def file(self) -> Path:
        """The run file."""
        return RUNS / f"{self.id}.json"

    @property
    def abandoned(self) -> bool:
        """Whether the process that would clean up is gone."""
        return _start_time(self.owner) != self.owner_start

    def processes(self) -> tuple[int, ...]:
        """Return the ids of all live processes of this run."""
        mark = f"{RUN_VARIABLE}={self.id}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return tuple(found)


def _start_time(pid: int) -> int | None:
    stat = process_stat(f"/proc/{pid}/stat")
    return stat.started if stat else None


def record(name: str) -> RunRecord:
    """Record a run called `name` that this process owns, before anything of it exists."""
    start = _start_time(os.getpid())
    assert start is not None
    run = RunRecord(id=name, namespace=f"beamer-{name}", owner=os.getpid(), owner_start=start)
    RUNS.mkdir(parents=True, exist_ok=True)
    # The file is whole or not there at all, whenever this process is killed: it is written without a name, then linked to it.
    with os.fdopen(os.open(RUNS, os.O_TMPFILE | os.O_WRONLY, 0o644), "w") as file:
        json.dump(asdict(run), file)
        file.flush()
        os.fsync(file.fileno())
        # A directory is given, and not used, because only then does Python ask the system to follow the link in /proc.
        os.link(f"/proc/self/fd/{file.fileno()}", run.file, src_dir_fd=file.fileno(), follow_symlinks=True)
    return run


def recorded() -> Iterator[RunRecord]:
    """Yield every recorded run."""
    for path in sorted(RUNS.glob("*.json")):
        with contextlib.suppress(ValueError, TypeError):
            yield RunRecord(**json.loads(path.read_text()))


def remove(run: RunRecord, patience_s: float = 5.0) -> None:
    """Remove everything of `run`, its run file last. Raises `EmulationError` if a process will not end."""
    _end_processes(run, patience_s)
    if (Path("/run/netns") / run.namespace).exists():
        tools.run("ip", "netns", "del", run.namespace)
    shutil.rmtree(run.directory, ignore_errors=True)
    run.file.unlink(missing_ok=True)


def _end_processes(run: RunRecord, patience_s: float) -> None:
    ended: set[int] = set()
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience_s
        for pid in run.processes():
            ended.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        while time.monotonic() < deadline:
            if not run.processes() and not any(map(_holds_a_namespace, ended)):
                return
            _reap()
            time.sleep(0.02)
    raise EmulationError(f"run {run.id}: processes {run.processes()} do not end")


def _holds_a_namespace(pid: int) -> bool:
    """Say whether a process still is in one, as it is for a while after its memory, and so its mark, has gone."""
    try:
        os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return False
    return True


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
