"""Grants become GPUs: no two jobs on one, and a job that has what it was granted stays."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from beamer.gpu.devices import assign
from beamer.gpu.model import Allocation, Cluster, Grant, Node
from beamer.testing.profile import POLICIES

CLUSTER = Cluster((Node("a", 4), Node("b", 2)))


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    free = {"a": 4, "b": 2}
    granted: dict[str, Grant] = {}
    for i in range(draw(st.integers(0, 5))):
        counts = {node: draw(st.integers(0, left)) for node, left in free.items()}
        if any(counts.values()):
            free = {node: left - counts[node] for node, left in free.items()}
            granted[f"s/t{draw(st.integers(0, 9))}-{i}"] = Grant.of(counts)
    return granted


@POLICIES
@given(st.lists(allocations(), max_size=4))
def test_no_gpu_is_assigned_twice_and_counts_are_kept(rounds: list[Allocation]) -> None:
    held: dict[str, tuple[tuple[str, int], ...]] = {}
    for allocation in rounds:
        assigned = assign(CLUSTER, allocation, held)
        used = Counter(device for devices in assigned.values() for device in devices)
        assert all(count == 1 and index < CLUSTER.node[node].gpus for (node, index), count in used.items())
        for key, grant in allocation.items():
            assert Counter(node for node, _ in assigned[key]) == dict(grant.gpus)
            if held.get(key) and Counter(node for node, _ in held[key]) == dict(grant.gpus) and len(allocation) == 1:
                assert assigned[key] == held[key]
        held |= assigned


def test_a_job_that_comes_back_gets_the_gpus_on_which_its_memory_lies() -> None:
    before = {"s/x": (("a", 2), ("a", 3)), "s/y": (("a", 0),)}
    allocation = {"s/y": Grant.of({"a": 1}), "s/z": Grant.of({"b": 1}), "s/x": Grant.of({"a": 2})}
    assert assign(CLUSTER, allocation, before) == {**before, "s/z": (("b", 0),)}


def test_ranks_follow_the_nodes_as_the_cluster_lists_them() -> None:
    racks = Cluster(tuple(Node(f"h{number}", 1) for number in range(1, 13)))
    granted = {"s/x": Grant.of({"h10": 1, "h2": 1, "h9": 1, "h1": 1})}
    assert [node for node, _ in assign(racks, granted, {})["s/x"]] == ["h1", "h2", "h9", "h10"]


def test_a_job_that_grows_keeps_what_it_has() -> None:
    assert assign(CLUSTER, {"x": Grant.of({"a": 3})}, {"x": (("a", 1), ("a", 2))})["x"] == (("a", 0), ("a", 1), ("a", 2))


def test_a_job_that_runs_keeps_its_gpus_from_one_that_left_its_memory_on_them() -> None:
    before = {"s/x": (("b", 0),), "s/y": (("b", 0),)}
    allocation = {"s/x": Grant.of({"b": 1}), "s/y": Grant.of({"b": 1})}
    assert assign(CLUSTER, allocation, before, running={"s/y"}) == {"s/x": (("b", 1),), "s/y": (("b", 0),)}
