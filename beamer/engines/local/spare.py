"""Whether this machine has a processor and memory to spare for a job that is started ahead of its turn.

Measured, not declared: programs that start wait for a disk as often as they compute, and others may run beside the search.
"""

import os
from pathlib import Path

WINDOW_S = 0.5
"""Processors have been idle for that much of so many seconds. A job that was started just before shows in it."""
IDLE_PROCESSORS = 0.5
"""Starting a job must leave those that compute what they have."""
FREE_MEMORY = 0.25
"""This share of the memory stays free: what a job will take is not known before it has started."""


class SpareCapacity:
    """Says whether another job may be started ahead. proc: where the kernel says what is used."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._since: tuple[float, float] | None = None

    def suffices(self, now: float) -> bool:
        """Return whether another job may be started; then not again before that one has run for a while.

        now: monotonic time.
        """
        idle_s = self._idle_s()
        if self._since is None:
            self._since = now, idle_s
        seconds, idle = now - self._since[0], idle_s - self._since[1]
        if seconds < WINDOW_S:
            return False
        self._since = now, idle_s
        return idle >= IDLE_PROCESSORS * seconds and self._free_memory() >= FREE_MEMORY

    def _idle_s(self) -> float:
        """Return for how long processors have been idle, all together; one that waits for a disk is."""
        fields = (self._proc / "stat").read_text().partition("\n")[0].split()
        return sum(map(int, fields[4:6])) / os.sysconf("SC_CLK_TCK")

    def _free_memory(self) -> float:
        """Return the share of the memory that is available to new programs."""
        lines = (line.split() for line in (self._proc / "meminfo").read_text().splitlines())
        amounts = {words[0]: int(words[1]) for words in lines if len(words) > 1}
        return amounts["MemAvailable:"] / amounts["MemTotal:"]
