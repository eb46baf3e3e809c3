"""A worker with more connections than a host may report: every other worker of the host is served as if it were not there."""

import json
import subprocess
import sys

import pytest

from controller.limits import Limits
from hostagent.marks.socket_marks import Mark
from tests.netns.cluster import HOSTS, URL, Cluster, End, Trial

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(900)]

CONNECTIONS, PROCESSES = 20_000, 4  # of each rank; a process may open fewer files than that
FIRST_PORT = 20_000  # below those that the kernel chooses, above those of other trials
LIMIT = Limits().agent_connections


def crowd(cluster: Cluster, key: str) -> "list[subprocess.Popen[str]]":
    """Start a trial whose two ranks hold all those connections to each other, and wait until they are there."""
    started = []
    for rank, (host, address) in enumerate(HOSTS.items()):
        task = {
            "url": URL,
            "trial": key,
            "rank": rank,
            "own": address,
            "other": None if rank == 0 else next(iter(HOSTS.values())),
            "ports": [FIRST_PORT + number for number in range(PROCESSES)],
            "connections": CONNECTIONS // PROCESSES,
        }
        command = (sys.executable, "-m", "tests.netns.crowd", json.dumps(task))
        started.append(cluster.process(host, *command, BEAMER_AGENT=str(cluster.agent_socket(host))))
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == "connected\n", cluster.log("processes")
    return started


def is_marked(found: dict[End, Mark], trial: Trial, classes: dict[str, int]) -> bool:
    """Say whether every connection of a trial between the hosts has its class's mark."""
    klass = classes.get(str(trial.key))
    return klass is not None and trial.marks(klass).items() <= found.items()


def test_a_worker_with_twenty_thousand_connections_costs_no_other_worker_its_mark(cluster: Cluster) -> None:
    cluster.start()
    before = cluster.trial("s/before")
    cluster.until(lambda: cluster.is_in_force(before))
    cluster.declare("s/crowd", *HOSTS)
    crowd(cluster, "s/crowd")

    def as_many_as_the_limit_says() -> bool:
        assert is_marked(cluster.marks(), before, cluster.classes()), "the others stay marked, whatever comes"
        return all(cluster.marked(host) >= LIMIT for host in HOSTS)

    cluster.until(as_many_as_the_limit_says)

    late = cluster.trial("s/late")  # takes the places of as many connections of the crowd as it has
    cluster.until(lambda: is_marked(cluster.marks(), late, cluster.classes()))
    cluster.until(as_many_as_the_limit_says)
    assert is_marked(cluster.marks(), before, cluster.classes())

    assert {found["rank"] for found in cluster.known("s/crowd")["unattached"]} == {0, 1}
    assert "more connections than the controller takes" in cluster.known("s/crowd")["unattached"][0]["reason"]
    assert not cluster.known("s/before")["unattached"]
    log = cluster.log()
    assert log.count("a host has more to report than is taken") == len(HOSTS), "once for each host"
    assert "agent lost" not in log
    assert "agent refused" not in log
