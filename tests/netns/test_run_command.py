"""The processes and connections of a command under `beamer run`, as a real agent finds and marks them."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from statistics import median

import pytest

from beamer.network.protocol import Workers
from hostagent.marks.socket_marks import UNMARKED
from tests.netns.bench import Bench
from tests.netns.test_hostagent_attach import agent, agent_socket, lease_of, local, marked, marks, only_marked, settle

pytestmark = [pytest.mark.netns, pytest.mark.alone]

__all__ = ["agent_socket"]

FOUND_S = 0.2
"""Seconds within which later children and new connections are found."""
# Connects, and again or in a child of its own for each line that it is told; says each connection's port and when it was there.
PROGRAM = """
import json, os, socket, sys, time
def connect():
    line = socket.socket()
    line.connect(("10.77.0.2", 5000))
    print(json.dumps([line.getsockname()[1], time.monotonic(), os.getpid()]), flush=True)
    return line
line = connect()
for told in sys.stdin:
    if told == "child\\n" and os.fork() == 0:
        line = connect()
        parent = os.getppid()
        while os.getppid() == parent: time.sleep(0.1)
        sys.exit()
    elif told == "reconnect\\n":
        line.close()
        line = connect()
"""


class Run:
    """A command under `beamer run`, without a controller: the agent alone is told of it."""

    def __init__(self, bench: Bench, agent: Path) -> None:
        bench.wait_for_sinks()
        words = ("-m", "beamer.cli", "run", "--study", "s", "--trial", "t", "--run", "r", "--", "python3", "-c", PROGRAM)
        env = {"BEAMER_AGENT": str(agent), "BEAMER_URL": "http://127.0.0.1:1"}
        self.process: subprocess.Popen[str] = bench.start(bench.here, *words, **env)
        self.port, _, self.pid = self.heard()

    def heard(self) -> list[int]:
        assert self.process.stdout
        return list(json.loads(self.process.stdout.readline()))

    def tell(self, word: str) -> list[int]:
        """Have the command connect, and return its port, when it was connected, and the process."""
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.heard()


def found_after(bench: Bench, run: Run, word: str) -> float:
    """Have the command connect; return how many seconds later the connection was marked."""
    port, since, _ = run.tell(word)
    while marks(bench).get(port, UNMARKED) == UNMARKED:
        assert time.monotonic() < since + 30
    return time.monotonic() - since


def test_the_commands_processes_are_found_at_once_and_nobody_elses(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    run, other = Run(bench, agent_socket), bench.worker("quiet", "10.77.0.2")[1]
    lease = lease_of(bench, run.process.pid)
    assert (lease.study, lease.trial, lease.run, lease.rank) == ("s", "t", "r", 0)
    bench.controller.applied(bench.assign(1, local(lease.process)))
    marked(bench, run.port)
    for tries_left in (2, 1, 0):  # The machine may be busy with something else.
        found_s = {word: sorted(found_after(bench, run, word) for _ in range(10)) for word in ("child", "reconnect")}
        if max(map(median, found_s.values())) < FOUND_S:
            break
        assert tries_left, found_s
    settle(bench)
    assert other in marks(bench)
    assert other not in only_marked(bench)


def test_the_lease_ends_with_the_command(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    run = Run(bench, agent_socket)
    bench.controller.applied(bench.assign(1, local(lease_of(bench, run.process.pid).process)))
    marked(bench, run.port)
    after = len(bench.controller.received)
    os.kill(run.pid, signal.SIGTERM)
    assert run.process.wait(30) == -signal.SIGTERM
    bench.controller.wait(Workers, lambda m: not m.leases, after)
