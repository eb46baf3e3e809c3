"""A process beside the command, in its process group, that says which signals the whole group has been sent.

A signal to the group has reached the command already, as one of the terminal, of timeout, or of a shell's `kill %1` has. Sent
again, it would be another one, and a second SIGTERM may interrupt how a launcher ends its workers upon the first. The kernel
tells who has sent a signal, but not to whom. So another process of the group, cat, blocks all signals and waits for its input
to end: what it has been sent shows as pending. It is of another name, as pkill may be given that of `beamer run`.
"""

import os
import signal
import time
from contextlib import suppress

PATIENCE_S = 0.02
"""Seconds after which a signal counts as sent to this process alone; the witness is sent others within microseconds."""
_PAUSE_S = 0.002
_PENDING = "ShdPnd:"  # Signals that are pending for a process as a whole, as a mask in hexadecimal digits (proc(5)).


class GroupWitness:
    """Is sent the signals of this process's group, until this process ends. Where it cannot be started, it has seen none."""

    def __init__(self) -> None:
        self._pid: int | None = None
        with suppress(OSError):
            self._watched, self._alive = os.pipe()
            self._pid = self._start()

    def has_seen(self, number: int) -> bool:
        """Say whether the group has been sent a signal that this process has taken; each is told of once."""
        until = time.monotonic() + PATIENCE_S
        while self._pid is not None:
            if self._pending() >> (number - 1) & 1:
                os.kill(self._pid, signal.SIGKILL)  # Nothing else ends that it is pending.
                os.waitpid(self._pid, 0)
                self._pid = None
                with suppress(OSError):
                    self._pid = self._start()
                return True
            if time.monotonic() > until:
                break
            time.sleep(_PAUSE_S)
        return False

    def _start(self) -> int:
        """Start the witness. Raises `OSError` where there is no cat, or no /proc to read what it was sent."""
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # Nobody who reads from the command waits for this process to close what it has inherited.
            others = [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and _is_inherited(number)]
            return os.posix_spawnp(
                "cat",
                ["cat"],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, self._watched, 0),
                    (os.POSIX_SPAWN_DUP2, nothing, 1),
                    (os.POSIX_SPAWN_DUP2, nothing, 2),
                    *((os.POSIX_SPAWN_CLOSE, number) for number in others),
                ],
                setsigmask=signal.valid_signals(),
            )
        finally:
            os.close(nothing)

    def _pending(self) -> int:
        with suppress(OSError), open(f"/proc/{self._pid}/status") as file:
            for line in file:
                if line.startswith(_PENDING):
                    return int(line.split()[1], 16)
        return 0


def _is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:  # It was that of the list itself.
        return False
