"""A process beside the command, in its process group, that says which signals the whole group has been sent.

A signal to the group has reached the command already, as one of the terminal, of timeout, or of a shell's `kill %1` has. Sent
again, it would be another one, and a second SIGTERM may interrupt how a launcher ends its workers upon the first. The kernel
tells who has sent a signal, but not to whom.
"""

import os
import select
import signal
from collections.abc import Collection
from contextlib import suppress

PATIENCE_S = 0.02
"""Seconds after which a signal counts as sent to this process alone; the witness sees others within microseconds."""


class GroupWitness:
    """Sees the signals of this process's group until this process ends. To be made before any thread is started."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._seen: set[int] = set()
        self._reports, reporting = os.pipe()
        watched, self._alive = os.pipe()
        if os.fork() == 0:
            _watch(numbers, watched, reporting)
        os.close(watched)
        os.close(reporting)

    def has_seen(self, number: int) -> bool:
        """Say whether the group has been sent a signal that this process has taken."""
        while number not in self._seen and select.select([self._reports], [], [], PATIENCE_S)[0]:
            read = os.read(self._reports, 64)
            if not read:  # The witness was killed.
                return False
            self._seen |= {*read}
        was_seen = number in self._seen
        self._seen.discard(number)
        return was_seen


def _watch(numbers: Collection[int], watched: int, reporting: int) -> None:
    """Report signals until the other end of `watched` is closed, as it is when the process that made it ends."""
    try:
        # Nobody who reads from this process or the command waits for this one to close what it has inherited.
        for descriptor in {*map(int, os.listdir("/proc/self/fd"))} - {watched, reporting}:
            with suppress(OSError):
                os.close(descriptor)
        os.set_blocking(reporting, False)
        signal.set_wakeup_fd(reporting, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with suppress(OSError):
            os.read(watched, 1)
    finally:
        os._exit(0)
