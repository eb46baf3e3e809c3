"""What is left of a job on this node, found without asking its supervisor, which may not answer; and how it is killed.

    python -m beamer.engines.local.supervisor.leftovers DIR [--kill]

Prints {"supervisors": [PID, ...], "ranks": [PID, ...]} as a line of JSON: what is left, with `--kill` after all of it was sent
SIGKILL. The next supervisor of the directory finds the run lost, and ends what should be left of it even then.
"""

import argparse
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from beamer.engines.local.supervisor.processes import lock_holders, marked
from beamer.engines.local.supervisor.supervisor import mark

KILL_S = 2.0
"""How long killed processes are waited for: what is frozen, or waits in the kernel, dies later or never."""
POLL_S = 0.01


@dataclass(frozen=True)
class Leftovers:
    """The processes of a job on a node. ranks: those that a supervisor has started, and their descendants."""

    supervisors: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        """All of them, supervisors first: without them nothing new is started."""
        return *self.supervisors, *self.ranks


def find(directory: Path) -> Leftovers:
    """Return what is left of the job of a supervisor's directory. Processes of other users are seen by root alone."""
    path = directory.resolve()
    holders = lock_holders([path / "lock", path / "ranks"])
    supervisors = holders[path / "lock"]
    ranks = {*holders[path / "ranks"], *marked(mark(path))} - set(supervisors)
    return Leftovers(tuple(supervisors), tuple(sorted(ranks)))


def kill(directory: Path, timeout_s: float = KILL_S) -> Leftovers:
    """Kill a directory's supervisor and the ranks, and return what is left after `timeout_s`."""
    until = time.monotonic() + timeout_s
    while (left := find(directory)).pids and time.monotonic() < until:
        for pid in left.pids:
            with suppress(ProcessLookupError, PermissionError):  # A process of another user is left, and is named as such.
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
    return left


def main(arguments: list[str] | None = None) -> None:
    """Look at the directory that the command line names."""
    options = argparse.ArgumentParser(prog="python -m beamer.engines.local.supervisor.leftovers", description=__doc__)
    options.add_argument("directory", type=Path)
    options.add_argument("--kill", action="store_true", help="send SIGKILL to all of it first")
    chosen = options.parse_args(arguments)
    print(json.dumps(vars(kill(chosen.directory) if chosen.kill else find(chosen.directory))))


if __name__ == "__main__":
    main()
