"""What an agent records on disk for its guard and its successor, and the locks that keep them apart.

    agent.lock   held by the running agent
    guard.lock   held by the running guard; holds its process id
    tree.lock    held while queues are being changed
    interfaces   one name per line, written before an interface's queues are touched
    lease        seconds of CLOCK_BOOTTIME until which the queues may stay without a controller, see `hostagent.expiry.deadline`

Only the standard library is imported here: the guard imports little else.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast


class StateDirectory:
    """One agent's state in directory `path`, which is made if missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def owned(self) -> frozenset[str]:
        """Return the interfaces whose queues are this agent's."""
        return frozenset((self.read("interfaces") or "").split())

    def own(self, interfaces: Iterable[str]) -> None:
        """Record that `interfaces`, and no others, are this agent's."""
        self.write("interfaces", "".join(f"{name}\n" for name in sorted(interfaces)))

    def read(self, name: str) -> str | None:
        """Return the text of record `name`, None where there is none."""
        try:
            return (self.path / name).read_text()
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Replace record `name`: readers find the old text or the new one, nothing between."""
        temporary = self.path / f"{name}.new"
        temporary.write_text(text)
        temporary.replace(self.path / name)

    def remove(self, name: str) -> None:
        """Remove record `name` if it is there."""
        (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Exclude every other process that would change this agent's queues."""
        descriptor = self._open("tree.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def take(self, lock: str, patience_s: float = 0.2) -> BinaryIO | None:
        """Return a file that holds `lock` ("agent" or "guard") until it is closed, None if another process has it.

        patience_s: how long to wait for those that only check whether it is held.
        """
        descriptor = self._open(f"{lock}.lock")
        until = time.monotonic() + patience_s
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return cast(BinaryIO, os.fdopen(descriptor, "r+b", buffering=0))
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
            time.sleep(0.02)

    def held(self, lock: str) -> bool:
        """Return whether a process holds `lock`, without blocking one that is about to take it."""
        descriptor = self._open(f"{lock}.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _open(self, name: str) -> int:
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
