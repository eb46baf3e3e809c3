"""A job's processes on a node as one group, frozen, thawed and killed together.

By control group of version 2 where one can be made, by signals to the supervisor's descendants otherwise. Both work for any
program, children included.
"""

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from beamer.engines.local.supervisor.processes import descendants, is_stopped, marked, may_be_awaited

POLL_S = 0.0005
_VFORK_S = 0.01  # How long a child may take from vfork(2) to the program that it executes, at first.
KINDS = ("auto", "cgroup2", "signals")


class Group(ABC):
    """The processes of a job on a node.

    mark: "NAME=value" in the environment of each, by which those are found that outlived a supervisor.
    """

    kind: ClassVar[str]

    def __init__(self, path: str, mark: str) -> None:
        self.path = path
        self.mark = mark
        self.spared: set[int] = set()
        """Children of this process that are not in the group."""

    @abstractmethod
    def open(self) -> None:
        """Make the group. Raises `OSError` where it cannot be."""

    def enter(self) -> None:  # noqa: B027  # Descendants are in the group anyway.
        """Put the calling process into the group; its children will be in it, too."""

    @abstractmethod
    def adopt(self, parent: int, ranks: Sequence[int]) -> None:
        """Have ranks in the group that are no children of the calling process, but of `parent`; 0: there are none any more."""

    @abstractmethod
    def members(self) -> list[int]:
        """Return the processes of the group."""

    @abstractmethod
    def freeze(self, timeout_s: float) -> bool:
        """Freeze every process and return whether all are frozen."""

    @abstractmethod
    def thaw(self, timeout_s: float) -> bool:
        """Thaw every process and return whether all are."""

    def kill(self, timeout_s: float) -> bool:
        """Kill every process, frozen or not, and return whether none is left."""
        until = time.monotonic() + timeout_s
        while True:
            left = {*self.members(), *marked(self.mark)}
            for pid in left:
                _send(pid, signal.SIGKILL)
            if not left:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)

    def close(self) -> None:  # noqa: B027  # Not all kinds of groups leave something.
        """Remove the group, which is empty."""


class ControlGroup(Group):
    """A control group of version 2: a directory."""

    kind = "cgroup2"

    def open(self) -> None:
        """Make the directory, or take it over from a supervisor that died, and see that the kernel freezes."""
        Path(self.path).mkdir(exist_ok=True)
        self.thaw(0.0)

    def enter(self) -> None:
        """Write to the list of processes."""
        with open(f"{self.path}/cgroup.procs", "w") as file:
            file.write("0")

    def adopt(self, parent: int, ranks: Sequence[int]) -> None:
        """Write to the list of processes."""
        for pid in ranks:
            with suppress(ProcessLookupError):
                Path(self.path, "cgroup.procs").write_text(str(pid))

    def members(self) -> list[int]:
        """Read the list of processes."""
        try:
            return [int(pid) for pid in Path(self.path, "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def freeze(self, timeout_s: float) -> bool:
        """Freeze, and wait for the event."""
        return self._freeze(True, timeout_s)

    def thaw(self, timeout_s: float) -> bool:
        """Thaw, and wait for the event."""
        return self._freeze(False, timeout_s)

    def close(self) -> None:
        """Remove the directory, with those that a program has made below it."""
        for path, _, _ in os.walk(self.path, topdown=False):
            with suppress(OSError):  # A directory that is not empty is left to the process that opens it again.
                os.rmdir(path)

    def _freeze(self, wanted: bool, timeout_s: float) -> bool:
        Path(self.path, "cgroup.freeze").write_text(str(int(wanted)))
        events = Path(self.path, "cgroup.events")
        return _wait(lambda: f"frozen {wanted:d}" in events.read_text().splitlines(), time.monotonic() + timeout_s)


class Signals(Group):
    """The descendants of the supervisor, which adopts orphans, by SIGSTOP and SIGCONT."""

    kind = "signals"

    def __init__(self, path: str, mark: str) -> None:
        super().__init__(path, mark)
        self._parent = 0

    def open(self) -> None:
        """Nothing is to be made."""

    def adopt(self, parent: int, ranks: Sequence[int]) -> None:
        """Count the descendants of another process as well."""
        self._parent = parent

    def members(self) -> list[int]:
        """Return the living descendants of this process, and of the one that has forked ranks."""
        found = [*descendants(os.getpid()), *(descendants(self._parent) if self._parent else ())]
        return [pid for pid in found if pid not in self.spared]

    def freeze(self, timeout_s: float) -> bool:
        """Stop all, until none of their threads runs when all are checked: one may have forked in between.

        A thread that calls vfork(2), as most programs do to start another one, cannot stop before its child executes that
        program. A child that was stopped before goes on for as long as it takes, twice as long each time.
        """
        until, patience_s = time.monotonic() + timeout_s, _VFORK_S
        while moving := [pid for pid in self.members() if not is_stopped(pid)]:
            for pid in moving:
                _send(pid, signal.SIGSTOP)
            soon = min(time.monotonic() + patience_s, until)
            if not _wait(lambda: all(map(is_stopped, moving)), soon):
                if time.monotonic() > until:
                    return False
                self._continue_awaited(min(patience_s, until - time.monotonic()))
                patience_s *= 2
        return True

    def thaw(self, timeout_s: float) -> bool:
        """Continue all; those that a program had stopped itself continue as well."""
        for pid in reversed(self.members()):  # A parent that waits for stopped children finds them running.
            _send(pid, signal.SIGCONT)
        return True

    def _continue_awaited(self, for_s: float) -> None:
        """Let those processes go on for a while which their parents may wait for."""
        awaited = [pid for pid in self.members() if may_be_awaited(pid)]
        for pid in awaited:
            _send(pid, signal.SIGCONT)
        if awaited and for_s > 0:
            time.sleep(for_s)


def _wait(holds: Callable[[], bool], until: float) -> bool:
    """Wait until something holds, and return whether it did in time. until: monotonic time."""
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def _send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


_GROUPS: dict[str, type[Group]] = {group.kind: group for group in (ControlGroup, Signals)}


def reopen(kind: str, path: str, mark: str) -> Group:
    """Return the group that a supervisor recorded, without making it.

    Of a kind that only another version has, as 0.1.0 had `cgroup1`, processes are found by their mark alone.
    """
    return _GROUPS.get(kind, Signals)(path, mark)


def candidates(name: str, kind: str = "auto") -> list[tuple[str, str]]:
    """Return kind and path of the groups that may be possible here, the best first.

    They lie below the group of this process, so that its limits hold for them.
    """
    mount, own = _mount(), _own()
    found = [] if mount is None or own is None else [("cgroup2", f"{mount}{own.rstrip('/')}/{name}")]
    return [(one, path) for one, path in [*found, ("signals", "")] if kind in ("auto", one)]


def _mount() -> str | None:
    """Return where the hierarchy of version 2 is mounted."""
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return next((where for _, where, system, *_ in lines if system == "cgroup2"), None)


def _own() -> str | None:
    """Return this process' group in that hierarchy."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                return path
    return None
