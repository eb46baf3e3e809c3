"""A trainer as a process: it attaches, exchanges bytes with its peers at every step, and reports its steps.

Started as `python -m tests.netns.trainer TASK...`; each of several tasks has a process. It prints one line when it is
connected, takes commands on standard input and ends with it: `attach PATH`, through the agent there; `train STEP`, up to it.
"""

import json
import os
import socket
import sys
import threading
import time

from beamer.client import Client, TrialHandle, lease
from beamer.studies.model import split_key

PATIENCE_S = 60.0
STEP_S = 0.05
STEP_BYTES = 16384


def main(task: dict) -> None:
    """Run a task until standard input ends.

    task: url; trial (None: Beamer is told nothing of the process); rank; peers: own and other end of each connection; steps.
    """
    lease.CONNECT_S = PATIENCE_S  # a machine may be overloaded
    trial = Client(task["url"]).trial(*split_key(task["trial"])) if task["trial"] else None
    if trial:
        trial.attach(task["rank"])
    peers = [connected(tuple(own), tuple(other)) for own, other in task["peers"]]
    os.write(sys.stdout.fileno(), b"connected\n")  # at once: other processes may write to the same pipe
    threading.Thread(target=train, args=(task, peers, trial), daemon=True).start()
    for line in sys.stdin:
        match line.split():
            case ["attach", path]:
                os.environ[lease.AGENT_VARIABLE] = path
                trial.attach(task["rank"])
            case ["train", step]:
                task["steps"] = int(step)


def connected(own: tuple[str, int], other: tuple[str, int]) -> socket.socket:
    """Return a connection between two ends, made by the one with the higher port."""
    if own[1] < other[1]:
        with socket.create_server(own) as server:
            return server.accept()[0]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(other, source_address=own)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def train(task: dict, peers: list[socket.socket], trial: TrialHandle | None) -> None:
    """Train as far as the task says, until a peer is gone; then leave the other connections open."""
    step = 0
    while True:
        time.sleep(STEP_S)
        if step == task["steps"]:
            continue
        try:
            for peer in peers:
                peer.sendall(bytes(STEP_BYTES))
            for peer in peers:
                if len(peer.recv(STEP_BYTES, socket.MSG_WAITALL)) < STEP_BYTES:
                    return
        except OSError:
            return
        step += 1
        if trial and task["rank"] == 0:
            trial.progress(step)


if __name__ == "__main__":
    tasks = [json.loads(argument) for argument in sys.argv[1:]]
    for task in tasks[1:]:
        if os.fork() == 0:
            tasks = [task]
            break
    main(tasks[0])
