"""The process that supervises a job on a node; it outlives the scheduler and starts, freezes and ends the ranks.

    python -m beamer.engines.local.supervisor DIR [--group KIND]

It detaches from the terminal and continues in the background; it does nothing if DIR has a supervisor. Should it die, its ranks
die with it, and its successor kills what is left before anything is launched. On SIGTERM it stops them at an iteration boundary
and exits.
"""

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path

from beamer.engines.local.supervisor import groups, store
from beamer.engines.local.supervisor.files import load_state
from beamer.engines.local.supervisor.processes import adopt_orphans
from beamer.engines.local.supervisor.supervisor import KILL_S, Supervisor, mark

OF_0_1_0 = "cgroup1"  # A kind of groups that engines of 0.1.0 may ask for.
LOCK_S = 0.5
"""How long the lock is waited for: a supervisor that dies closes its socket before its lock."""
READY = "ready"


def _detach(directory: Path) -> int:
    """Continue in the background, in a session of its own, and return the pipe on which the process that was started waits.

    `READY` on it ends that process well, anything else is its error.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        received = os.read(reading, 1000).decode()
        if received != READY:
            print(received or f"the supervisor died at once: see {directory}/log", file=sys.stderr)
        os._exit(received != READY)
    os.close(reading)
    os.setsid()
    with open(os.devnull) as nothing, open(directory / "log", "a") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return writing


def _lock(directory: Path) -> list[int] | None:
    """Take the locks of a directory; None if it has a supervisor. Ranks that outlived theirs are killed first."""
    until = time.monotonic() + LOCK_S
    while (own := store.take(directory / "lock")) is None:
        if time.monotonic() > until:
            return None
        time.sleep(0.01)
    kind, path = load_state(directory).group or ("signals", "")
    until = time.monotonic() + KILL_S
    while (inherited := store.take(directory / "ranks")) is None:
        groups.reopen(kind, path, mark(directory)).kill(KILL_S)
        if time.monotonic() > until:
            raise SystemExit(f"ranks that outlived their supervisor do not die; they were in a group of kind {kind!r} {path}")
        time.sleep(0.01)
    del own  # The descriptor stays open as long as this process lives.
    return [inherited]


def main(arguments: list[str] | None = None) -> None:
    """Supervise the directory that the command line names."""
    options = argparse.ArgumentParser(prog="python -m beamer.engines.local.supervisor", description=__doc__)
    options.add_argument("directory", type=Path)
    options.add_argument("--group", choices=(*groups.KINDS, OF_0_1_0), default="auto")
    chosen = options.parse_args(arguments)
    chosen.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = chosen.directory.resolve()
    parent = _detach(directory)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signals, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)  # The signal's number arrives on the socket.
    adopt_orphans()
    locks = _lock(directory)
    supervisor = Supervisor(directory, "auto" if chosen.group == OF_0_1_0 else chosen.group, locks) if locks else None
    os.write(parent, READY.encode())
    os.close(parent)
    if supervisor:
        supervisor.serve(signals)


if __name__ == "__main__":
    main()
