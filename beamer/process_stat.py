"""Processes as /proc shows them (proc(5)): the one place where the line of one, /proc/PID/stat, is read."""

import os
from dataclasses import dataclass

_MAX_BYTES = 1024  # The line is read up to this length.
# The numbers count the fields after the command's name, which may hold any character.
_STATE, _PARENT, _USER_TICKS, _KERNEL_TICKS, _THREADS, _STARTED = 0, 1, 11, 12, 17, 19


@dataclass(frozen=True)
class ProcessStat:
    """A process or thread. ticks: processor time in user and kernel mode, clock ticks. started: clock ticks since the boot."""

    pid: int
    state: str
    parent: int
    threads: int
    ticks: int
    started: int


def own_namespace(proc: str = "/proc") -> int:
    """Return the inode number of this process's namespace of process ids, 0 where it is not known."""
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino
    except OSError:
        return 0


def process_stat(path: str) -> ProcessStat | None:
    """Return the process of a `stat` file, None if it is gone or hidden."""
    try:
        # The line of every process is read so, and pathlib takes twice as long.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, _MAX_BYTES)
        finally:
            os.close(descriptor)
    except OSError:  # The process has ended, perhaps while its line was being read.
        return None
    pid, _, rest = data.partition(b" ")
    fields = rest.rpartition(b")")[2].split(None, _STARTED + 1)
    if len(fields) <= _STARTED:
        return None
    ticks = int(fields[_USER_TICKS]) + int(fields[_KERNEL_TICKS])
    return ProcessStat(
        int(pid), fields[_STATE].decode(), int(fields[_PARENT]), int(fields[_THREADS]), ticks, int(fields[_STARTED])
    )
