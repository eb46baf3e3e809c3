"""Whether this machine has a processor and memory to spare for a job that is started ahead of its turn.

Measured, not declared: others may run beside the search, and what a program takes is not known before it has started. Memory is
that of the machine, or what the limits of this process's control groups leave, if that is less.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

WINDOW_S = 0.5
"""Processors have been idle for that much of so many seconds. A job that was started just before shows in it."""
IDLE_PROCESSORS = 0.5
"""Starting a job must leave those that compute what they have."""
FREE_MEMORY = 0.25
"""This share of the memory stays free."""
OF_EACH_START = 0.05
"""A job that still starts is expected to take so much of the memory yet: several gigabytes where a machine has a hundred."""
SHORT_OF_MEMORY = 0.1
"""With less than this share free, those that were started ahead give their memory back."""


class SpareCapacity:
    """Says whether another job may be started ahead. proc, groups: where the kernel says what the machine and groups use."""

    def __init__(self, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._groups = groups
        self._since: tuple[float, float] | None = None

    def suffices(self, now: float, starting: int = 0) -> bool:
        """Return whether another job may be started; then not again before that one has run for a while.

        now: monotonic time. starting: jobs that were started ahead, and still start.
        """
        idle_s = self._idle_s()
        if self._since is None or now - self._since[0] > 2 * WINDOW_S:
            self._since = now, idle_s
        seconds, idle = now - self._since[0], idle_s - self._since[1]
        if seconds < WINDOW_S:
            return False
        self._since = now, idle_s
        return idle >= IDLE_PROCESSORS * seconds and self._free_memory() >= FREE_MEMORY + OF_EACH_START * starting

    def is_short_of_memory(self) -> bool:
        """Return whether those that compute may soon lack memory."""
        return self._free_memory() < SHORT_OF_MEMORY

    def _idle_s(self) -> float:
        """Return for how long processors have been idle, all together; one that waits for a disk is not."""
        fields = (self._proc / "stat").read_text().partition("\n")[0].split()
        return int(fields[4]) / os.sysconf("SC_CLK_TCK")

    def _free_memory(self) -> float:
        """Return the share of the memory that is available to new programs."""
        lines = (line.split() for line in (self._proc / "meminfo").read_text().splitlines())
        amounts = {words[0]: int(words[1]) for words in lines if len(words) > 1}
        return min([amounts["MemAvailable:"] / amounts["MemTotal:"], *self._left_by_groups()])

    def _left_by_groups(self) -> Iterator[float]:
        """Return the share that each of this process's control groups (of version 2) with a limit has left."""
        with suppress(OSError, StopIteration):
            lines = (self._proc / "self" / "cgroup").read_text().splitlines()
            own = next(line.removeprefix("0::") for line in lines if line.startswith("0::")).strip("/")
            for group in (Path(own), *Path(own).parents):
                with suppress(OSError, ValueError, ZeroDivisionError):  # It has no limit, or no account of memory.
                    directory = self._groups / group
                    limit, used = (int((directory / f"memory.{name}").read_text()) for name in ("max", "current"))
                    words = (directory / "memory.stat").read_text().split()
                    cached = int(words[words.index("inactive_file") + 1])  # The kernel gives this up first.
                    yield max(1.0 - (used - cached) / limit, 0.0)
