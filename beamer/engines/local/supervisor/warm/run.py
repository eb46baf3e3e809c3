"""The ranks of one run as a fork server makes them: what their supervisor asks for, and what it is told of them."""

import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from beamer.engines.local.python_command import parse_command
from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.supervisor import processes
from beamer.engines.local.supervisor.warm import servers
from beamer.engines.local.supervisor.warm.preloading import IMPORT_S
from beamer.engines.local.supervisor.warm.server import GO
from beamer.process_stat import own_namespace

SEND_S = 5.0
END_S = 5.0
"""How long the parent of ranks that have ended is waited for: to say how, and to end as well."""
MAX_ATTEMPTS = 3
"""Servers that are asked in turn, where each finds that files of its modules have changed."""
LOG_CHARACTERS = 2000
"""Of a server's log, that are shown when it has died."""


class WarmStartError(Exception):  # The exception's text is why a run has failed.
    """Ranks cannot be forked, or those that were have lost their parent; the message says why."""


class ForkedProcess:
    """A rank, with what a supervisor uses of `subprocess.Popen`."""

    def __init__(self, run: "WarmRun", pid: int, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = stdout
        self.stderr: IO[bytes] | None = stderr
        self._run = run

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code, -SIGKILL where its parent does not tell it in time: it has died then, and the rank with it."""
        until = time.monotonic() + (END_S if timeout is None else timeout)
        while self.returncode is None and (left_s := until - time.monotonic()) > 0:
            try:
                self._run.take(left_s)
            except WarmStartError:
                break
        if self.returncode is None:
            self.returncode = -signal.SIGKILL
        return self.returncode


class WarmRun:
    """A run that is being forked, and then its processes.

    directory: the supervisor's, below that of its job. environment: that all ranks have. ranks: variables of each, by its
    number. processes: of ranks that have been forked. parent: of these, as `Status` names a process; None: there is none yet.
    connection: can be read when there is news to `take`. is_stale: its server has left, as files of modules have changed since
    they were imported: `connect` finds another one. Raises `OSError` where no server can be started.
    """

    def __init__(
        self,
        spec: LaunchSpec,
        directory: Path,
        environment: Mapping[str, str],
        ranks: Mapping[int, Mapping[str, str]],
        mark: str,
        locks: Sequence[int],
    ) -> None:
        self.processes: dict[int, ForkedProcess] = {}
        self.parent: tuple[int, int, int] | None = None
        self.is_released = False
        self._modules = ", ".join(spec.preload)
        self._numbers = tuple(ranks)
        command = parse_command(spec.command)
        cwd = spec.cwd or str(directory)
        self._directory = directory
        self._spec = servers.ServerSpec(command, spec.preload, environment, cwd)
        self._attempts = 0
        self.connect()
        pipes = [os.pipe() for _ in range(2 * len(ranks))]
        self._outputs = [os.fdopen(reading, "rb", 0) for reading, _ in pipes]
        request = {
            "directory": str(directory), "cwd": cwd, "locks": len(locks), "mark": mark, "command": spec.command,
            "program": command.program, "is_module": command.is_module, "arguments": command.arguments,
            "environment": dict(environment), "ranks": [dict(one) for one in ranks.values()],
        }  # fmt: skip
        self._request = json.dumps(request).encode() + b"\n"
        self._locks = tuple(locks)
        self._writing = [writing for _, writing in pipes]

    def connect(self) -> None:
        """Ask a server to fork, which is started where there is none. Raises `OSError` where it cannot be."""
        found = servers.connect(self._directory.parent.parent, self._directory.name, self._spec)
        if self._attempts:
            self._disconnect()
        self.connection, self._server, self._errors = found
        self._received = b""
        self._attempts += 1
        self.is_stale = False

    def _disconnect(self) -> None:
        self.connection.close()
        if self._errors is not None:
            self._errors.close()

    def _send_request(self) -> None:
        """Send the request to a server that has imported its modules: until then the descriptors would hold the locks."""
        self.connection.settimeout(SEND_S)
        sent = socket.send_fds(self.connection, [self._request], [*self._locks, *self._writing])
        self.connection.sendall(self._request[sent:])
        self._close_writing()

    def _close_writing(self) -> None:
        while self._writing:
            os.close(self._writing.pop())

    def take(self, timeout_s: float = 0.0) -> bool:
        """Take in what has come, and return whether the ranks have been forked with it. Raises `WarmStartError`."""
        self.connection.settimeout(timeout_s)
        try:
            data = self.connection.recv(1 << 16)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            data = b""
        if not data:
            raise WarmStartError(self._end())
        *lines, self._received = (self._received + data).split(b"\n")
        taken = [self._take(json.loads(line)) for line in lines]
        return any(taken)

    def release(self) -> None:
        """Let the ranks go, which wait until all of them are in their group."""
        if not self.is_released:
            self.is_released = True
            with suppress(OSError):  # The next `take` finds that the parent has gone.
                self.connection.sendall(GO)

    def close(self) -> None:
        """Have the ranks' parent kill what it has, and end; close the pipes of ranks that were not forked."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            if self.parent is not None:
                self.connection.settimeout(END_S)
                while self.connection.recv(1 << 16):
                    pass
        self._disconnect()
        self._close_writing()
        if not self.processes:
            for one in self._outputs:
                one.close()

    def _take(self, message: Mapping[str, Any]) -> bool:
        """Take in a message, and return whether it is of ranks that were forked."""
        if "error" in message:
            raise WarmStartError(message["error"])
        if "is_stale" in message:
            if self._attempts == MAX_ATTEMPTS:
                raise WarmStartError(f"files of what {self._modules} of preload imports change all the time")
            self.is_stale = True
            return False
        if "is_ready" in message:
            self._send_request()
            return False
        if "ranks" in message:
            found = processes.stat(message["parent"])
            self.parent = message["parent"], found.started if found else 0, own_namespace()
            outputs = zip(self._numbers, message["ranks"], self._outputs[::2], self._outputs[1::2], strict=True)
            self.processes = {number: ForkedProcess(self, pid, output, errors) for number, pid, output, errors in outputs}
            return True
        for one in self.processes.values():
            if one.pid == message["pid"]:
                one.returncode = os.waitstatus_to_exitcode(message["status"])
        return False

    def _end(self) -> str:
        """Return what is to be said of a server, or a parent, that has closed the connection."""
        if self.processes:
            return "the process that has forked the ranks has ended, and they with it"
        said = b""
        with suppress(OSError):
            said = (self._server / "log").read_bytes()
        if self._errors is not None:
            os.set_blocking(self._errors.fileno(), False)
            said += self._errors.read(1 << 16) or b""
        last = said.decode(errors="replace").strip()[-LOG_CHARACTERS:]
        died = f"the process that preloads {self._modules} has died, or an import took more than {IMPORT_S} s"
        return f"{died}: {last or 'it printed nothing'}"
