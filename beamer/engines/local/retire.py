"""Ending the supervisors of jobs whose processes are gone: what is known of the jobs stays for the next engine."""

import os
import time
from dataclasses import replace
from pathlib import Path

from beamer.engines.local.client import SupervisorClient
from beamer.engines.local.leftovers import UNDECLARED, LeftOnNode, left_on_node
from beamer.engines.local.record import load
from beamer.engines.local.spec import LocalCluster, LocalNode
from beamer.engines.local.supervisor import control, store
from beamer.engines.local.supervisor.messages import End, Refused

END_S = 5.0
POLL_S = 0.005


def retire(cluster: LocalCluster, root: Path, kill: bool = False) -> list[LeftOnNode]:
    """End every supervisor of the jobs in an engine's directory, which no engine uses now, and return what is left.

    Where one still has ranks they are killed: park the jobs first. Nodes are no longer the jobs' when nothing is left there.
    kill: whether one that does not end when it is asked to is killed.
    """
    found: list[LeftOnNode] = []
    for path in sorted(root.resolve().glob("*/job")):
        record = load(path)
        if record is None:
            continue
        left = [one for name in record.nodes if (one := _end(cluster, record.job, name, path.parent, kill)) is not None]
        if len(left) != len(record.nodes):
            replace(record, nodes=tuple(one.node for one in left)).save(path)
        found += left
    return found


def _end(cluster: LocalCluster, job: str, name: str, directory: Path, kill: bool) -> LeftOnNode | None:
    """End a job's supervisor on a node, and return what is left there, None if nothing is."""
    node = cluster.node.get(name)
    if node is None:
        return LeftOnNode(job, name, problem=UNDECLARED)
    try:
        _ask_to_end(node, directory)
    except control.Unreachable as error:
        if error.absent:
            return None
        left = left_on_node(node, job, directory, kill)
        return replace(left, problem=str(error)) if left.processes.pids or left.problem else None
    return None


def _ask_to_end(node: LocalNode, job: Path) -> None:
    client = SupervisorClient(node, job, kind=None)
    answer = client.ask(End(), END_S)
    if isinstance(answer, Refused):
        raise control.Unreachable(f"the supervisor of {client.directory} does not end: {answer.reason}")
    if node.launcher.direct:
        wait_for_exit(client.directory)


def wait_for_exit(home: Path) -> None:
    """Wait until the supervisor of a job on this machine, which is ending, has left its directory. Raises `Unreachable`."""
    until = time.monotonic() + END_S
    while (descriptor := store.take(home / "lock")) is None:
        if time.monotonic() > until:
            raise control.Unreachable(f"the supervisor of {home} does not end")
        time.sleep(POLL_S)
    os.close(descriptor)
