"""The way to a job's supervisor on a node."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamer.engines.local import control
from beamer.engines.local.spec import LocalNode

REACH_S = 5.0


@dataclass(frozen=True)
class Link:
    """The supervisor of a directory on a node, started when it is asked and not there. kind: of its process group."""

    node: LocalNode
    directory: Path
    kind: str

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return its answer. Raises `Unreachable` where there is none in time."""
        python = self.node.python or sys.executable
        launcher = self.node.launcher
        if launcher.direct:
            start = launcher.wrap(control.supervisor_command(str(self.directory), self.kind, python))
            return control.ask_or_start(self.directory, request, timeout_s, start)
        command = control.control_command(str(self.directory), request, timeout_s, self.kind, python)
        return control.answer(control.run(launcher.wrap(command), timeout_s))

    @staticmethod
    def reaches(node: LocalNode) -> bool:
        """Say whether commands can be run on a node."""
        if node.launcher.wrap(()) == []:
            return True
        try:
            control.run(node.launcher.wrap(("true",)), REACH_S)
        except control.Unreachable:
            return False
        return True
