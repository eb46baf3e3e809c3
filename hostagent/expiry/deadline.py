"""The deadline of an agent's queues: until when they may stay without a controller.

The agent renews it while there is a controller and removes the queues when it has passed; so does `hostagent.expiry.guard`
where the agent is gone. Only the standard library is imported here: the guard imports little else.
"""

import math
import time

from hostagent.expiry.state import StateDirectory

# Queues stay so long after a renewal: time to start a controller or an agent again; a switch's idle rule stays as long.
DEFAULT_DURATION_S = 60.0
RENEWALS = 20  # A duration has so many renewals: at least 95 % of it is left when the controller ends.
_RECORD = "lease"  # Version 0.1.0 used this name, so a guard of either version finds the record.
_MIN_WAIT_S = 0.01  # A deadline that is about to pass is not checked again before this.


def now() -> float:
    """Return seconds on the clock that deadlines are written in: it never jumps, and advances while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class QueueDeadline:
    """The deadline in an agent's state directory, for every process that reads it."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    def until(self) -> float | None:
        """Return until when the queues may stay, in seconds of `now`; None where there is nothing to guard.

        A record that cannot be read has passed: otherwise nobody would remove the queues.
        """
        text = self._state.read(_RECORD)
        if text is None:
            return None
        try:
            until = float(text)
        except ValueError:
            return 0.0
        return until if math.isfinite(until) else 0.0

    def expired(self) -> bool:
        """Return whether there is a deadline and it has passed."""
        until = self.until()
        return until is not None and until <= now()

    def renew(self, until: float) -> None:
        """Let the queues stay until `until`, in seconds of `now`."""
        self._state.write(_RECORD, f"{until:.3f}\n")

    def end(self) -> None:
        """Leave nothing to be guarded: a guard ends soon."""
        self._state.remove(_RECORD)


class HeldQueueDeadline:
    """The deadline as the running agent holds it, its predecessor's at first.

    duration_s: how long the queues may stay after a renewal. What could not be written holds for this agent all the same.
    """

    def __init__(self, deadline: QueueDeadline, duration_s: float) -> None:
        self.duration_s = duration_s
        self._deadline = deadline
        self._until = deadline.until()

    @property
    def granted(self) -> bool:
        """Whether there is a deadline, passed or not."""
        return self._until is not None

    @property
    def expired(self) -> bool:
        """Whether there is a deadline and it has passed."""
        return self._until is not None and self._until <= now()

    def renew(self) -> bool:
        """Let the queues stay for the whole duration from now on; return whether enough had passed for that to be written.

        Raises `OSError`.
        """
        until = now() + self.duration_s
        if self._until is not None and until - self._until < self.duration_s / RENEWALS:
            return False
        self._until = until
        self._deadline.renew(until)
        return True

    def forget(self) -> None:
        """Hold no deadline any more; the record stays for the guard until the queues are removed."""
        self._until = None

    def wait_s(self) -> float:
        """Return the seconds until the deadline is due for a renewal or has passed, whichever comes first."""
        renewal_s = self.duration_s / RENEWALS
        return renewal_s if self._until is None else min(renewal_s, max(self._until - now(), _MIN_WAIT_S))
