"""Processes as /proc shows them: states, processor time, descendants, and whose environment carries a mark."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STOPPED = frozenset("TtZX")
"""States of a thread that computes nothing and will not, unless somebody lets it: stopped, traced, dead."""


@dataclass(frozen=True)
class ProcessStat:
    """A process. ticks: processor time in user and kernel mode, clock ticks. started: when, clock ticks since the boot."""

    pid: int
    state: str
    parent: int
    ticks: int
    started: int


def stat(pid: int) -> ProcessStat | None:
    """Return a process, None if there is none of that number."""
    return _parse(pid, f"/proc/{pid}/stat")


def _parse(pid: int, path: str) -> ProcessStat | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)  # pathlib would take twice as long, and this is done for all processes
        try:
            data = os.read(descriptor, 1024)
        finally:
            os.close(descriptor)
    except OSError:  # ended, perhaps while it was being read
        return None
    fields = data[data.rindex(b")") + 2 :].split(None, 20)
    return ProcessStat(pid, fields[0].decode(), int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))


def _numbers(path: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(path) if name.isdigit()]
    except OSError:
        return []


def threads(pid: int) -> Iterator[ProcessStat]:
    """Return the threads of a process."""
    for thread in _numbers(f"/proc/{pid}/task"):
        if (found := _parse(thread, f"/proc/{pid}/task/{thread}/stat")) is not None:
            yield found


def is_stopped(pid: int) -> bool:
    """Return whether every thread of a process is stopped, or it is gone."""
    return all(thread.state in STOPPED for thread in threads(pid))


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


def marked(mark: str) -> list[int]:
    """Return the processes whose environment was `mark` ("NAME=value") among others when they were started."""
    wanted = mark.encode()
    found = []
    for pid in _numbers("/proc"):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(pid)
    return found


def processor_ticks(pids: list[int]) -> int:
    """Return the processor time of some processes in all, clock ticks; those that are gone count as none."""
    return sum(process.ticks for pid in pids if (process := stat(pid)) is not None)
