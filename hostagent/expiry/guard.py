"""The small process that outlives an agent and removes its queues at their deadline: nothing else would after SIGKILL.

It sleeps and reads one file, so it imports the netlink library only when there is something to remove. Run as
`python -m hostagent.expiry.guard DIRECTORY`.
"""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from beamer.errors import BeamerError, InputError, PlatformError
from hostagent.expiry.deadline import QueueDeadline, now
from hostagent.expiry.state import StateDirectory

_POLL_S = 0.5


class Guard:
    """Keeps a guard running for a state directory, in a session of its own so that no signal to the agent's reaches it."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Start a guard unless one is running, this agent's or the one that its predecessor left."""
        if self._process is not None and self._process.poll() is None:
            return
        if not self._state.held("guard"):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hostagent.expiry.guard", str(self._state.path)],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


def remove_queues(state: StateDirectory) -> None:
    """Restore the default queueing of every interface that the agent owns, and end the deadline. The caller holds `changing`.

    Raises `PlatformError` if that failed for one; then the deadline and the record of what is left stay.
    """
    from hostagent.marks.acknowledgements import Acknowledgements
    from hostagent.marks.holding import HoldRule
    from hostagent.queues.htb import Queues

    left: dict[str, PlatformError] = {}
    queues, acknowledgements = Queues(), Acknowledgements()
    try:
        for interface in state.owned():
            try:
                with suppress(InputError):  # The interface may be gone, or managed by another program by now.
                    queues.reconcile(interface, None)
                acknowledgements.remove(interface)
            except PlatformError as error:
                left[interface] = error
    finally:
        queues.close()
    state.own(left)
    if left:
        raise next(iter(left.values()))
    HoldRule().remove()
    QueueDeadline(state).end()


def wait_for_guard(state: StateDirectory, patience_s: float = 5.0) -> bool:
    """Wait until no guard runs; return whether none does."""
    until = now() + patience_s
    while state.held("guard"):
        if now() >= until:
            return False
        time.sleep(0.02)
    return True


def watch(state: StateDirectory) -> None:
    """Remove the queues at their deadline; return when neither a deadline nor an agent is left."""
    deadline = QueueDeadline(state)
    while state.path.is_dir():
        if deadline.expired():
            with state.changing(), suppress(BeamerError, OSError):  # The removal is tried again at the next poll.
                if deadline.expired():
                    remove_queues(state)
        until = deadline.until()
        if until is None and not state.held("agent"):
            return
        left = 0.0 if until is None else until - now()
        time.sleep(min(_POLL_S, left) if left > 0 else _POLL_S)


if __name__ == "__main__":
    directory = StateDirectory(Path(sys.argv[1]))
    # Nothing is left to guard if the directory was taken away.
    with directory.take("guard") or sys.exit(), suppress(FileNotFoundError):
        watch(directory)
