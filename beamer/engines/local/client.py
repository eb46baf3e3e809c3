"""The engine's connection to a job's supervisor on a node: by its socket, or by a command where files are not shared."""

import hashlib
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from beamer.engines.local.spec import LocalNode
from beamer.engines.local.supervisor import control
from beamer.engines.local.supervisor.messages import Launch, SupervisorAnswer, SupervisorRequest, is_unread
from beamer.protocol_version import FIRST_VERSION, PROTOCOL_VERSION


@dataclass(frozen=True)
class SupervisorClient:
    """Asks a job's supervisor on a node. job: the directory of the job here. kind: of the process group of one that is started.

    It is started when it is asked and not there, unless kind is None. first_version: names of nodes whose program was found
    to speak version 1 alone, where it is asked by a command: finding it out again would take one command more each time.
    """

    node: LocalNode
    job: Path
    kind: str | None
    first_version: set[str] = field(default_factory=set)

    @property
    def directory(self) -> Path:
        """The supervisor's directory, on the node."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", self.node.name)
        if name != self.node.name:  # Another node's name may become the same.
            name += "-" + hashlib.sha256(self.node.name.encode()).hexdigest()[:8]
        return (Path(self.node.root) / self.job.name if self.node.root else self.job) / name

    def ask(self, request: SupervisorRequest, timeout_s: float) -> SupervisorAnswer:
        """Return its answer. Raises `Unreachable` where there is none in time."""
        python = self.node.python or sys.executable
        launcher = self.node.launcher
        directory = str(self.directory)
        if launcher.direct:
            start = launcher.wrap(control.supervisor_command(directory, self.kind, python)) if self.kind else None
            return control.ask_or_start(self.directory, request, timeout_s, start)
        until = time.monotonic() + timeout_s
        # A supervisor that is started now may be newer.
        if self.node.name not in self.first_version or isinstance(request, Launch):
            try:
                answer = self._run(request, timeout_s, PROTOCOL_VERSION)
                self.first_version.discard(self.node.name)
                return answer
            except control.Unreachable as error:
                if not is_unread(request, str(error)):
                    raise
            self.first_version.add(self.node.name)
        return self._run(request, max(until - time.monotonic(), control.RETRY_S), FIRST_VERSION)

    def _run(self, request: SupervisorRequest, timeout_s: float, version: int) -> SupervisorAnswer:
        """Ask by a command on the node, whose program speaks a version."""
        python = self.node.python or sys.executable
        command = control.control_command(str(self.directory), request, timeout_s, self.kind, python, version)
        return control.answer(control.run(self.node.launcher.wrap(command), timeout_s))
