"""How long the processes of a run wait for a processor: the kernel's run-queue delay, read from /proc.

For every thread the kernel counts the nanoseconds that it has run and those that it was ready to run and waited in a run queue:
the first two fields of `/proc/PID/task/TID/schedstat`, where the kernel is built with CONFIG_SCHED_INFO. The machine's pressure
(`/proc/pressure/cpu`) says less: it also counts processes that wait for those of the run.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hostagent.workers.members import ProcessTrees

SWITCHES, CONTROLLER, AGENTS, TRAINERS = "Open vSwitch", "the controller", "the host agents", "the trainers"
Thread = tuple[int, int]  # process id, thread id


@dataclass(frozen=True)
class ProcessorTime:
    """What threads had of the processors. running_ns: that they ran. waiting_ns: that they were ready and waited for one."""

    running_ns: int = 0
    waiting_ns: int = 0

    def __add__(self, other: "ProcessorTime") -> "ProcessorTime":
        return ProcessorTime(self.running_ns + other.running_ns, self.waiting_ns + other.waiting_ns)

    def since(self, before: "ProcessorTime") -> "ProcessorTime":
        """Return what was added after `before`; everything, if the counts are another thread's that took over its id."""
        if before.running_ns > self.running_ns or before.waiting_ns > self.waiting_ns:
            return self
        return ProcessorTime(self.running_ns - before.running_ns, self.waiting_ns - before.waiting_ns)

    @property
    def waiting_share(self) -> float:
        """The share of the time in which there was something to run that was spent waiting, 0 to 1."""
        return self.waiting_ns / max(self.running_ns + self.waiting_ns, 1)


def is_counted() -> bool:
    """Say whether this kernel counts run-queue delay."""
    try:
        return _parse(Path("/proc/self/schedstat").read_text()).running_ns > 0
    except OSError:
        return False


def read(pid: int) -> dict[Thread, ProcessorTime]:
    """Return the counts of every thread of process `pid`; empty if it is gone."""
    counts: dict[Thread, ProcessorTime] = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # This thread has ended.
                counts[pid, int(thread)] = _parse(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text())
    return counts


def _parse(text: str) -> ProcessorTime:
    running, waiting, _ = text.split()
    return ProcessorTime(int(running), int(waiting))


class DelayMeter:
    """Adds up, by part of the run, the processor time of its processes from the first `sample` to the last.

    parts: returns names by root process, at every sample anew, so that a part that is started again is measured from its start;
    what a root has forked counts as its part. A thread that ends loses what it did after the last sample that saw it.
    """

    def __init__(self, parts: Callable[[], Mapping[int, str]]) -> None:
        self._parts = parts
        self._trees: ProcessTrees[str] = ProcessTrees()
        self._before: dict[Thread, ProcessorTime] | None = None
        self._totals: defaultdict[str, ProcessorTime] = defaultdict(ProcessorTime)

    @property
    def totals(self) -> dict[str, ProcessorTime]:
        """What was added up, by part."""
        return dict(self._totals)

    def sample(self) -> None:
        """Read all counts."""
        now: dict[Thread, ProcessorTime] = {}
        parts = self._parts()
        self._trees.refresh()
        for pid, part in self._trees.members(parts).items():
            for thread, count in read(pid).items():
                now[thread] = count
                if self._before is not None:
                    self._totals[part] += count.since(self._before.get(thread, ProcessorTime()))
        self._before = now
