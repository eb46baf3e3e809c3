"""What becomes of the placement groups of starts that are withdrawn: nothing is lost, and nothing is kept."""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

import ray
from ray.air.execution import ResourceRequest
from ray.util.placement_group import placement_group_table

from beamer.engines.ray_tune.local import LocalRayCluster
from beamer.engines.ray_tune.placement_groups import SettledPlacementGroups
from tests.processes.site import until


def request(gpus: int, cpus: float = 1.0) -> ResourceRequest:
    """Return a request for GPUs of one node."""
    return ResourceRequest([{"GPU": gpus, "CPU": cpus}])


def existing() -> int:
    """Return how many placement groups there are that were not removed."""
    return sum(group["state"] != "REMOVED" for group in placement_group_table().values())


def is_all_free() -> bool:
    """Say whether no GPU and no CPU of the cluster is taken."""
    free, all_ = ray.available_resources(), ray.cluster_resources()
    return all(free.get(name) == all_[name] for name in ("CPU", "GPU"))


@pytest.fixture
def groups(cluster: LocalRayCluster) -> Iterator[SettledPlacementGroups]:
    until(is_all_free)  # of the test before
    groups = SettledPlacementGroups()
    yield groups
    groups.clear()
    assert existing() == 0


def created(groups: SettledPlacementGroups, wanted: ResourceRequest) -> Any:
    """Wait until a group of a request is created and return it, acquired."""
    until(lambda: groups.has_resources_ready(wanted))
    return groups.acquire_resources(wanted)


def test_nothing_is_lost_whenever_starts_are_withdrawn(groups: SettledPlacementGroups) -> None:
    rng = Random(1)
    shapes = [ResourceRequest([{"CPU": 1 + number / 10}] * 2, "SPREAD") for number in range(10)]
    for shape in shapes * 60:
        groups.request_resources(shape)
        time.sleep(rng.uniform(0, 0.001))  # in which Ray reserves what it then creates the group of
        groups.cancel_resource_request(shape)
        groups.has_resources_ready(shape)
    groups.clear()
    until(is_all_free)


def test_a_group_that_nobody_wants_any_more_is_removed_once_it_is_created(groups: SettledPlacementGroups) -> None:
    everything = [request(2, cpus) for cpus in (1, 2)]
    for each in everything:
        groups.request_resources(each)
    held = [created(groups, each) for each in everything]
    groups.request_resources(request(1))
    groups.cancel_resource_request(request(1))
    assert existing() == 3
    for each in held:
        groups.free_resources(each)
    until(lambda: not groups.get_resource_futures() or bool(ray.wait(groups.get_resource_futures(), timeout=0)[0]))
    groups.update_state()
    until(lambda: existing() == 0)
    until(is_all_free)


def test_a_withdrawn_start_that_is_made_again_has_the_same_group(groups: SettledPlacementGroups) -> None:
    wanted = request(1)
    groups.request_resources(wanted)
    groups.cancel_resource_request(wanted)
    groups.request_resources(wanted)
    assert existing() == 1
    held = created(groups, wanted)
    groups.update_state()
    assert existing() == 1
    groups.free_resources(held)


def test_of_two_equal_groups_the_one_that_is_created_serves_who_still_waits(groups: SettledPlacementGroups) -> None:
    wanted = request(2)
    full = request(2, 7)
    groups.request_resources(full)
    held = created(groups, full)  # of one node, so that the other has GPUs for one of the two
    groups.request_resources(wanted)
    groups.request_resources(wanted)
    groups.cancel_resource_request(wanted)
    mine = created(groups, wanted)
    assert existing() == 3
    groups.free_resources(mine)
    groups.free_resources(held)
    until(lambda: bool(ray.wait(groups.get_resource_futures(), timeout=0)[0]))
    groups.update_state()
    assert existing() == 0
