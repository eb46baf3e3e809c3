"""Two hosts and a cable, with sinks, workers and an agent under test: what the tests of whole agents stand on."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from beamer.client.lease import describe_process
from beamer.network.connection import FourTuple
from beamer.network.protocol import Applied, Assignment, Connections, Hello, LocalWorker, Port
from hostagent.expiry.deadline import QueueDeadline
from hostagent.expiry.guard import wait_for_guard
from hostagent.expiry.state import StateDirectory
from hostagent.marks.diagnostics import Diagnostics
from hostagent.marks.socket_marks import UNMARKED, Mark
from tests.support.agent_doubles import FakeController, agent_command
from tests.support.namespaces import Namespace

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = Port(interface="data", rate_bps=20_000_000, classify="mark")

SINK = """
import socket, threading
server = socket.create_server(("", 5000), backlog=64)
def drain(peer):
    while peer.recv(65536): pass
while True: threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()
"""
# Connects to each address given, then sends without end on the first; `child`: in a child process of its own. Reno keeps the
# queue filled, which is what priorities are about; chosen before connecting, or BBR's pacing would stay and hold a starved
# sender back for seconds.
WORKER = """
import os, socket, sys
kind, *peers = sys.argv[1:]
if kind == "child" and os.fork(): os.wait(); sys.exit()
def connected(peer):
    line = socket.socket()
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    line.connect((peer, 5000))
    return line
lines = [connected(peer) for peer in peers]
noise = socket.socketpair(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.create_server(("", 0))
print("connected", lines[0].getsockname()[1], flush=True)
if kind == "quiet": sys.stdin.read()
while True: lines[0].sendall(bytes(16384))
"""


class Bench:
    """Two hosts and a cable; the agent under test is on the first one, sinks on both."""

    def __init__(self, spaces: tuple[Namespace, ...], state: Path, stack: ExitStack) -> None:
        self.here, self.there = spaces
        self.state = StateDirectory(state / "h1")
        self.stack = stack
        self._agents_log = state / "agents.log"
        stack.callback(lambda: sys.stderr.write(self._agents_log.read_text() if self._agents_log.exists() else ""))
        stack.callback(end_guard, self.state)
        self.controller = stack.enter_context(FakeController(self.here))
        for space in spaces:
            space.run("ip", "link", "set", "data", "txqueuelen", "100")
            space.run("ethtool", "-K", "data", "tx", "off", "tso", "off", "gso", "off")
            self.start(space, "-c", SINK)

    def start(self, space: Namespace, *arguments: str, prefix: tuple[str, ...] = (), **env: str) -> "subprocess.Popen[str]":
        command = (*prefix, sys.executable, *arguments)
        process = space.popen(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | env)
        self.stack.enter_context(process)
        self.stack.callback(kill_group, process)
        return process

    def wait_for_sinks(self) -> None:
        deadline = time.monotonic() + 10
        while ":5000" not in self.there.run("ss", "-ltnH") or ":5000" not in self.here.run("ss", "-ltnH"):
            assert time.monotonic() < deadline, "the sinks do not listen"
            time.sleep(0.05)

    def worker(self, kind: str, *peers: str) -> tuple["subprocess.Popen[str]", int]:
        """Start a worker here; return it with the local port of its first connection."""
        self.wait_for_sinks()
        process = self.start(self.here, "-c", WORKER, kind, *peers)
        assert process.stdout
        return process, int(process.stdout.readline().split()[1])

    def agent(self, *more: str, expiry_s: float = 60, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        after = len(self.controller.received)
        command = agent_command(
            sys.executable,
            "h1",
            self.controller.url,
            str(self.state.path.parent),
            "--expiry",
            str(expiry_s),
            "--counters",
            "0.2",
            *more,
        )
        with self._agents_log.open("ab") as log:
            process = self.here.popen(*prefix, *command, stderr=log)
        self.stack.enter_context(process)
        self.stack.callback(process.kill)
        self.controller.wait(Hello, after=after)
        return process

    def logged(self, text: str) -> list[str]:
        """Return the lines of agents' logs that hold a text."""
        return [line for line in self._agents_log.read_text().splitlines() if text in line]

    def marked(self, connections: int = 1) -> None:
        """Wait until that number of connections is reported, confirmed as known to the network, and marked."""
        seen = self.controller.wait(Connections, lambda m: len(m.connections) == connections)
        self.controller.wait(Applied, after=self.controller.received.index(seen))
        ends = {c.sent for c in seen.connections}
        eventually(lambda: all(self.marks()[each] != UNMARKED for each in ends))

    def marks(self) -> dict[FourTuple, Mark]:
        """Return the marks of all connections here, as the kernel has them."""

        def read() -> dict[FourTuple, Mark]:
            with closing(Diagnostics()) as diagnostics:
                return {found.ends: found.mark for found in diagnostics.tcp_sockets().values()}

        return self.here.call(read)

    def remove(self) -> None:
        self.here.run(*agent_command(sys.executable, "h1", "", str(self.state.path.parent), "--remove"))

    def classes(self) -> dict[str, int]:
        """Return the bytes that each class has sent, as `tc` reports them."""
        return {m[1]: int(m[2]) for m in re.finditer(r"class htb (\S+).*\n Sent (\d+) bytes", self._statistics())}

    def waiting(self) -> dict[str, int]:
        """Return the packets that wait in each class, as `tc` reports them."""
        each = re.finditer(r"class htb (\S+).*\n Sent .*\n(?: rate .*\n)? backlog \S+ (\d+)p", self._statistics())
        return {m[1]: int(m[2]) for m in each}

    def _statistics(self) -> str:
        return self.here.run("tc", "-s", "class", "show", "dev", "data")

    def assign(self, generation: int, *workers: LocalWorker, **other: object) -> Assignment:
        fields = {"ports": (PORT,), "addresses": ADDRESSES, "workers": workers} | other
        return Assignment.model_validate({"generation": generation} | fields)


def end_guard(state: StateDirectory) -> None:
    """End the guard that an agent has left."""
    if state.path.exists():
        QueueDeadline(state).end()
        assert wait_for_guard(state)


def kill_group(process: "subprocess.Popen[str]") -> None:
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout.split()
    for pid in (process.pid, *map(int, children)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def eventually(holds: Callable[[], bool], every_s: float = 0.05, most_s: float = 20) -> None:
    deadline = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(every_s)


def local_worker(process: "subprocess.Popen[str]", job: str, klass: int, **other: int) -> LocalWorker:
    return LocalWorker(job=job, rank=0, process=describe_process(process.pid), klass=klass, **other)


def mark_of(klass: int) -> Mark:
    return Mark(0x10010 + klass, 8 * klass + 3)
