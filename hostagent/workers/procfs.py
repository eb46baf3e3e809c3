"""What /proc says of processes: when they started, below which parent, as which user, in which namespace and control groups."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from beamer.process_stat import process_stat

_NAMESPACE = re.compile(r"(?:pid|net):\[(\d+)\]")
_GONE = FileNotFoundError, ProcessLookupError, PermissionError  # `PermissionError` comes where /proc hides others' processes.
_MAX_BYTES = 4096  # A file read here has fewer bytes: a process's control groups stay below this.


class ProcessStatus(NamedTuple):
    """A process at one moment. start: clock ticks after the boot. ended: whether it only waits for its parent to notice."""

    parent: int
    start: int
    ended: bool


class Procfs:
    """A mounted proc file system, of the process namespace of whoever mounted it."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = str(root)
        self.own_namespace = self.namespace("self")
        self.own_network = self.network("thread-self")  # A thread may have entered another namespace than its process.
        self.own_cgroups = self.cgroups("self")
        self._has_last_made = self._is_own("loadavg")

    def inodes(self) -> dict[int, int]:
        """Return every process's id, and an inode number that another process of the same id does not have."""
        with os.scandir(self._root) as entries:
            return {int(entry.name): entry.inode() for entry in entries if entry.name.isdecimal()}

    def last_made(self) -> int | None:
        """Return the id of the process or thread that was made last, None where that is not known."""
        if not self._has_last_made:
            return None
        try:
            return int((self._read("loadavg") or b"").split()[-1])
        except (IndexError, ValueError):
            return None

    def status(self, pid: int) -> ProcessStatus | None:
        """Return a process's status, None if there is none of that id."""
        stat = process_stat(f"{self._root}/{pid}/stat")
        if stat is None:
            return None
        # A process whose first thread has ended is shown like one that has ended, but for its other threads.
        return ProcessStatus(stat.parent, stat.started, stat.state in "ZX" and stat.threads <= 1)

    def uid(self, pid: int) -> int | None:
        """Return a process's effective user, None if there is none of that id."""
        try:
            return os.stat(f"{self._root}/{pid}").st_uid
        except _GONE:
            return None

    def namespace(self, pid: int | str) -> int:
        """Return the inode number of the process namespace that a process lives in, 0 where that cannot be read."""
        return self._namespace(f"{pid}/ns/pid")

    def network(self, pid: int | str) -> int:
        """Return the inode number of the network namespace that a process lives in, 0 where that cannot be read."""
        return self._namespace(f"{pid}/ns/net")

    def cgroups(self, pid: int | str) -> Mapping[str, str]:
        """Return a process's path in every hierarchy of control groups; that of version 2 is called "". Empty if it is gone."""
        found: dict[str, str] = {}
        for line in (self._read(f"{pid}/cgroup") or b"").decode(errors="surrogateescape").splitlines():
            _, hierarchy, path = line.split(":", 2)
            found[hierarchy] = path
        return found

    def _is_own(self, name: str) -> bool:
        """Return whether a file is of this file system: a container may have another one's in its place (lxcfs)."""
        try:
            return os.stat(f"{self._root}/{name}").st_dev == os.stat(self._root).st_dev
        except OSError:
            return False

    def _namespace(self, name: str) -> int:
        try:
            match = _NAMESPACE.fullmatch(os.readlink(f"{self._root}/{name}"))
        except _GONE:
            return 0
        return int(match[1]) if match else 0

    def _read(self, name: str) -> bytes | None:
        try:
            file = os.open(f"{self._root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except _GONE:
            return None
        try:
            return os.read(file, _MAX_BYTES)
        except _GONE:
            return None
        finally:
            os.close(file)
