"""What is left of jobs is named with node and process, and what is not known is no answer that nothing is."""

import fcntl
import os
from pathlib import Path

import pytest

from beamer.engines.local import LaunchSpec, LocalCluster, LocalNode, Ssh
from beamer.engines.local.leftovers import LeftOnNode, left_of_jobs
from beamer.engines.local.record import Record, load
from beamer.engines.local.retire import retire
from beamer.engines.local.supervisor.leftovers import Leftovers
from beamer.gpu.engine import Placement


def recorded(root: Path, *nodes: str) -> Path:
    path = root / "s_a-1" / "job"
    path.parent.mkdir()
    Record("s/a", LaunchSpec(("true",)), Placement(((nodes[0], 0),)), nodes).save(path)
    return path


def program(path: Path, prints: str, code: int = 0) -> Ssh:
    """Return a launcher whose ssh prints something and ends."""
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {code}\n")
    path.chmod(0o700)
    return Ssh("far", program=str(path))


@pytest.mark.parametrize(
    ("prints", "code", "said"),
    [
        ('{"supervisors": [12], "ranks": [13, 14]}', 0, "s/a on far: supervisor 12; processes 13, 14"),
        ('{"supervisors": [], "ranks": []}', 0, ""),
        ("no such module", 1, "s/a on far: not known: "),
        ("{}]", 0, "s/a on far: not known: it answered '{}]"),
    ],
)
def test_another_machine_is_asked_by_a_command(tmp_path: Path, prints: str, code: int, said: str) -> None:
    recorded(tmp_path, "far")
    cluster = LocalCluster((LocalNode("far", 1, launcher=program(tmp_path / "ssh", prints, code)),))
    found = left_of_jobs(cluster, tmp_path)
    assert [str(one)[: len(said)] for one in found] == ([said] if said else [])
    assert left_of_jobs(cluster, tmp_path, lambda job: job != "s/a") == []
    (unasked,) = left_of_jobs(cluster, tmp_path, here=True)
    assert unasked.problem == "another machine, which has not been asked"


def test_a_supervisor_that_does_not_end_is_named_and_stays_the_jobs(tmp_path: Path) -> None:
    path = recorded(tmp_path, "here", "gone")
    directory = path.parent / "here"
    directory.mkdir()
    with open(directory / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        cluster = LocalCluster((LocalNode("here", 1),))
        here, gone = left_of_jobs(cluster, tmp_path)
        assert here == LeftOnNode("s/a", "here", Leftovers((os.getpid(),)))
        assert str(gone) == "s/a on gone: the node is no longer declared, a supervisor may be left there"
        assert retire(cluster, tmp_path) == [gone], "nobody listens there"
    record = load(path)
    assert record is not None
    assert record.nodes == ("gone",)


@pytest.mark.parametrize(("pids", "nodes"), [("[12]", ("far",)), ("[]", ())])
def test_a_node_whose_supervisor_does_not_answer_is_kept_while_something_is_left_there(
    tmp_path: Path, pids: str, nodes: tuple[str, ...]
) -> None:
    path = recorded(tmp_path, "far")
    prints = f'{{"supervisors": {pids}, "ranks": []}}'
    found = retire(LocalCluster((LocalNode("far", 1, launcher=program(tmp_path / "ssh", prints)),)), tmp_path)
    assert [one.processes for one in found] == [Leftovers((12,))] * len(nodes)
    assert all("no answer" in one.problem for one in found)
    record = load(path)
    assert record is not None
    assert record.nodes == nodes
