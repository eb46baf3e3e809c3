"""The lease of an agent's queues: until when they may stay without a controller.

The agent renews it while there is a controller and removes the queues when it is over; so does `hostagent.expiry.guard` where
the agent is gone. Only the standard library is imported here: the guard imports little else.
"""

import math
import time

from hostagent.expiry.state import StateDirectory

DEFAULT_DURATION_S = 60.0  # of a lease: time to start a controller or an agent again; a switch's idle rule stays as long
RENEWALS = 20  # within a lease's duration: at least 95 % of it is left when the controller ends
_MIN_WAIT_S = 0.01  # before the next check of a lease that is about to end


def now() -> float:
    """Return seconds on the clock that leases are written in: it never jumps, and advances while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class QueueLease:
    """The lease in an agent's state directory, for every process that reads it."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    def until(self) -> float | None:
        """Return until when the queues may stay, in seconds of `now`; None where there is nothing to guard.

        A record that cannot be read is over: otherwise nobody would remove the queues.
        """
        text = self._state.read("lease")
        if text is None:
            return None
        try:
            until = float(text)
        except ValueError:
            return 0.0
        return until if math.isfinite(until) else 0.0

    def expired(self) -> bool:
        """Return whether there is a lease and its time is over."""
        until = self.until()
        return until is not None and until <= now()

    def renew(self, until: float) -> None:
        """Let the queues stay until `until`, in seconds of `now`."""
        self._state.write("lease", f"{until:.3f}\n")

    def end(self) -> None:
        """Leave nothing to be guarded: a guard ends soon."""
        self._state.remove("lease")


class HeldQueueLease:
    """The lease as the running agent holds it, its predecessor's at first.

    duration_s: how long the queues may stay after a renewal. What could not be written holds for this agent all the same.
    """

    def __init__(self, lease: QueueLease, duration_s: float) -> None:
        self.duration_s = duration_s
        self._lease = lease
        self._until = lease.until()

    @property
    def granted(self) -> bool:
        """Whether there is a lease, over or not."""
        return self._until is not None

    @property
    def expired(self) -> bool:
        """Whether there is a lease and its time is over."""
        return self._until is not None and self._until <= now()

    def renew(self) -> bool:
        """Let the queues stay for the whole duration from now on; return whether enough had passed for that to be written.

        Raises `OSError`.
        """
        until = now() + self.duration_s
        if self._until is not None and until - self._until < self.duration_s / RENEWALS:
            return False
        self._until = until
        self._lease.renew(until)
        return True

    def forget(self) -> None:
        """Hold no lease any more; the record stays for the guard until the queues are removed."""
        self._until = None

    def wait_s(self) -> float:
        """Return the seconds until the lease is due for a renewal or over, whichever comes first."""
        renewal_s = self.duration_s / RENEWALS
        return renewal_s if self._until is None else min(renewal_s, max(self._until - now(), _MIN_WAIT_S))
