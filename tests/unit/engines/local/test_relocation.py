"""Whether memory on the host can be brought back onto other GPUs."""

import pytest

from beamer.engines.local import LaunchSpec, LocalCluster, LocalNode
from beamer.engines.local.eviction import DeviceMemory
from beamer.engines.local.launchers import Ssh
from beamer.engines.local.record import Record
from beamer.engines.local.relocation import obstacle, stays_on_nodes
from beamer.gpu.engine import Placement

SPEC = LaunchSpec(("true",))
FEWER = "they have not as many GPUs there, as ranks share some"
CLUSTER = LocalCluster(
    (LocalNode("a", 4), LocalNode("shared", 4, devices=("0", "0", "1", "2")), LocalNode("far", 4, launcher=Ssh("far")))
)
MEMORY = {str(index): DeviceMemory(9, 9, {}, chip) for index, chip in enumerate(("H200", "H200", "L4", ""))}


def on(*devices: tuple[str, int], batch_size: int = 0) -> Placement:
    return Placement(devices, (), batch_size)


def record(placement: Placement, spec: LaunchSpec = SPEC) -> Record:
    return Record("job", spec, placement, ("a",))


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        (on(("a", 0)), on(("a", 1)), True),
        (on(("a", 0)), on(("a", 0)), False),
        (on(("a", 0)), on(("far", 0)), False),
        (on(("a", 0)), on(("a", 0), ("a", 1)), False),
        (on(("a", 0)), on(("a", 1), batch_size=8), False),
        (on(("a", 0), ("far", 0)), on(("far", 0), ("a", 0)), False),
        (on(("a", 0), ("far", 0)), on(("a", 1), ("far", 0)), True),
    ],
)
def test_ranks_stay_on_their_nodes(before: Placement, after: Placement, stays: bool) -> None:
    assert stays_on_nodes(record(before), after) is stays


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (on(("a", 0)), on(("a", 1)), ""),
        (on(("a", 0), ("a", 1)), on(("a", 1), ("a", 0)), ""),
        (on(("a", 1)), on(("a", 2)), "of a, GPU 1 is an H200, GPU 2 an L4"),
        (on(("a", 0), ("a", 1)), on(("a", 1), ("a", 2)), "of a, GPU 1 is an H200, GPU 2 an L4"),
        (on(("a", 0)), on(("a", 3)), "GPUs 0 and 3 of a are not known to be of the same chip"),
        (on(("far", 0)), on(("far", 1)), "GPUs 0 and 1 of far are not known to be of the same chip"),
        (on(("a", 4)), on(("a", 1)), "GPU 4 of a is no longer declared"),
        (on(("shared", 0)), on(("shared", 1)), ""),
        (on(("shared", 0), ("shared", 2)), on(("shared", 0), ("shared", 1)), FEWER),
        (on(("shared", 0), ("shared", 1)), on(("shared", 0), ("shared", 2)), FEWER),
    ],
)  # fmt: skip
def test_memory_comes_back_onto_as_many_gpus_of_the_same_chip(before: Placement, after: Placement, reason: str) -> None:
    assert obstacle(record(before), after, CLUSTER, MEMORY) == reason


def test_gpus_that_the_job_s_own_environment_names_are_not_known() -> None:
    own = LaunchSpec(("true",), env=(("CUDA_VISIBLE_DEVICES", "1"),))
    assert obstacle(record(on(("a", 0)), own), on(("a", 1)), CLUSTER, MEMORY).startswith("their env sets CUDA_VISIBLE_DEVICES")
