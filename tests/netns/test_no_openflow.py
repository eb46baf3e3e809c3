"""A site whose switches speak no OpenFlow: agents alone keep the order, and the plan is installed once they have it."""

import pytest

from beamer.network.codepoints import LOCAL
from tests.netns.cluster import Cluster

pytestmark = pytest.mark.netns


def test_agents_alone_keep_the_order_and_the_plan_counts_as_installed(cluster: Cluster) -> None:
    cluster.start("--openflow", "none")
    trials = []
    for study in ("first", "second"):
        cluster.declare(f"{study}/a", "h1", "h2")
        trials.append(cluster.processes(f"{study}/a", "h1", "h2"))
    cluster.until(lambda: cluster.is_in_force(*trials))
    cluster.until(lambda: cluster.get("/v1/health")["installed_everywhere"])
    health, plan = cluster.get("/v1/health"), cluster.get("/v1/plan")
    assert health["switches"] == {"expected": 0, "installed": 0}
    assert plan["installed"]["switches"] == {}
    assert plan["connected"]["switches"] == []
    classes = cluster.classes()
    assert set(classes.values()) == {0, 1}
    assert {mark.dscp for mark in cluster.marks().values()} == {LOCAL.of(klass) for klass in classes.values()}
    assert "openflow=none" in cluster.log()
