"""A worker of a trial as a process of its own: it attaches, and sends and receives on its connections all the time.

Started as `python -m eval.faults.traffic_worker TASK`, which ends with standard input. Each line there has it print what came
of every connection since the line before. The worker with `listens` accepts the connections that the other one makes.
"""

import json
import os
import selectors
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from beamer.client import lease

PATIENCE_S = 60.0
SEND_S = 0.01  # So long passes between two messages of a connection.
MESSAGE = bytes(2048)  # 1.6 Mbit/s each way: links and switch are far from full, so that nothing but a fault stops it
MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class TrafficTask:
    """What a worker is. connections: to the other worker. address: where one of the two listens, on the host's own address."""

    study: str
    trial: str
    rank: int
    listens: bool
    host: str
    address: tuple[str, int]
    connections: int


@dataclass(frozen=True)
class ConnectionProgress:
    """What came of a connection. received_bytes, longest_pause_s: since the report before. priority, dscp: its marks now."""

    received_bytes: int
    longest_pause_s: float
    broken: str
    priority: int
    dscp: int


class TrafficConnection:
    """A connection, and when its bytes came."""

    def __init__(self, sock: socket.socket, now: float) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.broken = ""
        self._received = 0
        self._longest_s = 0.0
        self._last_s = now

    def send(self) -> None:
        """Send a message, as far as there is room for it."""
        try:
            self.sock.send(MESSAGE)
        except BlockingIOError:
            pass  # the other end has not received for a while, which it will report
        except OSError as error:
            self._break(error)

    def receive(self, now: float) -> None:
        """Take in what has come."""
        try:
            count = len(self.sock.recv(MAX_BYTES))
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
            return
        if count == 0:
            self._break("closed by the other end")
            return
        self._received += count
        self._longest_s, self._last_s = max(self._longest_s, now - self._last_s), now

    def progress(self, now: float) -> ConnectionProgress:
        """Return what came of it since the last time. A pause that goes on counts, too."""
        priority = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)
        dscp = self.sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2
        made = ConnectionProgress(self._received, max(self._longest_s, now - self._last_s), self.broken, priority, dscp)
        self._received, self._longest_s = 0, 0.0
        return made

    def _break(self, reason: object) -> None:
        self.broken = str(reason)


def connected(task: TrafficTask) -> list[socket.socket]:
    """Return connections to the other worker. Raises `OSError` if it does not come in time."""
    if task.listens:
        with socket.create_server(task.address, backlog=task.connections) as server:
            server.settimeout(PATIENCE_S)
            return [server.accept()[0] for _ in range(task.connections)]
    return [_dial(task) for _ in range(task.connections)]


def _dial(task: TrafficTask) -> socket.socket:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(task.address, PATIENCE_S, (task.host, 0))
        except ConnectionRefusedError:  # the other one does not listen yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def exchange(connections: list[TrafficConnection]) -> None:
    """Send and receive until standard input ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for connection in connections:
            selector.register(connection.sock, selectors.EVENT_READ, connection)
        send_at = time.monotonic()
        while True:
            ready = selector.select(max(send_at - time.monotonic(), 0.0))
            now = time.monotonic()
            for key, _ in ready:
                if isinstance(key.data, TrafficConnection):
                    key.data.receive(now)
                    if key.data.broken:
                        selector.unregister(key.data.sock)
                elif not os.read(sys.stdin.fileno(), MAX_BYTES):
                    return
                else:
                    print(json.dumps([asdict(connection.progress(now)) for connection in connections]), flush=True)
            if now >= send_at:
                for connection in connections:
                    if not connection.broken:
                        connection.send()
                send_at = now + SEND_S


def main(document: dict[str, Any]) -> None:
    """Attach, connect and exchange."""
    task = TrafficTask(**{**document, "address": tuple(document["address"])})
    lease.CONNECT_S = PATIENCE_S  # a machine may be overloaded
    if lease.attach(task.study, task.trial, task.rank) is None:
        raise SystemExit(f"no agent takes {task} in")
    now = time.monotonic()
    exchange([TrafficConnection(sock, now) for sock in connected(task)])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
