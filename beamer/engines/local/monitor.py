"""Which nodes commands can be run on, checked in the background, so that a node that does not respond delays no other."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from beamer.engines.local.spec import LocalNode
from beamer.engines.local.supervisor import control

TIMEOUT_S = 5.0
"""After which a node that does not respond counts as unreachable."""
MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
"""Between two checks of a node: the first while it responds, doubled up to the second while it does not."""
WORKERS = 16


@dataclass
class _Checked:
    """What is known of a node. problem: as of `NodeMonitor.problem`, None: not known yet. check: one that is running."""

    problem: str | None = None
    check: "Future[str] | None" = None
    pause_s: float = MIN_PAUSE_S
    due_s: float = 0.0


class NodeMonitor:
    """Checks whether commands can be run on nodes; those whose commands run on this machine anyway are not checked."""

    def __init__(self, nodes: Sequence[LocalNode]) -> None:
        self._checked = {node.name: _Checked() for node in nodes if node.launcher.wrap(())}
        self._nodes = {node.name: node for node in nodes}
        # The monitor has a pool of its own, as a check may occupy a thread for long.
        self._pool = ThreadPoolExecutor(WORKERS, "beamer-monitor")
        self._guard = threading.Lock()

    def close(self) -> None:
        """Wait for the checks that are running."""
        self._pool.shutdown()

    def update(self, timeout_s: float | None = None) -> None:
        """Take in the checks that have ended, and start those that are due; wait so long for the first check of each node."""
        with self._guard:
            for name, node in self._checked.items():
                if node.check is None and time.monotonic() >= node.due_s:
                    node.check = self._pool.submit(_check, self._nodes[name])
            first = [node.check for node in self._checked.values() if node.check and node.problem is None]
        wait(first, timeout_s)  # The wait does not hold the lock, as other callers may have less time.
        with self._guard:
            for node in self._checked.values():
                if node.check and node.check.done():
                    self._take_in(node, node.check.result())
                    node.check = None

    def problem(self, name: str, unchecked: str = "") -> str:
        """Return why a node could not be reached when it was last checked, "" if it could, `unchecked` if it never was."""
        found = self._checked[name].problem if name in self._checked else ""
        return unchecked if found is None else found

    def _take_in(self, node: _Checked, problem: str) -> None:
        node.pause_s = min(2.0 * node.pause_s, MAX_PAUSE_S) if problem else MIN_PAUSE_S
        node.due_s = time.monotonic() + node.pause_s
        node.problem = problem


def _check(node: LocalNode) -> str:
    try:
        control.run(node.launcher.wrap(("true",)), TIMEOUT_S)
    except control.Unreachable as error:
        return str(error)
    return ""
