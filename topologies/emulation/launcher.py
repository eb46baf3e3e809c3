"""The per-host launcher of emulated trainers: forks one process per task, as a node's job daemon does.

It imports what trainers need once, so that starting one costs a fork. Requests come on standard input, one JSON object a line:
`{"start": ID, "task": {...}}`. Standard output says `{"ready": true}` once, and `{"ended": ID, "status": N}` whenever a process
ends. The end of input ends the launcher.
"""

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

import httpcore  # noqa: F401  httpx imports it at its first use, which would be in every forked trainer

from topologies.emulation import trainer


def _start(task: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.stdin = open(os.devnull)  # noqa: SIM115  the request stream stays the parent's
        trainer.run(task)
        status = 0
    except BaseException:  # noqa: BLE001  a forked child must never return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Serve requests until standard input ends."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
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
                running[_start(request["task"])] = request["start"]
        if woken in ready:
            os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    print(json.dumps({"ended": running.pop(ended[0]), "status": ended[1]}), flush=True)


if __name__ == "__main__":
    serve()
