"""What is left of an engine's jobs on their nodes, by process: for supervisors that do not answer, and to end them by force."""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from beamer.engines.local.client import SupervisorClient
from beamer.engines.local.record import Record, load
from beamer.engines.local.spec import LocalCluster, LocalNode
from beamer.engines.local.supervisor import codec, control, leftovers
from beamer.engines.local.supervisor.leftovers import Leftovers

ANSWER_S = 10.0
"""How long a command on another machine may take."""
WORKERS = 16
UNDECLARED = "the node is no longer declared, a supervisor may be left there"


@dataclass(frozen=True)
class LeftOnNode:
    """What is left of a job on a node. problem: why that is not known, or why it has not ended; "" otherwise."""

    job: str
    node: str
    processes: Leftovers = field(default=Leftovers())
    problem: str = ""

    def __str__(self) -> str:
        found = [
            f"{kind} {', '.join(map(str, pids))}"
            for kind, pids in (("supervisor", self.processes.supervisors), ("processes", self.processes.ranks))
            if pids
        ]
        return f"{self.job} on {self.node}: {'; '.join(found + [self.problem] * bool(self.problem))}"


def left_of_jobs(
    cluster: LocalCluster, root: Path, chosen: Callable[[str], bool] = lambda job: True, kill: bool = False, here: bool = False
) -> list[LeftOnNode]:
    """Return what is left of the jobs in an engine's directory, the nodes without anything left out.

    chosen: says of a job's key whether it is looked at. kill: whether all of it is killed first. here: whether nodes that are
    other machines are not asked, but named, as that takes seconds.
    """
    asked = [(record, name, path.parent) for record, path in _records(root) if chosen(record.job) for name in record.nodes]
    with ThreadPoolExecutor(WORKERS, "beamer-leftovers") as pool:
        found = pool.map(lambda one: _left(cluster, one[0], one[1], one[2], kill, here), asked)
    return [one for one in found if one.problem or one.processes.pids]


def left_on_node(node: LocalNode, job: str, directory: Path, kill: bool = False) -> LeftOnNode:
    """Return what is left of a job on a node. directory: the job's here. kill: whether all of it is killed first."""
    try:
        return LeftOnNode(job, node.name, _ask(node, directory, kill))
    except control.Unreachable as error:
        return LeftOnNode(job, node.name, problem=f"not known: {error}")


def _records(root: Path) -> Iterator[tuple[Record, Path]]:
    for path in sorted(root.resolve().glob("*/job")):
        with suppress(OSError, ValueError):  # The process that opens the directory is told of a record that cannot be read.
            if (record := load(path)) is not None:
                yield record, path


def _left(cluster: LocalCluster, record: Record, name: str, job: Path, kill: bool, here: bool) -> LeftOnNode:
    node = cluster.node.get(name)
    if node is None:
        return LeftOnNode(record.job, name, problem=UNDECLARED)
    if here and not node.launcher.direct:
        return LeftOnNode(record.job, name, problem="another machine, which has not been asked")
    return left_on_node(node, record.job, job, kill)


def _ask(node: LocalNode, job: Path, kill: bool) -> Leftovers:
    directory = SupervisorClient(node, job, kind=None).directory
    if node.launcher.direct:
        return leftovers.kill(directory) if kill else leftovers.find(directory)
    module = "beamer.engines.local.supervisor.leftovers"
    command = [node.python or sys.executable, "-m", module, str(directory), *(["--kill"] if kill else [])]
    said = control.run(node.launcher.wrap(command), ANSWER_S)
    try:
        return codec.decode(Leftovers, json.loads(said), module)
    except ValueError as error:
        raise control.Unreachable(f"it answered {said[:200]!r}: {error}") from error
