"""The per-host launcher of emulated trainers: one process per task, as a node's job daemon starts them.

It imports what trainers need once, so that a process costs a fork. Requests come on standard input, one JSON object a line:
`{"prepare": N, "controller": URL}` forks N processes ahead, `{"start": ID, "task": {...}}` gives one its task. Standard output
carries `{"ready": true}` once, `{"prepared": N}`, and `{"ended": ID, "status": N}` whenever a process ends. The end of input
ends the launcher and the processes without a task.
"""

import contextlib
import gc
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

from beamer.client import Client, transport  # noqa: F401  Every forked trainer would else import `transport` at its first use.
from topologies.emulation import trainer


class Spares:
    """Processes forked ahead of their tasks: what a fork costs, most of it copied pages, is paid before a run is measured."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int]] = []  # Processes, each with the pipe that it reads its task from.

    def fork(self, controller: str) -> None:
        """Fork one that will report to the controller at this URL."""
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid:
            os.close(theirs)
            self._waiting.append((pid, ours))
            return
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (ours, *(pipe for _, pipe in self._waiting)):
                os.close(inherited)  # Each process then sees the end of its own pipe when the launcher ends.
            sys.stdin = open(os.devnull)  # noqa: SIM115  the request stream stays the parent's
            client = Client(controller)
            with open(theirs, "rb") as pipe:
                task = pipe.read()
            if task:
                trainer.run(json.loads(task), client)
            status = 0
        except BaseException:  # noqa: BLE001  a forked child must never return into the parent's loop
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def start(self, task: dict[str, Any]) -> int:
        """Give one its task and return its process id."""
        if not self._waiting:
            self.fork(task["controller"])
        pid, pipe = self._waiting.pop(0)
        with open(pipe, "wb") as stream:
            stream.write(json.dumps(task).encode())
        return pid


def handle_requests() -> None:
    """Start trainers on request until standard input ends."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()  # a collection in a child would touch, and so copy, all that it shares with this process
    spares = Spares()
    running: dict[int, str] = {}
    buffer = b""
    print(json.dumps({"ready": True}), flush=True)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if "prepare" in request:
                    for _ in range(request["prepare"]):
                        spares.fork(request["controller"])
                    print(json.dumps({"prepared": request["prepare"]}), flush=True)
                else:
                    running[spares.start(request["task"])] = request["start"]
        if woken in ready:
            os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    if identity := running.pop(ended[0], None):
                        print(json.dumps({"ended": identity, "status": os.waitstatus_to_exitcode(ended[1])}), flush=True)


if __name__ == "__main__":
    handle_requests()
