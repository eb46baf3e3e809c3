"""What becomes of the placement groups of starts that are withdrawn: nothing is lost, and nothing is kept."""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

import ray
from ray.air.execution import ResourceRequest
from ray.util.placement_group import placement_group_table

from beamer.engines.ray_tune import placement_groups
from beamer.engines.ray_tune.placement_groups import SettledPlacementGroups
from beamer.engines.ray_tune.scheduler import BeamerScheduler
from eval.ray_cluster import LocalRayCluster
from tests.processes.site import until
from tests.ray.searches import run


def request(gpus: int, cpus: float = 1.0) -> ResourceRequest:
    """Return a request for GPUs of one node."""
    return ResourceRequest([{"GPU": gpus, "CPU": cpus}])


def existing() -> set[str]:
    """Return the placement groups that were not removed."""
    return {group["placement_group_id"] for group in placement_group_table().values() if group["state"] != "REMOVED"}


def is_all_free() -> bool:
    """Say whether no GPU and no CPU of the cluster is taken."""
    free, all_ = ray.available_resources(), ray.cluster_resources()
    return all(free.get(name) == all_[name] for name in ("CPU", "GPU"))


@pytest.fixture
def groups(cluster: LocalRayCluster) -> Iterator[SettledPlacementGroups]:
    until(lambda: not existing() and is_all_free())  # of the test before
    groups = SettledPlacementGroups()
    yield groups
    groups.clear()
    assert not existing()


def created(groups: SettledPlacementGroups, wanted: ResourceRequest) -> Any:
    """Wait until a group of a request is created and return it, acquired."""
    until(lambda: groups.has_resources_ready(wanted))
    return groups.acquire_resources(wanted)


def test_nothing_is_lost_whenever_starts_are_withdrawn(groups: SettledPlacementGroups) -> None:
    rng = Random(1)
    shapes = [ResourceRequest([{"CPU": 1 + number / 10}] * 2, "SPREAD") for number in range(5)]
    for shape in shapes * 120:
        groups.request_resources(shape)
        time.sleep(rng.uniform(0, 0.001))  # in which Ray reserves what it then creates the group of
        groups.cancel_resource_request(shape)
        groups.has_resources_ready(shape)
    groups.clear()
    until(is_all_free)


def test_nothing_is_lost_at_the_end_where_groups_wait_for_each_other(groups: SettledPlacementGroups) -> None:
    for gpus in (2, 2, 2, 1, 1):  # of two nodes with two
        groups.request_resources(request(gpus))
    created(groups, request(2))
    groups.clear()
    assert not existing()
    until(is_all_free)


def test_a_group_for_which_there_is_no_node_is_not_waited_for(
    groups: SettledPlacementGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_groups, "SETTLE_S", 3600.0)
    groups.request_resources(request(100))
    groups.cancel_resource_request(request(100))
    until(lambda: not groups._feasible())
    groups.clear()
    assert not existing()


def test_a_group_that_nobody_wants_any_more_is_removed_once_it_is_created(groups: SettledPlacementGroups) -> None:
    everything = [request(2, cpus) for cpus in (1, 2)]
    for each in everything:
        groups.request_resources(each)
    held = [created(groups, each) for each in everything]
    groups.request_resources(request(1))
    groups.cancel_resource_request(request(1))
    assert len(existing()) == 3
    for each in held:
        groups.free_resources(each)
    ray.wait(groups.get_resource_futures())
    groups.update_state()
    until(lambda: not existing())
    until(is_all_free)


def test_a_withdrawn_start_that_is_made_again_has_the_same_group(groups: SettledPlacementGroups) -> None:
    wanted = request(1)
    groups.request_resources(wanted)
    before = existing()
    groups.cancel_resource_request(wanted)
    groups.request_resources(wanted)
    held = created(groups, wanted)
    groups.update_state()
    assert existing() == before
    groups.free_resources(held)


def test_of_two_equal_groups_the_one_that_is_created_serves_who_still_waits(groups: SettledPlacementGroups) -> None:
    wanted, full = request(2), request(2, 7)
    groups.request_resources(full)
    held = created(groups, full)  # of one node, so that the other has GPUs for one of the two
    groups.request_resources(wanted)
    groups.request_resources(wanted)
    groups.cancel_resource_request(wanted)
    mine = created(groups, wanted)
    assert len(existing()) == 3
    groups.free_resources(mine)
    groups.free_resources(held)
    ray.wait(groups.get_resource_futures())
    groups.update_state()
    assert not existing()


def test_what_was_not_requested_is_not_cancelled(groups: SettledPlacementGroups) -> None:
    groups.request_resources(request(1))
    groups.cancel_resource_request(request(1))
    for wanted in (request(1), request(2)):
        with pytest.raises(RuntimeError, match="cancelled more often than requested"):
            groups.cancel_resource_request(wanted)


def test_a_search_has_its_groups_from_here(cluster: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[Any] = []
    request_resources = SettledPlacementGroups.request_resources

    def noted(groups: SettledPlacementGroups, resource_request: Any) -> None:
        requested.append(resource_request)
        request_resources(groups, resource_request)

    monkeypatch.setattr(SettledPlacementGroups, "request_resources", noted)
    results = run(tmp_path, BeamerScheduler("fifo"), [0.1], iterations=1)
    assert not results.errors
    assert len(requested) == 1
