"""The side-car of a job on a node: a process of its own that outlives the scheduler and starts, freezes and ends the ranks.

    python -m beamer.engines.local.supervisor DIR [--group KIND]

It leaves the terminal and goes on in the background; it does nothing if DIR has a supervisor. Should it die, its ranks die with
it, and whoever takes its place kills what is left before anything is launched. On SIGTERM it stops them at an iteration
boundary and leaves.
"""

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path

from beamer.engines.local import groups, ranks, store
from beamer.engines.local.files import load_state
from beamer.engines.local.serving import KILL_S, Supervisor, mark

PATIENCE_S = 0.5


def _detach(directory: Path) -> int:
    """Go on in the background, in a session of its own; the process that was started waits for word on the pipe."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        word = os.read(reading, 1000).decode()
        if word != "ready":
            print(word or f"the supervisor died at once: see {directory}/log", file=sys.stderr)
        os._exit(word != "ready")
    os.close(reading)
    os.setsid()
    with open(os.devnull) as nothing, open(directory / "log", "a") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return writing


def _lock(directory: Path) -> list[int] | None:
    """Take the directory; None if it has a supervisor. Ranks that outlived theirs are killed on the way."""
    patient = time.monotonic() + PATIENCE_S  # one that dies lets go of its socket first
    while (own := store.take(directory / "lock")) is None:
        if time.monotonic() > patient:
            return None
        time.sleep(0.01)
    kind, path = load_state(directory).group or ("signals", "")
    until = time.monotonic() + KILL_S
    while (inherited := store.take(directory / "ranks")) is None:
        groups.reopen(kind, path, mark(directory)).kill(KILL_S)
        if time.monotonic() > until:
            raise SystemExit("ranks that outlived their supervisor do not die")
        time.sleep(0.01)
    del own  # the descriptor stays open as long as this process lives
    return [inherited]


def main(arguments: list[str] | None = None) -> None:
    """Serve the directory that the command line names."""
    options = argparse.ArgumentParser(prog="python -m beamer.engines.local.supervisor", description=__doc__)
    options.add_argument("directory", type=Path)
    options.add_argument("--group", choices=groups.KINDS, default="auto")
    options.add_argument("--foreground", action="store_true", help="stay in the terminal")
    chosen = options.parse_args(arguments)
    chosen.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = chosen.directory.resolve()
    word = None if chosen.foreground else _detach(directory)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hearing, telling = socket.socketpair()
    telling.setblocking(False)
    signal.set_wakeup_fd(telling.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)  # its number arrives on the socket
    ranks.adopt_orphans()
    locks = _lock(directory)
    supervisor = Supervisor(directory, chosen.group, locks) if locks else None
    if word is not None:
        os.write(word, b"ready")
        os.close(word)
    if supervisor:
        supervisor.serve(hearing)


if __name__ == "__main__":
    main()
