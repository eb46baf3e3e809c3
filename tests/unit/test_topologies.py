"""The shipped shapes: every pair of hosts is connected on every plane, and planes differ where there is a choice."""

from itertools import pairwise, permutations

import pytest

from beamer.errors import InputError
from beamer.fabric import Fabric
from topologies import dumbbell, leaf_spine, single


@pytest.mark.parametrize("fabric", [single.build(4), dumbbell.build(3), leaf_spine.build(3, 2, 2)], ids=lambda f: f.name)
def test_paths_are_contiguous_and_simple(fabric: Fabric) -> None:
    for src, dst in permutations(fabric.host, 2):
        for plane in range(fabric.planes):
            links = [fabric.links[i] for i in fabric.path(src, dst, plane)]
            assert links[0].src == src
            assert links[-1].dst == dst
            assert all(a.dst == b.src for a, b in pairwise(links))
            nodes = [link.src for link in links] + [dst]
            assert len(nodes) == len(set(nodes))
            assert not set(nodes[1:-1]) & fabric.host.keys()


def test_planes_use_different_spines() -> None:
    fabric = leaf_spine.build(2, 2, 1)
    spines = {fabric.links[fabric.path("h1", "h2", plane)[1]].dst for plane in range(fabric.planes)}
    assert spines == {"s1", "s2"}


def test_the_file_form_is_the_same_fabric() -> None:
    fabric = leaf_spine.build(2, 2, 2)
    assert Fabric.from_dict(fabric.to_dict()) == fabric


def test_ports_of_a_node_are_distinct() -> None:
    fabric = leaf_spine.build(4, 2, 2)
    assert len({(link.src, link.port) for link in fabric.links}) == len(fabric.links)
    assert len({link.interface for link in fabric.links}) == len(fabric.links)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: single.build(1), "topology.hosts"),
        (lambda: dumbbell.build(0), "topology.hosts_per_side"),
        (lambda: leaf_spine.build(0), "topology.leaves"),
        (lambda: leaf_spine.build(1, 2, 1), "topology.hosts_per_leaf"),
        (lambda: single.build(mtu=9217), "topology.mtu"),
    ],
)
def test_counts_are_checked(build: object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        build()  # type: ignore[operator]
    assert caught.value.field == field


def test_two_hosts_are_enough() -> None:
    assert [len(fabric.hosts) for fabric in (single.build(2), dumbbell.build(1), leaf_spine.build(1, 1, 2))] == [2, 2, 2]
