"""A site whose switches speak no OpenFlow: agents alone keep the order, and the plan is installed once they have it."""

import pytest

from beamer.network.codepoints import PRECEDENCE
from tests.netns.cluster import Cluster

pytestmark = pytest.mark.netns


def test_agents_alone_keep_the_order_and_the_plan_counts_as_installed(cluster: Cluster) -> None:
    cluster.start("--openflow", "none")
    for study in ("first", "second"):
        cluster.declare(f"{study}/a", "h1", "h2")
        cluster.processes(f"{study}/a", "h1", "h2")
    cluster.until(lambda: len(cluster.classes()) == 2 and dscps(cluster) == dscps_wanted(cluster))
    cluster.until(lambda: cluster.get("/v1/health")["installed_everywhere"])
    health, plan = cluster.get("/v1/health"), cluster.get("/v1/plan")
    assert health["switches"] == {"expected": 0, "installed": 0}
    assert plan["installed"]["switches"] == {}
    assert plan["connected"]["switches"] == []
    assert set(cluster.classes().values()) == {0, 1}
    assert dscps(cluster) == dscps_wanted(cluster)
    assert "openflow=none" in cluster.log()


def dscps(cluster: Cluster) -> set[int]:
    return {mark.dscp for mark in cluster.marks().values()}


def dscps_wanted(cluster: Cluster) -> set[int]:
    """Return the codepoints of the classes, of the profile for switches that nobody tells about them."""
    return {PRECEDENCE.of(klass) for klass in cluster.classes().values()}
