"""A job's processes on a node as one group, frozen, thawed and killed together.

By control group where one can be made (version 2, else the freezer of version 1), by signals to the supervisor's descendants
otherwise. All of them work for any program, children included.
"""

import os
import signal
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from beamer.engines.local.supervisor.processes import descendants, is_stopped, marked

POLL_S = 0.0005
KINDS = ("auto", "cgroup2", "cgroup1", "signals")


class Group(ABC):
    """The processes of a job on a node.

    mark: "NAME=value" in the environment of each, by which those are found that outlived a supervisor.
    """

    kind: ClassVar[str]

    def __init__(self, path: str, mark: str) -> None:
        self.path = path
        self.mark = mark

    @abstractmethod
    def open(self) -> None:
        """Make the group. Raises `OSError` where it cannot be."""

    def enter(self) -> None:  # noqa: B027  # Descendants are in the group anyway.
        """Put the calling process into the group; its children will be in it, too."""

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
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._let_die()
            if not left:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)

    def _let_die(self) -> None:  # noqa: B027  # Most processes die at once.
        """Let frozen processes receive the signals of `kill`."""

    def close(self) -> None:  # noqa: B027  # Not all kinds of groups leave something.
        """Remove the group, which is empty."""


class _Directory(Group):
    """A control group: a directory."""

    def open(self) -> None:
        """Make the directory, or take it over from a supervisor that died."""
        Path(self.path).mkdir(exist_ok=True)

    def enter(self) -> None:
        """Write to the list of processes."""
        with open(f"{self.path}/cgroup.procs", "w") as file:
            file.write("0")

    def members(self) -> list[int]:
        """Read the list of processes."""
        try:
            return [int(pid) for pid in Path(self.path, "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def close(self) -> None:
        """Remove the directory, with those that a program has made below it."""
        for path, _, _ in os.walk(self.path, topdown=False):
            with suppress(OSError):  # A directory that is not empty is left to the process that opens it again.
                os.rmdir(path)

    def _write(self, name: str, value: str) -> None:
        Path(self.path, name).write_text(value)

    def _until(self, name: str, wanted: str, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while wanted not in Path(self.path, name).read_text().splitlines():
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True


class Cgroup2(_Directory):
    """A control group of version 2."""

    kind = "cgroup2"

    def open(self) -> None:
        """Make the directory and see that the kernel freezes."""
        super().open()
        self._write("cgroup.freeze", "0")

    def freeze(self, timeout_s: float) -> bool:
        """Freeze, and wait for the event."""
        self._write("cgroup.freeze", "1")
        return self._until("cgroup.events", "frozen 1", timeout_s)

    def thaw(self, timeout_s: float) -> bool:
        """Thaw, and wait for the event."""
        self._write("cgroup.freeze", "0")
        return self._until("cgroup.events", "frozen 0", timeout_s)


class Cgroup1(_Directory):
    """A control group of version 1 in the hierarchy of its freezer."""

    kind = "cgroup1"

    def open(self) -> None:
        """Make the directory and see that the kernel freezes."""
        super().open()
        self._write("freezer.state", "THAWED")

    def freeze(self, timeout_s: float) -> bool:
        """Freeze, and wait for the state."""
        self._write("freezer.state", "FROZEN")
        return self._until("freezer.state", "FROZEN", timeout_s)

    def thaw(self, timeout_s: float) -> bool:
        """Thaw, and wait for the state."""
        self._write("freezer.state", "THAWED")
        return self._until("freezer.state", "THAWED", timeout_s)

    def _let_die(self) -> None:
        with suppress(OSError):  # A frozen process of version 1 dies when it is thawed.
            self._write("freezer.state", "THAWED")


class Signals(Group):
    """The descendants of the supervisor, which adopts orphans, by SIGSTOP and SIGCONT."""

    kind = "signals"

    def open(self) -> None:
        """Nothing is to be made."""

    def members(self) -> list[int]:
        """Return the living descendants of this process."""
        return descendants(os.getpid())

    def freeze(self, timeout_s: float) -> bool:
        """Stop all, until none of their threads runs when all are checked: one may have forked in between."""
        until = time.monotonic() + timeout_s
        while moving := [pid for pid in self.members() if not is_stopped(pid)]:
            for pid in moving:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            while not all(is_stopped(pid) for pid in moving):
                if time.monotonic() > until:
                    return False
                time.sleep(POLL_S)
        return True

    def thaw(self, timeout_s: float) -> bool:
        """Continue all; those that a program had stopped itself continue as well."""
        for pid in reversed(self.members()):  # A parent that waits for stopped children finds them running.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return True


_GROUPS: dict[str, type[Group]] = {group.kind: group for group in (Cgroup2, Cgroup1, Signals)}


def reopen(kind: str, path: str, mark: str) -> Group:
    """Return the group that a supervisor recorded, without making it."""
    return _GROUPS[kind](path, mark)


def candidates(name: str, kind: str = "auto") -> list[tuple[str, str]]:
    """Return kind and path of the groups that may be possible here, the best first.

    They lie below the group of this process, so that its limits hold for them.
    """
    mounts, own = _mounts(), _own()
    found = [
        (wanted, f"{mounts[wanted]}{own[wanted].rstrip('/')}/{name}")
        for wanted in ("cgroup2", "cgroup1")
        if wanted in mounts and wanted in own
    ]
    return [(one, path) for one, path in [*found, ("signals", "")] if kind in ("auto", one)]


def _mounts() -> dict[str, str]:
    """Return where the hierarchies are mounted, by kind."""
    found: dict[str, str] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, system, options, *_ = line.split()
        if system == "cgroup2":
            found.setdefault("cgroup2", where)
        elif system == "cgroup" and "freezer" in options.split(","):
            found.setdefault("cgroup1", where)
    return found


def _own() -> dict[str, str]:
    """Return this process' group in each hierarchy, by kind."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                found["cgroup2"] = path
            elif "freezer" in controllers.split(","):
                found["cgroup1"] = path
    return found
