"""The ways to nodes: to a job's supervisor, and whether there is one at all."""

import hashlib
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from beamer.engines.local import control
from beamer.engines.local.messages import SupervisorAnswer, SupervisorRequest
from beamer.engines.local.spec import LocalNode

REACH_S = 5.0
"""After which a node that does not answer counts as unreachable."""
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 30.0
WORKERS = 16


@dataclass(frozen=True)
class Link:
    """A job's supervisor on a node. job: the directory of the job here. kind: of the process group of one that is started.

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


@dataclass
class _Way:
    """What is known of the way to a node. why_not: as of `Reach`, None: unknown. check: a look that is under way."""

    why_not: str | None = None
    check: "Future[str] | None" = None
    pause_s: float = LEAST_PAUSE_S
    again_s: float = 0.0


class Reach:
    """Knows which nodes commands can be run on, and looks in the background, so that a silent node holds nobody up.

    One that cannot be reached is tried again after a pause that doubles up to half a minute. clock: seconds, for pauses.
    """

    def __init__(self, nodes: Sequence[LocalNode], clock: Callable[[], float] = time.monotonic) -> None:
        self._ways = {node.name: _Way() for node in nodes if node.launcher.wrap(())}  # the others are this machine
        self._nodes = {node.name: node for node in nodes}
        self._pool = ThreadPoolExecutor(WORKERS, "beamer-reach")  # its own: a silent node holds a thread for long
        self._clock = clock
        self._guard = threading.Lock()

    def close(self) -> None:
        """Wait for the looks that are under way."""
        self._pool.shutdown()

    def look(self) -> None:
        """Take note of the looks that have ended, and look again at every node whose turn it is; wait for the first of each."""
        with self._guard:
            for name, way in self._ways.items():
                if way.check is None and self._clock() >= way.again_s:
                    way.check = self._pool.submit(_why_not, self._nodes[name])
            wait([way.check for way in self._ways.values() if way.check and way.why_not is None])
            for way in self._ways.values():
                if way.check and way.check.done():
                    self._learn(way, way.check.result())
                    way.check = None

    def why_not(self, node: str) -> str:
        """Return what was seen of a node when it could not be reached, "" if it could or has not been looked at."""
        return (self._ways[node].why_not or "") if node in self._ways else ""

    def _learn(self, way: _Way, why_not: str) -> None:
        way.pause_s = min(2.0 * way.pause_s, MOST_PAUSE_S) if why_not else LEAST_PAUSE_S
        way.again_s = self._clock() + way.pause_s
        way.why_not = why_not


def _why_not(node: LocalNode) -> str:
    try:
        control.run(node.launcher.wrap(("true",)), REACH_S)
    except control.Unreachable as error:
        return str(error)
    return ""
