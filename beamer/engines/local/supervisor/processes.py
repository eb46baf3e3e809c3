"""Processes as /proc shows them: states, processor time, descendants, whose environment has a mark, and who holds a lock."""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from beamer.process_stat import ProcessStat, own_namespace, process_stat

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
STOPPED = frozenset("TtZX")
"""States of a thread that computes nothing and will not, unless somebody lets it: stopped, traced, dead."""


def adopt_orphans(adopts: bool = True) -> None:
    """Let the orphans among this process' descendants become its children, so that none escapes it, or not any more."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def stat(pid: int) -> ProcessStat | None:
    """Return a process, None if there is none of that number."""
    return process_stat(f"/proc/{pid}/stat")


def identity() -> tuple[int, int]:
    """Return when this process started, in clock ticks after boot, and its process namespace's inode number; 0: not known."""
    own = process_stat("/proc/self/stat")
    return own.started if own else 0, own_namespace()


def _numbers(path: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(path) if name.isdigit()]
    except OSError:
        return []


def threads(pid: int) -> Iterator[ProcessStat]:
    """Return the threads of a process."""
    for thread in _numbers(f"/proc/{pid}/task"):
        if (found := process_stat(f"/proc/{pid}/task/{thread}/stat")) is not None:
            yield found


def is_stopped(pid: int) -> bool:
    """Return whether every thread of a process is stopped, or it is gone."""
    return all(thread.state in STOPPED for thread in threads(pid))


def may_be_awaited(pid: int) -> bool:
    """Return whether a thread of a process' parent waits in the kernel, and may do so until the process executes a program."""
    process = stat(pid)
    return process is not None and any(thread.state == "D" for thread in threads(process.parent))


def descendants(ancestor: int) -> list[int]:
    """Return the processes below one that have not died, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in _numbers("/proc"):
        process = stat(pid)
        if process is not None and process.state not in "ZX":
            children.setdefault(process.parent, []).append(pid)
    found = [ancestor]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found[1:]


def values_of(variable: str) -> dict[int, str]:
    """Return the values that an environment variable has in processes, by process, of those that were started with it."""
    prefix = f"{variable}=".encode()
    found = {}
    for pid, environment in _environments():
        for entry in environment:
            if entry.startswith(prefix):
                found[pid] = os.fsdecode(entry[len(prefix) :])
    return found


def marked(mark: str) -> list[int]:
    """Return the processes whose environment was `mark` ("NAME=value") among others when they were started."""
    wanted = os.fsencode(mark)
    return [pid for pid, environment in _environments() if wanted in environment]


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    """Return the environments that processes were started with."""
    for pid in _numbers("/proc"):
        with suppress(OSError):  # It has ended, or is another user's.
            yield pid, Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def lock_holders(paths: Sequence[Path]) -> dict[Path, list[int]]:
    """Return the processes that hold the lock of each file (`flock`): those with a descriptor that the kernel says has it."""
    found: dict[Path, list[int]] = {path: [] for path in paths}
    wanted: dict[tuple[int, int], list[Path]] = {}
    for path in paths:
        with suppress(OSError):  # A file that is not there is held by nobody.
            status = os.stat(path)
            wanted.setdefault((status.st_dev, status.st_ino), []).append(path)
    for pid in _numbers("/proc") if wanted else []:
        for descriptor in _numbers(f"/proc/{pid}/fd"):
            with suppress(OSError):  # The process may end meanwhile.
                if "FLOCK" not in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text():
                    continue  # The descriptor is skipped before its file is looked at, as a file system may not answer.
                status = os.stat(f"/proc/{pid}/fd/{descriptor}")
                for path in wanted.get((status.st_dev, status.st_ino), []):
                    if pid not in found[path]:
                        found[path].append(pid)
    return found
