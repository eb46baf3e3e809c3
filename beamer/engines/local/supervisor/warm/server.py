"""A fork server: it imports modules once, and forks the ranks of runs, which then run the user's program.

    supervisor       fork server               parent of a run's ranks        rank
    connects ------> accepts, forks ---------> reads the request
                                               forks -----------------------> waits at the gate
             <-------------------------------- their process ids
    go       --------------------------------> opens the gate --------------> runs the program
             <-------------------------------- the status of each that ends
    closes   --------------------------------> kills what is left, ends

A run has a parent of its own, so that its processes are one tree, orphans included, and so that nothing that runs depends on
the server. The program is run as the interpreter itself would. It has the module `__main__`, which this file is not, for itself
alone, and its end is the interpreter's.

It is run by the user's interpreter, Python 3.8 or newer, which may lack Beamer: it imports the standard library, and the
files beside it that do the same. There they are a package that is called `NAME`.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .own_process import COMMAND_LINE, ENVIRONMENT, LIBC, PLACEHOLDER, fork, show
from .preloading import Unusable, preload, signature, sources
from .program import UserProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

LINGER_S = 30.0
"""How long a server stays after the last run: searches start the next configuration within seconds."""
CHECK_S = 1.0
"""Between two checks of whether the server is still wanted."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MAX_DESCRIPTORS = 253  # of a message, SCM_MAX_FD of Linux
NAME = "beamer_fork_server"
"""The name of the package that this file is in where it is run."""
GO = b"\n"
"""What a supervisor sends when ranks may go, and each rank reads at the gate."""


class Wakeup:
    """A descriptor that can be read from when a child has ended. handler: of SIGCHLD before."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        for one in (self._reading, self._writing):
            os.set_blocking(one, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)

    def wait(self, source: socket.socket, timeout_s: float | None) -> bool:
        """Wait for a child's end, or for something to be read from a source; return whether that can be read."""
        poll = select.poll()
        for one in (source.fileno(), self._reading):
            poll.register(one, select.POLLIN)
        ready = {one for one, _ in poll.poll(None if timeout_s is None else int(1000 * timeout_s))}
        if self._reading in ready:
            os.read(self._reading, 4096)
        return source.fileno() in ready

    def close(self) -> None:
        """Have signals handled as before."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if self._handler is None else self._handler)
        signal.set_wakeup_fd(self._before)
        os.close(self._reading)
        os.close(self._writing)


def ended_children() -> list[tuple[int, int]]:
    """Return the process ids and statuses of children that have ended."""
    found: list[tuple[int, int]] = []
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(child)
    except ChildProcessError:
        pass
    return found


class ForkServer:
    """Serves on a socket that listens already. directory: its own. control: the inode number and time of the socket's file."""

    def __init__(self, listening: socket.socket, directory: str, control: Sequence[int]) -> None:
        self._started_with = dict(os.environ)
        self._listening = listening
        self._directory = directory
        self._control = tuple(control)
        self._wakeup: Wakeup | None = None
        self._parents: set[int] = set()

    def refuse(self, answer: dict[str, Any]) -> None:
        """Leave, and answer all who wait."""
        self._leave()
        while (connection := self._accept()) is not None:
            with suppress(OSError):
                send(connection, answer)

    def serve(self) -> UserProgram | None:
        """Serve as long as it is wanted, and files are as they were imported; None then. In a rank return what is to be run."""
        self._wakeup = Wakeup()
        imported = sources()
        self._listening.setblocking(False)
        until, leaves = time.monotonic() + LINGER_S, False
        while not leaves:
            waits = self._wakeup.wait(self._listening, CHECK_S)
            self._parents.difference_update(pid for pid, _ in ended_children())
            if self._parents or waits:
                until = time.monotonic() + LINGER_S
            leaves = not self._is_reachable()
            if not leaves and (leaves := time.monotonic() > until):
                self._leave()
            if waits and any(signature(path) != before for path, before in imported.items()):
                self.refuse({"is_stale": True})
                return None
            while (connection := self._accept()) is not None:  # Those who connected before it left are served.
                pid = fork()
                if not pid:
                    self._wakeup.close()
                    self._listening.close()
                    return serve_run(connection, self._started_with)
                self._parents.add(pid)
                connection.close()
        return None

    def _accept(self) -> socket.socket | None:
        try:
            connection = self._listening.accept()[0]
        except OSError:
            return None
        connection.setblocking(True)
        return connection

    def _is_reachable(self) -> bool:
        """Return whether the socket's file is there, and not that of another server."""
        try:
            found = os.stat(f"{self._directory}/control")
        except OSError:
            return False
        return (found.st_ino, found.st_mtime_ns) == self._control

    def _leave(self) -> None:
        self._listening.setblocking(False)
        if self._is_reachable():
            with suppress(OSError):
                os.unlink(f"{self._directory}/control")


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a message, a line of JSON, with the descriptors that came with it. Raises `ValueError` where there is none."""
    data, descriptors = b"", array.array("i")
    while not data.endswith(b"\n"):
        part, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(_MAX_DESCRIPTORS * descriptors.itemsize))
        if not part:
            raise ValueError("the supervisor has gone")
        data += part
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    message: dict[str, Any] = json.loads(data)
    return message, descriptors.tolist()


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a message."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def serve_run(connection: socket.socket, started_with: dict[str, str]) -> UserProgram | None:
    """Be the parent of a run's ranks, until its supervisor closes the connection; None then. In a rank, return its program."""
    try:
        send(connection, {"is_ready": True})  # Descriptors come then: those in the queue of a busy server would hold locks.
        request, descriptors = receive(connection)
    except (OSError, ValueError):
        return None
    os.setsid()
    LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup = Wakeup()
    opening, gate = os.pipe()
    locks, pipes = descriptors[: request["locks"]], descriptors[request["locks"] :]
    ranks: list[int] = []
    own = os.getpid()
    try:
        # Ranks have their mark from the beginning, as they may be frozen or are to be killed at any time.
        shown = show(ENVIRONMENT, f"{PLACEHOLDER}={started_with[PLACEHOLDER]}", request["mark"])
        os.chdir(request["cwd"])
        for number, variables in enumerate(request["ranks"]):
            pid = fork()
            if not pid:
                wakeup.close()
                connection.close()
                os.close(gate)
                show(COMMAND_LINE, "", "\0".join(request["command"]))
                become_rank(own, locks, pipes, number, opening)
                adopt({**request["environment"], **variables}, started_with)
                return UserProgram(request["program"], request["is_module"], request["arguments"], request["command"])
            ranks.append(pid)
        show(ENVIRONMENT, shown, f"BEAMER_PARENT_OF={request['directory']}")
        for one in (*locks, *pipes, opening):
            os.close(one)
        send(connection, {"parent": own, "ranks": ranks})
        follow(connection, wakeup, gate, ranks)
    except OSError as error:
        if os.getpid() != own:
            raise
        with suppress(OSError):  # The supervisor may be gone.
            send(connection, {"error": f"{request['command'][0]} cannot be started: {error}"})
    kill(ranks)
    return None


def become_rank(parent: int, locks: list[int], pipes: list[int], number: int, opening: int) -> None:
    """Be a process as a supervisor starts one, and wait at the gate. pipes: of all ranks. number: of this one among them."""
    LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # The parent died before the call.
        os._exit(1)
    os.setsid()
    for one in locks:
        os.set_inheritable(one, True)
    os.dup2(pipes[2 * number], 1)
    os.dup2(pipes[2 * number + 1], 2)
    for one in pipes:
        os.close(one)
    if os.read(opening, 1) != GO:
        os._exit(1)
    os.close(opening)


def follow(connection: socket.socket, wakeup: Wakeup, gate: int, ranks: list[int]) -> None:
    """Let the ranks go when the supervisor says so, and tell it of their ends, until it is gone."""
    try:
        while True:
            if wakeup.wait(connection, None):
                if not connection.recv(1):
                    return
                os.write(gate, GO * len(ranks))
            for pid, status in ended_children():
                if pid in ranks:
                    ranks.remove(pid)
                    send(connection, {"pid": pid, "status": status})
    except OSError:  # The supervisor is gone.
        return


def kill(ranks: list[int]) -> None:
    """Kill ranks, and what is in their process groups; their numbers are theirs until they have been waited for."""
    for pid in ranks:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def adopt(environment: dict[str, str], before: dict[str, str]) -> None:
    """Take the environment of a rank, and randomness of its own. Variables that a module has set stay."""
    for name in before.keys() - environment.keys():
        os.environ.pop(name, None)
    for name, value in environment.items():
        if before.get(name) != value:
            os.environ[name] = value
    # Python's own generator is seeded anew by each fork; PyTorch's begins with the same seed in every process.
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)
        processes.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]


def main() -> None:
    """Import the modules and serve; in a rank, run its program."""
    program = _serve()
    if program is None:
        os._exit(0)
    program.run()


def _serve() -> UserProgram | None:
    options = json.loads(sys.argv[-1])
    log = os.open(f"{options['directory']}/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    # The streams were opened on pipes, as a rank's are, and stay as they are.
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if options["is_archive"] or not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, options["path"])
    listening = socket.socket(fileno=options["socket"])
    listening.set_inheritable(False)
    server = ForkServer(listening, options["directory"], options["control"])
    sys.argv[:] = [""]
    try:
        preload(options["modules"])
    except Unusable as error:
        server.refuse({"error": str(error)})
        return None
    return server.serve()
