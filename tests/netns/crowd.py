"""A worker that holds thousands of connections, in several processes, as one may open a limited number of files.

Started as `python -m tests.netns.crowd TASK`. It attaches through its host's agent, prints one line when all its connections
are there, and ends with standard input. Its processes end with it, however it ends.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time

from beamer.client import Client, lease
from beamer.studies.model import split_key

PATIENCE_S = 120.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(task: dict) -> None:
    """Run a task.

    task: url, trial, rank; own: this host's address; other: the other host's, None for the side that accepts; ports: one for
    each process; connections: of each process.
    """
    lease.CONNECT_S = PATIENCE_S  # a machine may be overloaded
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ready, done = os.pipe()
    for port in task["ports"]:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            _held = connections(task, port)  # open as long as the process lives
            os.write(done, b".")
            os.close(done)
            signal.pause()
    os.close(done)
    trial = Client(task["url"]).trial(*split_key(task["trial"]))  # after the forks, which share none of its threads
    trial.attach(task["rank"])
    for _ in task["ports"]:
        if not os.read(ready, 1):
            sys.exit("a process has ended without its connections")
    os.write(sys.stdout.fileno(), b"connected\n")
    sys.stdin.read()


def connections(task: dict, port: int) -> list[socket.socket]:
    """Return as many connections as a process is to hold."""
    if task["other"] is None:
        with socket.create_server((task["own"], port), backlog=4096) as server:
            server.settimeout(PATIENCE_S)
            return [server.accept()[0] for _ in range(task["connections"])]
    deadline = time.monotonic() + PATIENCE_S
    made: list[socket.socket] = []
    while len(made) < task["connections"]:
        try:
            made.append(socket.create_connection((task["other"], port), PATIENCE_S))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    return made


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
