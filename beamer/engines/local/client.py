"""The engine's connection to a job's supervisor on a node: by its socket, or by a command where files are not shared."""

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from beamer.engines.local.spec import LocalNode
from beamer.engines.local.supervisor import control
from beamer.engines.local.supervisor.messages import SupervisorAnswer, SupervisorRequest


@dataclass(frozen=True)
class SupervisorClient:
    """Asks a job's supervisor on a node. job: the directory of the job here. kind: of the process group of one that is started.

    It is started when it is asked and not there, unless kind is None.
    """

    node: LocalNode
    job: Path
    kind: str | None

    @property
    def directory(self) -> Path:
        """The supervisor's directory, on the node."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", self.node.name)
        if name != self.node.name:  # another node's may read the same
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
        command = control.control_command(directory, request, timeout_s, self.kind, python)
        return control.answer(control.run(launcher.wrap(command), timeout_s))
