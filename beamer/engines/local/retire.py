"""Ending the supervisors of jobs whose processes are gone: what is known of the jobs stays for the next engine."""

import os
import time
from dataclasses import replace
from pathlib import Path

from beamer.engines.local.client import SupervisorClient
from beamer.engines.local.record import load
from beamer.engines.local.spec import LocalCluster, LocalNode
from beamer.engines.local.supervisor import control, store
from beamer.engines.local.supervisor.messages import End, Refused

END_S = 5.0
POLL_S = 0.005


def retire(cluster: LocalCluster, root: Path) -> list[str]:
    """End every supervisor of the jobs in an engine's directory, which no engine uses now, and return what went wrong.

    Where one still has ranks they are killed: park the jobs first. Nodes are no longer the jobs' when theirs have ended.
    """
    found: list[str] = []
    for path in sorted(root.resolve().glob("*/job")):
        record = load(path)
        if record is None:
            continue
        left: list[str] = []
        for name in record.nodes:
            try:
                _end(cluster.node[name], path.parent)
            except KeyError:
                left.append(name)
                found.append(f"{path.parent.name}: node {name} is no longer declared, a supervisor may be left there")
            except control.Unreachable as error:
                if not error.absent:
                    left.append(name)
                    found.append(f"{path.parent.name} on {name}: {error}")
        if tuple(left) != record.nodes:
            replace(record, nodes=tuple(left)).save(path)
    return found


def _end(node: LocalNode, job: Path) -> None:
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
